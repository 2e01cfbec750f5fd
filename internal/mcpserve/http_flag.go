package mcpserve

import (
	"context"
	"flag"
	"fmt"
	"strings"
)

// httpOptions are the flags of the HTTP transport.
type httpOptions struct {
	address, cert, key, issuer, resource string

	hosts, origins words
	rate           int
}

// words is a flag that may be given several times.
type words []string

func (t *words) String() string { return strings.Join(*t, ",") }

func (t *words) Set(s string) error {
	*t = append(*t, s)
	return nil
}

func (o *httpOptions) register(flags *flag.FlagSet) {
	flags.StringVar(&o.address, "http", "", "serve streamable HTTP at this `HOST:PORT` in the place of stdio; clients bring tokens")
	flags.StringVar(&o.cert, "tls-cert", "", "`file` with the certificate; needed beyond 127.0.0.1, ::1 and localhost")
	flags.StringVar(&o.key, "tls-key", "", "`file` with its key, which not everybody may read")
	flags.Var(&o.hosts, "allow-host", "`HOST[:PORT]` that requests may be for, beside the address itself; may be given several times")
	flags.Var(&o.origins, "allow-origin", "`origin` of web pages that may call, such as https://HOST; may be given several times (default: none)")
	flags.IntVar(&o.rate, "rate", defaultRate, "requests a second of one principal")
	flags.StringVar(&o.resource, "resource", "", "`URL` of this server as tokens of --oauth-issuer name it; ends in "+mcpPath)
	flags.StringVar(&o.issuer, "oauth-issuer", "", "`URL` of the issuer where clients get tokens; the service must know it too")
}

// stray names a flag that means nothing without --http; empty: there is none.
func (o *httpOptions) stray() string {
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"--tls-cert", o.cert != ""},
		{"--tls-key", o.key != ""},
		{"--allow-host", len(o.hosts) > 0},
		{"--allow-origin", len(o.origins) > 0},
		{"--rate", o.rate != defaultRate},
		{"--resource", o.resource != ""},
		{"--oauth-issuer", o.issuer != ""},
	} {
		if f.given && o.address == "" {
			return f.name
		}
	}
	return ""
}

// serveHTTP serves by flags, and says where on standard error.
func (s *Server) serveHTTP(ctx context.Context, p Process, o httpOptions) error {
	return s.HTTP(ctx, HTTPConfig{
		Address: o.address, Acknowledged: p.Getenv(acknowledgementName), Cert: o.cert, Key: o.key, Hosts: o.hosts, Origins: o.origins,
		Issuer: o.issuer, Resource: o.resource, Rate: o.rate,
		Listening: func(url string) { fmt.Fprintf(p.Stderr, "bailiwick-mcp: listening at %s\n", url) },
	})
}
