package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
)

const (
	// MaxValidity is how long a manifest may be valid. Services sign for less.
	MaxValidity = 15 * time.Minute
	// keepStarted is how long a started attempt is remembered; more than MaxValidity.
	keepStarted = time.Hour
	pruneEvery  = time.Minute
	exitTime    = 2 * time.Second // of a worker that is about to exit
)

// started is the attempts that were started. Each has a file of the launcher alone: a line with
// the digest of its manifest, a line with the identity of its worker's process, and a line once
// that has its secrets. Its worker gets another file, which it writes to before it has an
// effect. So an attempt whose worker never proceeded may start again, wherever launcher, service
// or worker were killed, and any other may not; and which process the worker is, no worker can
// change.
type started struct {
	dir  string
	now  func() time.Time
	sync func(dir string) error // durable.Sync

	mu     sync.Mutex
	pruned time.Time // guarded by mu
}

// claim is an attempt that is being started. Its file is locked until it is closed.
type claim struct {
	file  *os.File
	began *os.File // for the worker
	again bool     // it was claimed before, and its worker did not begin
	// durable returns once the claim survives a loss of power. The worker gets no secrets before.
	durable func() error
}

// ErrNoWorker says that the worker of an attempt does not run: the directory is final.
var ErrNoWorker = errors.New("the attempt has no worker")

const (
	ready = "ready\n"
	began = ".began" // the end of the names of the workers' files
)

func (s *started) path(who Running) string {
	return filepath.Join(s.dir, string(who.Dispatch)+"-"+strconv.Itoa(who.Attempt))
}

// claim records that the attempt of a manifest is about to start.
func (s *started) claim(ctx context.Context, m *record.Manifest, manifest api.Digest) (c *claim, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.prune(); err != nil {
		return nil, err
	}
	c = &claim{durable: func() error { return nil }}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	path := s.path(Running{m.ID, m.Attempt})
	if c.file, err = durable.OpenLock(path); err == nil {
		err = await(ctx, c.file, durable.TryLock)
	}
	if err == nil {
		c.began, err = os.OpenFile(path+began, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600) //nolint:gosec // G304: the id is parsed
	}
	if err == nil {
		err = c.enter(m, manifest)
	}
	if err != nil {
		return c, fmt.Errorf("started attempts: %w", err)
	}
	c.durable = sync.OnceValue(func() error { return errors.Join(c.file.Sync(), s.sync(s.dir)) })
	failpoint.Hit(failpoint.LaunchClaimed, string(m.ID))
	return c, nil
}

// await locks a file that others hold while they start its attempt.
func await(ctx context.Context, f *os.File, try func(*os.File) error) error {
	ctx, stop := context.WithTimeout(ctx, frameTime)
	defer stop()
	return durable.PollLock(ctx, func() error { return try(f) })
}

func (c *claim) enter(m *record.Manifest, manifest api.Digest) error {
	was, running, err := read(c.file)
	if err != nil {
		return err
	}
	st, err := c.began.Stat()
	switch {
	case err != nil:
		return err
	case was == "": // new, or of a launcher that was killed before it started a worker
	case was != string(manifest):
		return api.Errorf(api.CodeIntegrity, "dispatch %s attempt %d was started with manifest %.16s, so not with %s", m.ID, m.Attempt, was, manifest.Short())
	case st.Size() > 0:
		return api.Errorf(api.CodeIntegrity, "dispatch %s attempt %d was started before, and its worker has begun: an attempt runs once", m.ID, m.Attempt)
	default:
		c.again = true
	}
	if running != nil {
		defer running.handle.Close() //nolint:errcheck // only a handle
		if exited, err := account.AwaitExit(running.handle, exitTime); err != nil || !exited {
			return errors.Join(err, api.Errorf(api.CodeConflict, "dispatch %s attempt %d: its worker runs", m.ID, m.Attempt))
		}
	}
	line := manifest + "\n"
	if err := c.file.Truncate(0); err != nil {
		return err
	}
	if _, err := c.file.WriteAt([]byte(line), 0); err != nil {
		return err
	}
	_, err = c.file.Seek(int64(len(line)), io.SeekStart)
	return err
}

// worker is the process of a running worker.
type worker struct {
	account.Identity

	handle *os.File
}

// read reads the file of an attempt: its manifest, and its worker, if that runs. One that has not
// got its secrets, as its launcher was killed, is ended: it has had no effect.
func read(f *os.File) (manifest string, w *worker, err error) {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<10))
	line, rest, complete := bytes.Cut(b, []byte("\n"))
	if err != nil || !complete {
		return "", nil, err
	}
	doc, last, _ := bytes.Cut(rest, []byte("\n"))
	w = &worker{}
	if canon.DecodeExact(doc, &w.Identity) != nil {
		return string(line), nil, nil //nolint:nilerr // none, or the machine lost its power
	}
	w.handle, err = w.Open()
	if errors.Is(err, account.ErrExited) {
		return string(line), nil, nil
	}
	if err != nil || string(last) == ready {
		return string(line), w, err
	}
	err = account.KillSession(w.handle, w.PID)
	exited, waitErr := account.AwaitExit(w.handle, exitTime)
	if err = errors.Join(err, waitErr, w.handle.Close()); err == nil && !exited {
		err = fmt.Errorf("process %d: runs after SIGKILL; look for tasks in state D", w.PID)
	}
	return string(line), nil, err
}

// of records the worker of the attempt.
func (c *claim) of(pid int) error {
	process, err := account.Identify(pid)
	if err != nil {
		return err
	}
	doc, err := canon.Marshal(process)
	if err == nil {
		_, err = c.file.Write(append(doc, '\n'))
	}
	return err
}

// ready records that the worker has its secrets.
func (c *claim) ready() error {
	_, err := c.file.WriteString(ready)
	return err
}

// Close ends the start.
func (c *claim) Close() error {
	errs := []error{c.durable()}
	for _, f := range []*os.File{c.file, c.began} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// find returns the worker of an attempt; ErrNoWorker where none runs. It waits for the end of a
// start.
func (s *started) find(ctx context.Context, who Running) (*worker, error) {
	f, err := os.Open(s.path(who))
	if errors.Is(err, os.ErrNotExist) {
		return nil, ErrNoWorker
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	if err := await(ctx, f, durable.TryRLock); err != nil {
		return nil, err
	}
	_, w, err := read(f)
	if err == nil && w == nil {
		err = ErrNoWorker
	}
	return w, err
}

// prune forgets attempts whose manifests have expired and whose workers do not run. The caller
// holds mu.
func (s *started) prune() error {
	now := s.now()
	if now.Sub(s.pruned).Abs() < pruneEvery {
		return nil
	}
	s.pruned = now
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	list, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		if strings.HasSuffix(e.Name(), began) {
			continue
		}
		st, err := e.Info()
		if err == nil && now.Sub(st.ModTime()) > keepStarted {
			err = forget(filepath.Join(s.dir, e.Name()))
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func forget(path string) error {
	f, err := os.Open(path) //nolint:gosec // G304: our own directory
	if err != nil {
		return err
	}
	_, w, err := read(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if w != nil {
		return w.handle.Close()
	}
	if err := os.Remove(path + began); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Remove(path)
}
