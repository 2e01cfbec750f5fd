// Command bailiwick-web serves the page: to a browser on this machine, or on the address of
// a team to several people. It is a client of the service and holds no power of its own.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/installation"
	"github.com/bailiwick-dev/bailiwick/internal/base/usererror"
	"github.com/bailiwick-dev/bailiwick/internal/front/webpage"
	"github.com/bailiwick-dev/bailiwick/internal/front/websetting"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	usererror.Print(os.Stderr, "bailiwick-web", "text", err, webpage.Visible)
	os.Exit(api.ExitStatus(err))
}

// options are the flags.
type options struct {
	socket, address, sign, format, config string
	steer, version                        bool
}

func (o *options) register(flags *flag.FlagSet) {
	flags.StringVar(&o.socket, "socket", "", "unix `socket` of the service (default: the first that exists)")
	flags.StringVar(&o.address, "addr", webpage.DefaultAddress, "of serve: `HOST:PORT` of this machine; port 0 is a free one")
	flags.StringVar(&o.sign, "sign-addr", "", "of serve: `HOST:PORT` of this machine for the signing page (default: it is not served)")
	flags.StringVar(&o.config, "config", "", "of team: the service's `file` with the section web (default: service.yaml of the installation)")
	flags.StringVar(&o.format, "o", "text", "text, json, jsonl or name: the `form` of the address and the code")
	flags.BoolVar(&o.steer, "steer", false, "of serve: also answer, cancel, pause, resume and retry")
	flags.BoolVar(&o.version, "version", false, "print the version")
}

// run is the program: serve, open or team.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o options
	flags := flag.NewFlagSet("bailiwick-web", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	o.register(flags)
	verb := "serve"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		verb, args = args[0], args[1:]
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(stderr, "Usage: bailiwick-web [serve|open|team] [flags]")
			flags.SetOutput(stderr)
			flags.PrintDefaults()
			return flag.ErrHelp
		}
		return usererror.OfFlag(err, "bailiwick-web --help")
	}
	place := installation.Find(os.Getenv, os.Getuid())
	dirs := place.Dirs
	switch {
	case flags.NArg() > 0:
		return api.Errorf(api.CodeInvalid, "unexpected argument %q", flags.Arg(0)).WithHint("see: bailiwick-web --help")
	case o.version:
		_, err := fmt.Fprintf(stdout, "bailiwick-web version %s\n", api.Version())
		return err
	case verb == "open":
		i, err := webpage.Open(ctx, dirs.Page())
		if err == nil {
			err = o.show(stdout, i)
		}
		return err
	case verb != "serve" && verb != "team":
		return api.Errorf(api.CodeInvalid, "no such verb %q", verb).WithHint("want serve, open or team; see: bailiwick-web --help")
	}
	if err := dirs.Check(); err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	conn := client.New(client.Config{Socket: o.socket, Dirs: dirs, UIDs: place.UIDs})
	defer conn.Close()
	if verb == "team" {
		return o.team(ctx, conn, dirs, logger, stdout)
	}
	return webpage.Serve(ctx, webpage.Config{
		Conn: conn, UID: os.Getuid(), Now: time.Now, Logger: logger,
		Address: o.address, SignAddress: o.sign, Control: dirs.Page(), Steer: o.steer,
		Listening: func(i webpage.Invitation) { _ = o.show(stdout, i) }, // the page is served all the same
	})
}

// maxConfig bounds the service's configuration file, in bytes.
const maxConfig = 1 << 20

// team serves the page for several people, as the service's configuration says.
func (o *options) team(ctx context.Context, conn *client.Conn, dirs api.Dirs, logger *slog.Logger, stdout io.Writer) error {
	path := cmp.Or(o.config, dirs.ServiceConfig())
	f, err := os.Open(path) //nolint:gosec // G304: the administrator names it
	if err != nil {
		return api.Errorf(api.CodeInvalid, "configuration: %w", err).WithHint("write the section web there; see docs/configuration.md")
	}
	b, err := io.ReadAll(io.LimitReader(f, maxConfig))
	var set websetting.Page
	if err = errors.Join(err, f.Close()); err == nil {
		set, err = websetting.ReadFile(path, b)
	}
	if err != nil {
		return err
	}
	return webpage.ServeTeam(ctx, webpage.TeamConfig{Conn: conn, Now: time.Now, Logger: logger, Setting: set, Listening: func(origin string) {
		fmt.Fprintf(stdout, "page  %s\n", origin)
	}})
}

// show prints where the page is and how to sign in.
func (o *options) show(w io.Writer, i webpage.Invitation) error {
	var err error
	switch o.format {
	case "json", "jsonl":
		err = json.NewEncoder(w).Encode(i)
	case "name":
		_, err = fmt.Fprintln(w, i.Code)
	default:
		sign := ""
		if i.Sign != "" {
			sign = "sign  " + i.Sign + "\n"
		}
		_, err = fmt.Fprintf(w, "page  %s\n%scode  %s (valid once, for a minute)\n", i.URL, sign, i.Code)
	}
	return err
}
