package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
)

// Config is what a Launcher needs.
type Config struct {
	Dirs   api.Dirs // of the service
	State  string   // directory of what was started
	Worker string   // path of bailiwick-worker
	Env    []string // of what it starts
	UID    int      // of the service's account
	Now    func() time.Time
	Logger *slog.Logger
}

func (c *Config) validate() error {
	switch {
	case !filepath.IsAbs(c.State):
		return fmt.Errorf("launch: Config.State %q is no absolute path", c.State)
	case !filepath.IsAbs(c.Worker):
		return fmt.Errorf("launch: Config.Worker %q is no absolute path", c.Worker)
	case c.Now == nil || c.Logger == nil:
		return errors.New("launch: Config.Now and Config.Logger are required")
	}
	return c.Dirs.Check()
}

// Launcher starts signed attempts. It is safe for concurrent use.
type Launcher struct {
	cfg       Config
	revisions *revisions
	started   *started
}

// New returns a launcher. Nothing is read before the first request.
func New(cfg Config) (*Launcher, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Launcher{
		cfg: cfg, revisions: &revisions{dir: cfg.Dirs.Catalog(), root: cfg.Dirs.TrustRoot()},
		started: &started{dir: filepath.Join(cfg.State, "started"), now: cfg.Now},
	}, nil
}

// Worker starts the worker of an attempt, which outlives ctx and this process.
func (l *Launcher) Worker(ctx context.Context, a *Attempt) (*Process, error) {
	if err := a.check(uint32(l.cfg.UID)); err != nil { //nolint:gosec // G115: a uid
		return nil, err
	}
	v, err := l.verify(ctx, a)
	if err != nil {
		return nil, err
	}
	claim, err := l.started.claim(ctx, &v.manifest, v.digest)
	if err != nil {
		return nil, err
	}
	defer claim.Close() //nolint:errcheck // the worker has its own copy
	secrets, err := handOver(a.Secrets)
	if err != nil {
		return nil, err
	}
	defer secrets.Close() //nolint:errcheck // likewise
	dir := l.cfg.Dirs.Dispatch(v.manifest.ID, v.manifest.Attempt)
	p, err := l.run(l.cfg.Worker, []string{"--attempt", dir, "--manifest", string(v.digest)}, nil, a.Log, a.Log, a.Control, a.Lock, secrets, claim)
	if err != nil {
		return nil, err
	}
	failpoint.Hit(failpoint.LaunchStarted, string(v.manifest.ID))
	return p, nil
}

// run starts a program with descriptors from 0 on.
func (l *Launcher) run(path string, args []string, files ...*os.File) (*Process, error) {
	p, err := account.Start(account.Program{Path: path, Args: args, Env: l.cfg.Env, File: files})
	if err != nil {
		return nil, err
	}
	return &Process{p.PID, func() error {
		_, err := p.Wait()
		return errors.Join(err, p.Handle.Close())
	}, p.Kill}, nil
}

// Process is a program that was started.
type Process struct {
	PID  int
	Wait func() error // waits for its exit, once
	Kill func() error
}
