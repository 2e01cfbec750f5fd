// Command bailiwick-deploy makes deploy keys and signs and publishes the
// catalog. It cannot dispatch: nothing that could is linked into it.
package main

import (
	"context"
	"os"
	"os/signal"
	"os/user"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/bailiwick-dev/bailiwick/internal/deploycli"
)

// version is set by the linker.
var version = "dev" //nolint:gochecknoglobals // the linker can set nothing else

func main() { os.Exit(run()) } //nolint:forbidigo // this is main

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cfg := deploycli.Config{
		Stdout:     os.Stdout,
		Stderr:     os.Stderr,
		Now:        time.Now, //nolint:forbidigo // the clock enters here
		DataHome:   env("XDG_DATA_HOME"),
		ConfigHome: env("XDG_CONFIG_HOME"),
		Home:       env("HOME"),
		Login:      "unknown",
		Colour:     env("NO_COLOR") == "" && env("TERM") != "dumb" && term.IsTerminal(int(os.Stdout.Fd())), //nolint:gosec // G115: a file descriptor fits
		Version:    version,
	}
	if u, err := user.Current(); err == nil {
		cfg.Login = u.Username
		if cfg.Home == "" {
			cfg.Home = u.HomeDir
		}
	}
	if host, err := os.Hostname(); err == nil {
		cfg.Host = host
	}
	return deploycli.Run(ctx, cfg, os.Args[1:])
}

func env(name string) string { return os.Getenv(name) } //nolint:forbidigo // the environment enters here
