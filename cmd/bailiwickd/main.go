// Command bailiwickd is the service: the only program that owns the state and
// starts workers. It cannot write the catalog.
package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/installation"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/front/daemoncli"
	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
)

func main() {
	jail.Main() // for the jails that doctor and the start-up check build
	// What the caller's shell left open is not the service's, nor that of a program
	// that it starts. Older kernels lack the call.
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bailiwickd:", err)
		os.Exit(1)
	}
	place := installation.Find(os.Getenv, os.Getuid())
	status := daemoncli.Run(ctx, daemoncli.Config{
		Output: console.Output{Stdout: os.Stdout, Stderr: os.Stderr, Screen: term.IsTerminal(int(os.Stdout.Fd())), Env: os.Environ(), Now: time.Now},
		Args:   os.Args[1:], Stdin: os.Stdin, Dirs: place.Dirs, UIDs: place.UIDs, UID: os.Getuid(), Login: login,
		Self: self, Version: api.Version(), Supervisor: supervisor(),
	})
	stop()
	os.Exit(status)
}

// supervisor returns the service manager that started this process, by sd_notify(3),
// sd_listen_fds(3) and sd_watchdog_enabled(3).
func supervisor() (s daemoncli.Supervisor) {
	s.Sockets = activation.Files(true)
	if os.Getenv("NOTIFY_SOCKET") != "" {
		s.Notify = func(state string) error { _, err := daemon.SdNotify(false, state); return err }
	}
	s.Watchdog, _ = daemon.SdWatchdogEnabled(false) // an invalid value means no watchdog
	return s
}

// login returns the login name of an account.
func login(uid uint32) (string, error) {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return "", err
	}
	return u.Username, nil
}
