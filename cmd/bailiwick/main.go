// Command bailiwick is the front door: it has every verb and no privilege. It
// calls the service, and executes the program that may do the rest.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/installation"
	"github.com/bailiwick-dev/bailiwick/internal/front/cli"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bailiwick:", err)
		os.Exit(1)
	}
	place := installation.Find(os.Getenv, os.Getuid())
	status := cli.Run(ctx, cli.Config{
		Output: console.Output{
			Stdout: os.Stdout, Stderr: os.Stderr, Env: os.Environ(), Now: time.Now,
			Screen: term.IsTerminal(int(os.Stdout.Fd())), Terminal: term.IsTerminal(int(os.Stderr.Fd())), Interactive: term.IsTerminal(int(os.Stdin.Fd())),
			Width:  func() int { width, _ := size(); return width },
			Height: func() int { _, height := size(); return height },
		},
		Args: os.Args[1:], Stdin: os.Stdin, Dirs: place.Dirs, UIDs: place.UIDs,
		Beside: filepath.Dir(self), Version: api.Version(),
	})
	stop()
	os.Exit(status)
}

// size is the size of the terminal that standard error is, or 0.
func size() (width, height int) {
	width, height, err := term.GetSize(int(os.Stderr.Fd()))
	if err != nil {
		return 0, 0
	}
	return width, height
}
