// Command bailiwickd is the service: the only owner of the state, and the only
// program that starts workers. It cannot write the catalog.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/daemoncli"
	"github.com/bailiwick-dev/bailiwick/internal/jail"
)

func main() {
	jail.Main() // doctor and the start-up check build a jail to see whether they can
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// Who started the service may be gone when it says that it listens. To be
	// notified of that, unlike ignoring it, is not passed on to children.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bailiwickd:", err)
		os.Exit(1)
	}
	status := daemoncli.Run(ctx, daemoncli.Config{
		Args: os.Args[1:], Stdout: os.Stdout, Stderr: os.Stderr,
		Dirs: api.DirsFrom(os.Getenv, os.Getuid()), Env: os.Environ(), UID: os.Getuid(), Login: login,
		Self: self, Version: api.Version(), Now: time.Now,
	})
	stop()
	os.Exit(status)
}

// login returns the name of an account.
func login(uid uint32) (string, error) {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return "", err
	}
	return u.Username, nil
}
