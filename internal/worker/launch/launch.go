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
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
	"github.com/bailiwick-dev/bailiwick/internal/worker/mounttree"
)

// Config is what a Launcher needs.
type Config struct {
	Dirs     api.Dirs // of the service
	Worker   string   // path of bailiwick-worker
	Fetcher  string   // path of bailiwick-fetch
	ToolHost string   // path of bailiwick-toolhost; in mode system only
	Env      []string // of what it starts
	UID      int      // of the service's account
	System   *System  // in mode system
	Now      func() time.Time
	Logger   *slog.Logger
}

func (c *Config) validate() error {
	switch {
	case !filepath.IsAbs(c.Worker), !filepath.IsAbs(c.Fetcher):
		return fmt.Errorf("launch: Config.Worker %q and Config.Fetcher %q: want absolute paths", c.Worker, c.Fetcher)
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
	sys       *system // nil in mode same-user
}

// New returns a launcher. Nothing is read before the first request.
func New(cfg Config) (*Launcher, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	l := &Launcher{
		cfg: cfg, revisions: &revisions{dirs: cfg.Dirs},
		started: &started{dir: filepath.Join(cfg.Dirs.LauncherState(), "started"), now: cfg.Now},
	}
	if cfg.System != nil {
		l.sys = newSystem(&l.cfg)
	}
	return l, nil
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
	m := &v.manifest
	claim, again, err := l.started.claim(ctx, m, v.digest)
	if err != nil {
		return nil, err
	}
	defer claim.Close() //nolint:errcheck // the worker has its own copy
	values := a.Secrets
	if l.sys != nil {
		if v.rule != nil {
			if err := l.sys.operators.use(m, again); err != nil {
				return nil, err
			}
		}
		if values, err = record.ReadSecrets(ctx, l.sys.resolver(a.Keys.First().ID, a.Sealed), m.Secrets); err != nil {
			return nil, api.Errorf(api.CodeInvalid, "%w", err)
		}
	}
	secrets, err := handOver(values)
	if err != nil {
		return nil, err
	}
	defer secrets.Close() //nolint:errcheck // likewise
	dir := l.cfg.Dirs.Dispatch(m.ID, m.Attempt)
	p := account.Program{
		Path: l.cfg.Worker, Args: []string{"--attempt", dir, "--manifest", string(v.digest)}, Env: l.cfg.Env,
		File: []*os.File{nil, a.Log, a.Log, a.Control, a.Lock, secrets, claim},
	}
	var lacks []string
	if l.sys != nil {
		b, err := l.sys.blocks.take(Running{m.ID, m.Attempt}, l.sys.limits(m))
		if err != nil {
			return nil, err
		}
		defer b.lock.Close() //nolint:errcheck // likewise
		mounts, err := l.sys.mounts(a, &v, dir, b)
		defer mounts.Close() //nolint:errcheck // only opened to be mounted
		if err != nil {
			return nil, err
		}
		p.Block, p.Group, p.Mounts, p.File, lacks = &b.Block, b.group, mounts, append(p.File, b.lock), b.group.Lacks
		p.Args = append(p.Args, "--scratch", mounttree.Scratch)
	}
	started, err := account.Start(p)
	if err != nil {
		return nil, err
	}
	failpoint.Hit(failpoint.LaunchStarted, string(m.ID))
	return processOf(started, lacks), nil
}

// Process is a program that was started.
type Process struct {
	PID    int
	Handle *os.File     // a pidfd; Wait closes it
	Wait   func() error // waits for its exit, once
	Kill   func() error
	Lacks  []string // limits that nothing holds on this machine, each with its reason
}

func processOf(p *account.Process, lacks []string) *Process {
	return &Process{p.PID, p.Handle, func() error {
		_, err := p.Wait()
		return errors.Join(err, p.Handle.Close())
	}, p.Kill, lacks}
}
