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
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

const (
	// MaxValidity is how long a manifest may be valid. Services sign for less.
	MaxValidity = 15 * time.Minute
	// keepStarted is how long a started attempt is remembered; more than MaxValidity.
	keepStarted = time.Hour
	pruneEvery  = time.Minute
	exitTime    = 2 * time.Second // for a worker that exits to release its locks
)

// started is the attempts that were started: a file for each, with the digest of its
// manifest. Its worker holds the file's lock as long as it lives, and writes to it
// before it has an effect. So an attempt whose worker never proceeded may start again,
// wherever launcher, service or worker were killed; any other may not.
type started struct {
	dir string
	now func() time.Time

	mu     sync.Mutex
	pruned time.Time // guarded by mu
}

// claim durably records that the attempt of a manifest is about to start. The file is locked,
// and each copy of it keeps it so. again tells that it was claimed before, and its worker did
// not begin.
func (s *started) claim(ctx context.Context, m *record.Manifest, manifest api.Digest) (f *os.File, again bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.prune(); err != nil {
		return nil, false, err
	}
	f, err = durable.OpenLock(filepath.Join(s.dir, string(m.ID)+"-"+strconv.Itoa(m.Attempt)))
	if err != nil {
		return nil, false, fmt.Errorf("started attempts: %w", err)
	}
	ctx, stop := context.WithTimeout(ctx, exitTime)
	defer stop()
	err = durable.PollLock(ctx, func() error { return durable.TryLock(f) })
	if errors.Is(err, durable.ErrLocked) {
		err = api.Errorf(api.CodeConflict, "dispatch %s attempt %d: its worker runs", m.ID, m.Attempt)
	}
	if err == nil {
		again, err = s.enter(f, m, manifest)
	}
	if err != nil {
		return nil, false, errors.Join(err, f.Close())
	}
	failpoint.Hit(failpoint.LaunchClaimed, string(m.ID))
	return f, again, nil
}

func (s *started) enter(f *os.File, m *record.Manifest, manifest api.Digest) (again bool, err error) {
	b, err := io.ReadAll(io.LimitReader(f, 1<<10))
	if err != nil {
		return false, err
	}
	line := []byte(manifest + "\n")
	was, rest, complete := bytes.Cut(b, []byte("\n"))
	switch {
	case !complete: // new, or of a launcher that was killed before it started a worker
	case string(was) != string(manifest):
		return false, api.Errorf(api.CodeIntegrity, "dispatch %s attempt %d was started with manifest %.16s, so not with %s", m.ID, m.Attempt, was, manifest.Short())
	case len(rest) > 0:
		return false, api.Errorf(api.CodeIntegrity, "dispatch %s attempt %d was started before, and its worker has begun: an attempt runs once", m.ID, m.Attempt)
	default:
		return true, nil
	}
	if err := f.Truncate(0); err != nil {
		return false, err
	}
	if _, err := f.WriteAt(line, 0); err != nil {
		return false, err
	}
	return false, errors.Join(f.Sync(), durable.Sync(s.dir))
}

// prune forgets attempts whose manifests have expired. The caller holds mu.
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
		st, err := e.Info()
		if err == nil && now.Sub(st.ModTime()) > keepStarted {
			err = os.Remove(filepath.Join(s.dir, e.Name()))
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
