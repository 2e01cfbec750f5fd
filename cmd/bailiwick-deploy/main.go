// Command bailiwick-deploy creates keys, signs and publishes the catalog, and signs
// an operator's decisions. It links nothing that can dispatch.
package main

import (
	"context"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/installation"
	"github.com/bailiwick-dev/bailiwick/internal/front/deploycli"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cfg := deploycli.Config{
		Stdin:  os.Stdin,
		Stdout: os.Stdout,
		Stderr: os.Stderr,
		Now:    time.Now,
		Dirs:   installation.Find(os.Getenv, os.Getuid()).Dirs,
		Login:  api.LocalLogin("", os.Getuid()),
		Screen: term.IsTerminal(int(os.Stdout.Fd())), //nolint:gosec // G115: a file descriptor fits
		Width: func() int {
			width, _, err := term.GetSize(int(os.Stdout.Fd())) //nolint:gosec // G115: as above
			if err != nil {
				return 0
			}
			return width
		},
		Env:     os.Environ(),
		Version: api.Version(),
	}
	cfg.Colour = cfg.Screen && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if u, err := user.Current(); err == nil {
		cfg.Login = api.LocalLogin(u.Username, os.Getuid())
	}
	if host, err := os.Hostname(); err == nil {
		cfg.Host = host
	}
	if self, err := os.Executable(); err == nil {
		if self, err = filepath.EvalSymlinks(self); err == nil {
			cfg.Beside = filepath.Dir(self)
		}
	}
	return deploycli.Run(ctx, cfg, os.Args[1:])
}
