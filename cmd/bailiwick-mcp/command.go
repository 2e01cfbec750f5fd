package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/installation"
	"github.com/bailiwick-dev/bailiwick/internal/base/usererror"
	"github.com/bailiwick-dev/bailiwick/internal/front/mcphttp"
	"github.com/bailiwick-dev/bailiwick/internal/front/mcpserve"
)

// process is the environment that run acts in.
type process struct {
	args           []string // without the program's name
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	place          installation.Installation
	uid            int
	now            func() time.Time
	logger         *slog.Logger // to stderr
}

// options are the flags.
type options struct {
	server, serverCA  string
	socket, tokenFile string
	version           bool

	// Of HTTP only.
	address, cert, key, issuer, resource string

	hosts, origins stringList
	rate           int
}

// stringList is a flag that may be repeated.
type stringList []string

func (l *stringList) String() string { return strings.Join(*l, ",") }

func (l *stringList) Set(s string) error {
	*l = append(*l, s)
	return nil
}

func (o *options) register(flags *flag.FlagSet) {
	flags.StringVar(&o.socket, "socket", "", "unix `socket` of the service (default: the first that exists)")
	flags.StringVar(&o.tokenFile, "principal-token-file", "", "`file` (mode 0600) with the caller's token; stdio only (default: act as the account that runs this program)")
	flags.BoolVar(&o.version, "version", false, "print the version")
	flags.StringVar(&o.address, "http", "", "serve streamable HTTP at `HOST:PORT` instead of stdio; clients authenticate with tokens")
	flags.StringVar(&o.cert, "tls-cert", "", "`file` with the certificate; required except for 127.0.0.1, ::1 and localhost")
	flags.StringVar(&o.key, "tls-key", "", "`file` with the certificate's key, not accessible to everyone")
	flags.Var(&o.hosts, "allow-host", "accept requests for `HOST[:PORT]` besides the address itself; repeatable")
	flags.Var(&o.origins, "allow-origin", "accept web pages of `origin`, such as https://HOST; repeatable (default: none)")
	flags.StringVar(&o.server, "server", "", "`URL` of a service on another machine, https://HOST:PORT; requires --principal-token-file or --http")
	flags.StringVar(&o.serverCA, "server-ca", "", "`file` with the certificates that its own chains to, in PEM (default: the system's)")
	flags.IntVar(&o.rate, "rate", mcphttp.DefaultRate, "requests a second of one principal")
	flags.StringVar(&o.resource, "resource", "", "`URL` of this server, as tokens of --oauth-issuer name it; ends in "+mcphttp.Path)
	flags.StringVar(&o.issuer, "oauth-issuer", "", "`URL` of the OAuth issuer where clients get tokens; configure it in the service, too")
}

// httpOnly names a given flag that requires --http, or returns "".
func (o *options) httpOnly() string {
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"--tls-cert", o.cert != ""},
		{"--tls-key", o.key != ""},
		{"--allow-host", len(o.hosts) > 0},
		{"--allow-origin", len(o.origins) > 0},
		{"--rate", o.rate != mcphttp.DefaultRate},
		{"--resource", o.resource != ""},
		{"--oauth-issuer", o.issuer != ""},
	} {
		if f.given {
			return f.name
		}
	}
	return ""
}

// run is the program: it serves stdio, or HTTP with --http.
func run(ctx context.Context, p process) error {
	var o options
	flags := flag.NewFlagSet("bailiwick-mcp", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	o.register(flags)
	if err := flags.Parse(p.args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(p.stderr)
			flags.Usage()
			return flag.ErrHelp
		}
		return usererror.OfFlag(err, "bailiwick-mcp --help")
	}
	if flags.NArg() > 0 {
		return api.Errorf(api.CodeInvalid, "unexpected argument %q", flags.Arg(0)).WithHint("see: bailiwick-mcp --help")
	}
	if name := emptyFlag(flags); name != "" {
		return api.Errorf(api.CodeInvalid, "--%s is empty", name).WithHint("give it a value, or leave it out")
	}
	if name := o.httpOnly(); name != "" && o.address == "" {
		return api.Errorf(api.CodeInvalid, "%s requires --http", name).WithHint("leave it out, or add --http HOST:PORT")
	}
	if o.version {
		_, err := fmt.Fprintf(p.stdout, "bailiwick-mcp version %s\n", api.Version())
		return err
	}
	return serve(ctx, p, o)
}

// emptyFlag names a flag that was given without a value, as an unset shell
// variable leaves it: without its token file the caller would be someone else.
func emptyFlag(flags *flag.FlagSet) (name string) {
	flags.Visit(func(f *flag.Flag) {
		if v := f.Value.String(); v == "" || f.Name == "rate" && v == "0" {
			name = f.Name
		}
	})
	return name
}

// remote returns the service on another machine that flags name, or nil.
func (o *options) remote() (*client.Remote, error) {
	switch {
	case o.server == "" && o.serverCA == "":
		return nil, nil //nolint:nilnil // the service of this machine
	case o.server == "":
		return nil, api.Errorf(api.CodeInvalid, "--server-ca requires --server")
	case o.socket != "":
		return nil, api.Errorf(api.CodeInvalid, "--socket and --server: give one")
	case o.tokenFile == "" && o.address == "":
		return nil, api.Errorf(api.CodeInvalid, "--server requires --principal-token-file: there is no account on the other machine").WithHint("create a token: bailiwick token create PRINCIPAL --out FILE")
	}
	r := &client.Remote{URL: o.server}
	if err := client.CheckURL(o.server); err != nil {
		return nil, err
	}
	if o.serverCA == "" {
		return r, nil
	}
	var err error
	r.Roots, err = mcpserve.ReadCertificates(o.serverCA)
	return r, err
}

func serve(ctx context.Context, p process, o options) error {
	remote, err := o.remote()
	if err != nil {
		return err
	}
	conn := client.NewRuntime(client.Config{Socket: o.socket, Dirs: p.place.Dirs, UIDs: p.place.UIDs, Remote: remote})
	if o.address != "" {
		if o.tokenFile != "" {
			return api.Errorf(api.CodeInvalid, "--principal-token-file with --http: over HTTP each client sends its own token").WithHint("leave out --principal-token-file")
		}
		return mcphttp.Serve(ctx, mcphttp.Config{
			Conn: conn, Now: p.now, Logger: p.logger,
			Address: o.address, Acknowledged: p.getenv(mcphttp.AcknowledgementName), Cert: o.cert, Key: o.key, Hosts: o.hosts, Origins: o.origins,
			Issuer: o.issuer, Resource: o.resource, Rate: o.rate,
			Listening: func(url string) { fmt.Fprintf(p.stderr, "bailiwick-mcp: listening at %s\n", url) },
		})
	}
	cfg := mcpserve.Config{Conn: conn, Now: p.now, Logger: p.logger}
	if o.tokenFile != "" {
		var err error
		if cfg.Token, err = mcpserve.ReadToken(o.tokenFile, p.uid); err != nil {
			return err
		}
	}
	s, err := mcpserve.New(cfg)
	if err != nil {
		return err
	}
	return s.Stdio(ctx, p.stdin, p.stdout)
}
