package retention

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/background"
)

const (
	// quick is how long a measurement may take while a caller waits.
	quick = 250 * time.Millisecond
	// stale is the age of a slow measurement at which a new one starts in the
	// background.
	stale = time.Minute
)

// gauge caches the last measurement of the disk.
type gauge struct {
	wanted background.Signal // sent when a background measurement is requested

	mu   sync.Mutex
	last *api.DiskUse  // guarded by mu
	took time.Duration // duration of that measurement; guarded by mu
}

// DiskUse returns the disk usage: measured now if that is quick, else as last
// measured. It does not block, and returns nil during a slow first measurement.
func (gc *Collector) DiskUse(ctx context.Context) (*api.DiskUse, error) {
	gc.mu.Lock()
	last, took := gc.last, gc.took
	gc.mu.Unlock()
	if took <= quick {
		short, cancel := context.WithTimeout(ctx, quick)
		defer cancel()
		now, err := gc.measure(short)
		if err == nil || short.Err() == nil || ctx.Err() != nil {
			return now, err
		}
	}
	if last == nil || gc.cfg.Now().Sub(last.MeasuredAt) > stale {
		gc.wanted.Send()
	}
	return last, nil
}

// measureWanted measures the disk when DiskUse did not wait for it.
func (gc *Collector) measureWanted(ctx context.Context) {
	background.Loop{First: background.Never, Wake: gc.wanted.Sent, Step: func(ctx context.Context) time.Duration {
		_, _ = gc.measure(ctx) // DiskUse returns the error
		return background.Never
	}}.Run(ctx)
}

// measure measures the disk. After an interrupted one DiskUse no longer waits.
func (gc *Collector) measure(ctx context.Context) (*api.DiskUse, error) {
	begin := gc.cfg.Now()
	use, err := gc.tally(ctx)
	gc.mu.Lock()
	defer gc.mu.Unlock()
	gc.took = gc.cfg.Now().Sub(begin)
	if err != nil {
		if ctx.Err() != nil {
			gc.took = max(gc.took, quick+1)
		}
		return nil, err
	}
	use.MeasuredAt = gc.cfg.Now().UTC()
	gc.last = use
	return use, nil
}

func (gc *Collector) tally(ctx context.Context) (*api.DiskUse, error) {
	if err := gc.enter(ctx); err != nil {
		return nil, err
	}
	defer gc.leave()
	v, err := gc.survey(ctx)
	if err != nil {
		return nil, err
	}
	t := v.refCounts.totals()
	use := &api.DiskUse{Content: t.content, Evidence: t.evidence, Unreferenced: t.loose, Rules: append([]string{}, gc.cfg.Rules.Strings()...)}
	if use.Database, err = bytesBelow(ctx, gc.cfg.Database); err != nil {
		return nil, err
	}
	if use.Attempts, err = bytesBelow(ctx, gc.cfg.Attempts); err != nil {
		return nil, err
	}
	if use.Checkouts, err = gc.checkoutBytes(); err != nil {
		return nil, err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(gc.cfg.Database, &st); err != nil {
		return nil, err
	}
	use.Free = int64(st.Bavail) * st.Bsize //nolint:gosec,unconvert // G115: fits; the types differ between systems
	return use, nil
}

// bytesBelow returns the size of the files below dir, except those that vanish
// meanwhile or cannot be read.
func bytesBelow(ctx context.Context, dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil || !e.Type().IsRegular() {
			return nil //nolint:nilerr // as documented
		}
		info, err := e.Info()
		if err == nil {
			n += info.Size()
		}
		return nil //nolint:nilerr // as documented
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return n, err
}
