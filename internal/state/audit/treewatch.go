package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// watchedBundles is how many bundles of entries the feeder compares with the table each
// time, beside the newest: all of a million entries in four hours.
const watchedBundles = 16

// watch compares the newest entries, and the next ones in turn, with their files and with
// the signed root: a file that is changed while the service runs is noticed without a
// read. It belongs to the feeder.
func (f *feeder) watch(ctx context.Context) error {
	_, signed := f.tree.Latest()
	f.tree.mu.Lock()
	size := f.tree.size
	f.tree.mu.Unlock()
	if size != signed.Size || size == 0 {
		return nil // being rebuilt, or about to be signed
	}
	last := (size - 1) / width
	for i := range watchedBundles + 1 {
		index := last
		if i > 0 {
			index, f.watched = f.watched%(last+1), f.watched+1
		}
		if err := f.tree.eachBundle(ctx, index*width, min(size, (index+1)*width), f.tree.verifyBundle); err != nil {
			return err
		}
		if _, err := f.tree.InclusionProof(ctx, index*width, size); err != nil { // which verifies the tiles above
			return err
		}
		if i > 0 && f.watched%(last+1) == 0 {
			break // all of a small log
		}
	}
	return nil
}

// watchDue calls watch once each TreeConfig.Watch.
func (f *feeder) watchDue(ctx context.Context) error {
	select {
	case <-f.ticker.C:
	default:
		if !f.due {
			return nil
		}
	}
	f.due = false
	err := f.watch(ctx)
	if errors.Is(err, errDamaged) {
		f.tree.damaged(ctx, err)
		return errRebuild
	}
	return err
}

// damaged notes that a file of the tree is not what was signed. The service is not ready
// until the feeder has rebuilt the tree from the table, which is compared with the signed
// checkpoint before.
func (t *Tree) damaged(ctx context.Context, err error) {
	t.fail(ctx, err)
	t.update(func() {
		t.rebuild = true
		t.repaired = Repair{At: t.cfg.Now(), Reason: err.Error()}
	})
	t.cfg.Logger.LogAttrs(ctx, slog.LevelError, "a file of the log's tree was changed while the service runs", slog.Any("err", err))
	t.wake.Send()
}

// inconsistent notes an error of a proof, unless it is of the caller: each tile that is
// read is verified against the signed root.
func (t *Tree) inconsistent(ctx context.Context, what string, err error) error {
	err = fmt.Errorf("log tree: %s: %w", what, err)
	t.mu.Lock()
	built := !t.rebuild && t.size >= t.latest.Size
	t.mu.Unlock()
	if built && ctx.Err() == nil { // else its files are being replaced
		if !errors.Is(err, errDamaged) {
			err = fmt.Errorf("%w: %w", err, errDamaged)
		}
		t.damaged(ctx, err)
	}
	return err
}

// Repair is the last damage of the tree that was noticed while the service runs.
type Repair struct {
	At     time.Time // zero: none
	Reason string
}
