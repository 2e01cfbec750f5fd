package retain

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
)

const (
	// quick is what measuring may take while somebody waits for it.
	quick = 250 * time.Millisecond
	// stale is how old a measurement may be that is shown, where measuring
	// takes longer than that, before a new one is begun in the background.
	stale = time.Minute
)

// gauge keeps the last measurement.
type gauge struct {
	wanted chan struct{} // has one when a measurement in the background is wanted

	mu   sync.Mutex
	last *api.DiskUse  // guarded by mu
	took time.Duration // to measure that; guarded by mu
}

// Use returns what the disk holds: measured now where that is quick, else as
// it was measured last. It never keeps its caller waiting, and returns nil
// while a first measurement of much goes on.
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
		select {
		case gc.wanted <- struct{}{}:
		default:
		}
	}
	return last, nil
}

// measure takes a new measurement. One that did not come to its end tells the
// next caller of Use not to wait for one.
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
	v, err := gc.look(ctx)
	if err != nil {
		return nil, err
	}
	t := v.heap.totals()
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
	use.Free = int64(st.Bavail) * st.Bsize //nolint:gosec,unconvert // G115: what a file system can hold; the types differ between systems
	return use, nil
}

// bytesBelow adds up the files of a folder. What goes away meanwhile, or
// cannot be read, does not count.
func bytesBelow(ctx context.Context, dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil || !e.Type().IsRegular() {
			return nil //nolint:nilerr // see above
		}
		info, err := e.Info()
		if err == nil {
			n += info.Size()
		}
		return nil //nolint:nilerr // see above
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return n, err
}
