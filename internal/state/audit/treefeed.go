package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/background"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
)

// feeder keeps a tree in one goroutine, which owns it: it follows the table, writes the
// tiles, signs checkpoints and watches the files.
type feeder struct {
	tree    *Tree
	follow  *follower // has verified every entry that is signed from now on
	ticker  *time.Ticker
	due     bool   // it is time to watch
	watched uint64 // the next bundle that watch compares
}

// run feeds until ctx is done. After a failure it inspects the tree as OpenTree does, and
// continues.
func (f *feeder) run(ctx context.Context, e *edge) {
	defer close(f.tree.done)
	defer f.ticker.Stop()
	for ctx.Err() == nil {
		err := f.serve(ctx, e)
		for err != nil && ctx.Err() == nil {
			if !errors.Is(err, errRebuild) {
				f.tree.fail(ctx, err)
				f.pause(ctx, err)
			}
			e, err = f.tree.inspect(ctx)
		}
	}
}

// pause waits before a retry; after a permanent error, until ctx is done.
func (f *feeder) pause(ctx context.Context, err error) {
	wait := f.tree.cfg.Retry
	if permanent(err) {
		wait = background.Never
	}
	_ = background.Pause(ctx, wait)
}

func permanent(err error) bool {
	return errors.Is(err, ErrTruncated) || errors.Is(err, ErrChanged) || errors.Is(err, ErrForeign) || errors.Is(err, ErrImpossible)
}

// fail records why the tree is not kept. The grace runs from the first of
// several failures, and a permanent one stays.
func (t *Tree) fail(ctx context.Context, err error) {
	level := slog.LevelDebug
	t.update(func() {
		if t.fault.err == nil {
			t.fault.since = t.cfg.Now()
		}
		if t.fault.err == nil || permanent(err) {
			level = slog.LevelError
		}
		if !permanent(t.fault.err) {
			t.fault.err = err
		}
	})
	t.cfg.Logger.LogAttrs(ctx, level, "the log's tree is not kept", slog.Any("err", err))
}

// recovered clears a fault that is not permanent.
func (t *Tree) recovered() {
	t.update(func() {
		if !permanent(t.fault.err) {
			t.fault = fault{}
		}
	})
}

// errRebuild makes the feeder inspect the tree at once.
var errRebuild = errors.New("rebuild requested")

// serve adds entries as they come, until ctx is done or an error.
func (f *feeder) serve(ctx context.Context, e *edge) error {
	for {
		committed := f.tree.cfg.Ledger.Committed()
		more, err := f.step(ctx, e)
		if err == nil {
			err = f.watchDue(ctx)
		}
		if err == nil && !more {
			err = f.sleep(ctx, committed)
		}
		if err != nil {
			return err
		}
	}
}

// sleep waits for the interval, so that entries within it become one batch, and
// then for a commit, or until the next watch. wake ends it.
func (f *feeder) sleep(ctx context.Context, committed <-chan struct{}) error {
	timer := time.NewTimer(f.tree.cfg.Interval)
	defer timer.Stop()
	select {
	case <-timer.C:
		if f.tree.cfg.idle != nil {
			f.tree.cfg.idle()
		}
		select {
		case <-committed:
		case <-f.ticker.C:
			f.due = true
		case <-f.tree.wake:
		case <-ctx.Done():
		}
	case <-f.tree.wake:
	case <-ctx.Done():
	}
	if f.tree.rebuilding() {
		return errRebuild
	}
	return ctx.Err()
}

// step follows one batch of durable entries, adds it to the tree and signs the
// result. It reports whether more entries are durable.
func (f *feeder) step(ctx context.Context, e *edge) (more bool, err error) {
	if err := f.tree.Err(); permanent(err) { // found by Check
		return false, err
	}
	n, err := f.tree.cfg.Ledger.Len(ctx)
	if err != nil {
		return false, err
	}
	from := e.size()
	to := min(n, from-from%width+LeafBatch)
	// A rebuild stops at the size that was signed: proofs to that checkpoint need
	// the partial tiles of that size.
	_, signed := f.tree.Latest()
	if from < signed.Size {
		to = min(to, signed.Size)
	}
	if err := f.follow.to(ctx, to); err != nil {
		return false, err
	}
	if to > from {
		failpoint.Hit(failpoint.LogFeed, "")
		if err := f.await(ctx, func() error { return f.extend(ctx, e, to) }); err != nil {
			return false, err
		}
		failpoint.Hit(failpoint.LogFed, "")
		if to == signed.Size {
			if err := sameRoot(e.sum, signed, ErrChanged); err != nil {
				return false, err
			}
		}
		f.tree.update(func() { f.tree.size = to })
	}
	return to < n, f.publish(ctx, e, signed)
}

// await runs write and waits for it. Taking longer than cfg.stall is a fault,
// but does not end the wait: a second write would race with one that hangs.
func (f *feeder) await(ctx context.Context, write func() error) error {
	result := make(chan error, 1)
	go func() { result <- write() }()
	timer := time.NewTimer(f.tree.cfg.stall)
	defer timer.Stop()
	for {
		select {
		case err := <-result:
			return err
		case <-timer.C:
			f.tree.fail(ctx, fmt.Errorf("writing the tree has taken longer than %s: check the disk of %s", f.tree.cfg.stall, f.tree.tiles.dir))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// extend adds the entries from the edge to number to-1: first the bundles and
// tiles, then the state that says that they are complete. The entries of the
// partial bundle are read from the table again.
func (f *feeder) extend(ctx context.Context, e *edge, to uint64) error {
	from := e.size()
	if err := f.tree.tiles.verifyState(e); err != nil {
		return err
	}
	err := f.tree.eachBundle(ctx, from-from%width, to, func(list []Committed) error {
		if err := f.tree.tiles.put(bundle(list)); err != nil {
			return err
		}
		for i := range list {
			seq, hash := list[i].Seq, list[i].Hash
			if seq >= from {
				if err := e.add(hash, f.tree.tiles.put); err != nil {
					return err
				}
			} else if at := seq % width * hashSize; !bytes.Equal(hash[:], e.levels[0][at:at+hashSize]) {
				return fmt.Errorf("entry #%d differs from the tree: %w", seq, errDamaged)
			}
		}
		return nil
	})
	if err == nil {
		err = e.partial(from, f.tree.tiles.put)
	}
	if err != nil {
		return err
	}
	return f.tree.tiles.setState(e)
}

// publish signs the tree, if it is larger than what was signed before.
func (f *feeder) publish(ctx context.Context, e *edge, before logproof.Checkpoint) error {
	c := logproof.Checkpoint{Origin: f.tree.cfg.Origin, Size: e.size()}
	if c.Size <= before.Size {
		if c.Size == before.Size {
			f.tree.recovered()
		}
		return nil
	}
	var err error
	if c.Root, err = e.sum.Root(); err != nil {
		return err
	}
	signed, err := logproof.Sign(ctx, c, f.tree.cfg.Signer)
	if err != nil {
		return err
	}
	failpoint.Hit(failpoint.LogSigned, "")
	if err := durable.Replace(filepath.Join(f.tree.cfg.Dir, checkpointName), signed, 0o600); err != nil {
		return err
	}
	failpoint.Hit(failpoint.LogPublished, "")
	f.tree.update(func() { f.tree.latest = published{Checkpoint: c, signed: signed, at: f.tree.cfg.Now()} })
	f.tree.recovered()
	return nil
}
