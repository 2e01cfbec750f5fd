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
	http      httpOptions
}

// register declares the flags.
func (o *options) register(flags *flag.FlagSet) {
	flags.StringVar(&o.socket, "socket", "", "unix `socket` of the service (default: the first that exists)")
	flags.StringVar(&o.tokenFile, "principal-token-file", "", "`file` (mode 0600) with the token that says who calls; on stdio only (default: the account that runs this program)")
	flags.BoolVar(&o.version, "version", false, "print the version")
	o.http.register(flags)
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
	if name := hollow(flags); name != "" {
		return api.Errorf(api.CodeInvalid, "--%s is given and empty: what it asks for would not hold", name).WithHint("say what it is, or leave it out")
	}
	if name := o.http.stray(); name != "" {
		return api.Errorf(api.CodeInvalid, "%s means nothing without --http", name).WithHint("leave it out, or add --http ADDRESS:PORT")
	}
	if o.version {
		_, err := fmt.Fprintf(p.Stdout, "bailiwick-mcp %s\n", api.Version())
		return err
	}
	return run(ctx, p, o)
}

// hollow names a flag that was given without a value, as a variable that is not
// set leaves it: without a token file the caller would be somebody else.
func hollow(flags *flag.FlagSet) (name string) {
	flags.Visit(func(f *flag.Flag) {
		if v := f.Value.String(); v == "" || f.Name == "rate" && v == "0" {
			name = f.Name
		}
	})
	return name
}

func run(ctx context.Context, p Process, o options) error {
	cfg := Config{
		Conn: client.New(client.Config{Socket: o.socket, Dirs: p.Dirs, UIDs: []int{p.UID}}),
		Now:  p.Now, Logger: p.Logger,
	}
	if o.tokenFile != "" {
		if o.http.address != "" {
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
	if o.http.address != "" {
		return s.serveHTTP(ctx, p, o.http)
	}
	return s.Stdio(ctx, p.Stdin, p.Stdout)
}
