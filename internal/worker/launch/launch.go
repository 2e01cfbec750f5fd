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
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
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
		started: &started{dir: filepath.Join(cfg.Dirs.LauncherState(), "started"), now: cfg.Now, sync: durable.Sync},
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
	claim, err := l.started.claim(ctx, m, v.digest)
	if err != nil {
		return nil, err
	}
	defer claim.Close() //nolint:errcheck // the worker has its own copy
	values := a.Secrets
	if l.sys != nil {
		if v.rule != nil {
			if err := claim.durable(); err != nil { // else a loss of power leaves an approval that was used for no attempt
				return nil, err
			}
			if err := l.sys.operators.use(m, claim.again); err != nil {
				return nil, err
			}
		}
		if values, err = record.ReadSecrets(ctx, l.sys.resolver(a.Keys.First().ID, a.Sealed), m.Secrets); err != nil {
			return nil, api.Errorf(api.CodeInvalid, "%w", err)
		}
	}
	secrets, err := account.SecretsPipe(values)
	if err != nil {
		return nil, err
	}
	defer secrets.Close() //nolint:errcheck // likewise
	dir := l.cfg.Dirs.Dispatch(m.ID, m.Attempt)
	p := account.Program{
		Path: l.cfg.Worker, Args: []string{"--attempt", dir, "--manifest", string(v.digest)}, Env: l.cfg.Env,
		File: []*os.File{nil, a.Log, a.Log, a.Control, secrets.Reader, claim.began},
	}
	group := &account.Group{}
	if l.sys != nil {
		b, err := l.sys.blocks.take(Running{m.ID, m.Attempt}, l.sys.limits(m, a.Dir))
		if err != nil {
			return nil, err
		}
		defer b.Close() //nolint:errcheck // its group tells from now on
		mounts, err := l.sys.mounts(a, &v, dir, b)
		if err != nil {
			return nil, errors.Join(err, mounts.Close())
		}
		defer mounts.Close() //nolint:errcheck // only opened to be mounted
		p.Block, p.Group, p.Mounts, group = &b.Block, b.group, mounts, b.group
		p.Args = append(p.Args, "--scratch", mounttree.Scratch)
	}
	go func() { _ = claim.durable() }() // until Close; nothing else is written to the disk meanwhile
	started, err := account.Start(p)
	if err != nil {
		return nil, err
	}
	process := processOf(started, group.Lacks)
	err = errors.Join(claim.of(started.PID), claim.durable())
	failpoint.Hit(failpoint.LaunchStarted, string(m.ID))
	if err == nil { // from now on it is found: before, a kill of this process ends it
		err = secrets.Fill()
	}
	if err == nil {
		err = claim.ready()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("dispatch %s attempt %d: record its worker: %w", m.ID, m.Attempt, err), process.Kill(), process.Wait())
	}
	failpoint.Hit(failpoint.LaunchReady, string(m.ID))
	return process, nil
}

// Find returns the worker of an attempt that an earlier launcher may have started; ErrNoWorker
// where none runs, and then nothing that it started does. What the worker writes has no
// influence.
func (l *Launcher) Find(ctx context.Context, who Running) (*Process, error) {
	w, err := l.started.find(ctx, who)
	if errors.Is(err, ErrNoWorker) && l.sys != nil {
		err = errors.Join(err, l.sys.blocks.end(who))
	}
	if err != nil {
		return nil, err
	}
	return &Process{w.PID, w.handle, func() error {
		_, err := account.AwaitExit(w.handle, -1)
		return errors.Join(err, w.handle.Close())
	}, func() error { return account.KillSession(w.handle, w.PID) }, nil}, nil
}

// Process is a program that was started.
type Process struct {
	PID    int
	Handle *os.File     // a pidfd; Wait closes it
	Wait   func() error // waits for its exit, once, and ends what it left
	Kill   func() error // kills it with what it started
	Lacks  []string     // limits that nothing holds on this machine, each with its reason
}

func processOf(p *account.Process, lacks []string) *Process {
	return &Process{p.PID, p.Handle, func() error {
		_, err := p.Wait()
		return errors.Join(err, p.Handle.Close())
	}, func() error { return account.KillSession(p.Handle, p.PID) }, lacks}
}
