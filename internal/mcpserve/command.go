package mcpserve

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

// Process is what the program gives to Run of what it runs in.
type Process struct {
	Args   []string // without the program's name
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	Getenv func(string) string
	Dirs   api.Dirs
	UID    int
	Now    func() time.Time
	Logger *slog.Logger // to Stderr
}

// options are the flags.
type options struct {
	socket    string
	tokenFile string
	version   bool
	http      HTTPConfig
}

// register declares the flags.
func (o *options) register(flags *flag.FlagSet) {
	flags.StringVar(&o.socket, "socket", "", "unix `socket` of the service (default: the first that exists)")
	flags.StringVar(&o.tokenFile, "principal-token-file", "", "`file` (mode 0600) with the token that says who calls; on stdio only (default: the account that runs this program)")
	flags.BoolVar(&o.version, "version", false, "print the version")
	h := &o.http
	flags.StringVar(&h.Address, "http", "", "serve streamable HTTP at this `address:port` in the place of stdio")
	flags.StringVar(&h.Cert, "tls-cert", "", "`file` with the certificate, for --http")
	flags.StringVar(&h.Key, "tls-key", "", "`file` with its key, for --http")
	flags.Func("allow-host", "`name` that clients may use in the Host header, beside that of the address; may be repeated", appendTo(&h.Hosts))
	flags.Func("allow-origin", "`origin` of a page whose requests are taken; may be repeated", appendTo(&h.Origins))
	flags.StringVar(&h.Issuer, "oauth-issuer", "", "`URL` of an issuer whose tokens are good too")
	flags.StringVar(&h.Resource, "oauth-resource", "", "`URL` of this server, as the issuer's tokens name it")
	flags.StringVar(&h.Scope, "oauth-scope", "", "`scope` that the issuer's tokens must have")
	flags.IntVar(&h.Rate, "rate", 0, "requests a second of one principal, for --http (default 50)")
}

func appendTo(list *[]string) func(string) error {
	return func(s string) error {
		*list = append(*list, s)
		return nil
	}
}

// Run is the program: it serves stdio, or HTTP where that is asked for.
func Run(ctx context.Context, p Process) error {
	var o options
	flags := flag.NewFlagSet("bailiwick-mcp", flag.ContinueOnError)
	flags.SetOutput(p.Stderr)
	o.register(flags)
	if err := flags.Parse(p.Args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return flag.ErrHelp
		}
		return api.Errorf(api.CodeInvalid, "%w", err)
	}
	if flags.NArg() > 0 {
		return api.Errorf(api.CodeInvalid, "unexpected argument %q", flags.Arg(0)).WithHint("see: bailiwick-mcp --help")
	}
	if o.version {
		_, err := fmt.Fprintf(p.Stdout, "bailiwick-mcp %s\n", api.Version())
		return err
	}
	return run(ctx, p, o)
}

func run(ctx context.Context, p Process, o options) error {
	cfg := Config{
		Conn: client.New(client.Config{Socket: o.socket, Dirs: p.Dirs, UIDs: []int{p.UID}}),
		Now:  p.Now, Logger: p.Logger,
	}
	if o.tokenFile != "" {
		if o.http.Address != "" {
			return api.Errorf(api.CodeInvalid, "--principal-token-file with --http: on HTTP each client brings its own token").WithHint("leave out --principal-token-file")
		}
		var err error
		if cfg.Token, err = ReadToken(o.tokenFile, p.UID); err != nil {
			return err
		}
	}
	s, err := New(cfg)
	if err != nil {
		return err
	}
	if o.http.Address != "" {
		o.http.Acknowledged = p.Getenv(acknowledgementName)
		o.http.Listening = func(url string) { fmt.Fprintf(p.Stderr, "bailiwick-mcp: clients can come to %s\n", url) }
		return s.HTTP(ctx, o.http)
	}
	return s.Stdio(ctx, p.Stdin, p.Stdout)
}
