// Command bailiwick-launch starts the workers of signed attempts under accounts of their own.
// systemd starts it as root when the service asks, with the socket to serve as descriptor 3;
// it ends when it has had nothing to do for a while.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/base/unixframe"
	"github.com/bailiwick-dev/bailiwick/internal/base/usererror"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
	"github.com/bailiwick-dev/bailiwick/internal/worker/launch"
	"github.com/bailiwick-dev/bailiwick/internal/worker/launchsetting"
)

const (
	idleTime    = time.Minute
	memoryLimit = 10 << 20 // what the collector of Go aims at
	login       = "bailiwick"
)

func main() {
	if err := run(); err != nil {
		usererror.Print(os.Stderr, "bailiwick-launch", "text", err, func(s string) string { return s })
		os.Exit(1)
	}
}

func run() error {
	flags := flag.NewFlagSet("bailiwick-launch", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	version := flags.Bool("version", false, "print the version")
	if err := flags.Parse(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		return usererror.OfFlag(err, "bailiwickd --help; the service has this program started")
	}
	if *version {
		_, err := fmt.Printf("bailiwick-launch version %s\n", api.Version())
		return err
	}
	if flags.NArg() > 0 || os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) || os.Getenv("LISTEN_FDS") != "1" {
		return errors.New("systemd starts this program: systemctl start bailiwick-launch.socket")
	}
	debug.SetMemoryLimit(memoryLimit)
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil { // of what it starts too: secrets are in memory
		return err
	}
	socket, err := unixframe.Inherited()
	if err != nil {
		return err
	}
	cfg, err := configure()
	if err != nil {
		return err
	}
	l, err := launch.New(cfg)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	err = launch.NewServer(l, idleTime).Serve(ctx, socket)
	_ = cfg.System.Groups.Remove() // it stays while an attempt runs, and the next launcher finds that
	return err
}

// configure reads what belongs to root. The service's environment is not here.
func configure() (cfg launch.Config, err error) {
	dirs := api.SystemDirs(func(name string) string { return map[string]string{"HOME": "/"}[name] })
	settings, err := launchsetting.Read(dirs.LaunchConfig())
	if err == nil {
		err = seal.EnsureIdentity(filepath.Join(dirs.LauncherState(), launch.Identity), dirs.SecretsRecipient())
	}
	if err != nil {
		return cfg, err
	}
	service, err := user.Lookup(login)
	if err != nil {
		return cfg, err
	}
	uid, err := strconv.Atoi(service.Uid)
	if err != nil || uid == 0 {
		return cfg, fmt.Errorf("account %s has uid %q", login, service.Uid)
	}
	groups, err := account.OwnGroups()
	if err != nil {
		return cfg, err
	}
	self, err := os.Executable()
	if err != nil {
		return cfg, err
	}
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "LANG=C.UTF-8", api.ModeVariable + "=" + api.ModeSystem}
	for _, name := range []string{"SSL_CERT_FILE", "SSL_CERT_DIR"} {
		if v := os.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	if dir := failpoint.Dir(); dir != "" {
		env = append(env, "XDG_STATE_HOME="+filepath.Dir(dir))
	}
	return launch.Config{
		Dirs: dirs, Worker: filepath.Join(filepath.Dir(self), "bailiwick-worker"), Fetcher: filepath.Join(filepath.Dir(self), "bailiwick-fetch"), ToolHost: filepath.Join(filepath.Dir(self), "bailiwick-toolhost"), Env: env, UID: uid,
		System: &launch.System{Settings: settings, Groups: groups, Credentials: os.Getenv("CREDENTIALS_DIRECTORY")},
		Now:    time.Now, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}, nil
}
