package tlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/audit"
	"github.com/bailiwick-dev/bailiwick/internal/durable"
	"github.com/bailiwick-dev/bailiwick/internal/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/note"
)

// markName is the newest signed checkpoint, below our directory.
const markName = "checkpoint"

// run is the feeder. It begins again after whatever may pass, in the same way
// as a start does.
func (l *Log) run(ctx context.Context, tree *builder, at *note.Range) {
	defer close(l.done)
	for {
		err := l.serve(ctx, tree, at)
		tree.close()
		if err == nil || ctx.Err() != nil {
			return
		}
		for again := false; !again; {
			if !errors.Is(err, errAgain) {
				l.fail(ctx, err)
				if !l.pause(ctx, err) {
					return
				}
			}
			if at, err = l.inspect(ctx); err == nil {
				tree, err = openTessera(l.tiles.dir, l.cfg.Origin)
			}
			again = err == nil
		}
	}
}

// pause waits before the next try, for ever where none would help, and says
// whether there is to be one.
func (l *Log) pause(ctx context.Context, err error) bool {
	var retry <-chan time.Time
	if !final(err) {
		timer := time.NewTimer(l.cfg.Retry)
		defer timer.Stop()
		retry = timer.C
	}
	select {
	case <-retry:
		return true
	case <-l.stop:
	case <-ctx.Done():
	}
	return false
}

func final(err error) bool {
	return errors.Is(err, ErrCut) || errors.Is(err, ErrChanged) || errors.Is(err, ErrForeign)
}

// fail notes why the tree is not kept. It counts from the first of several.
func (l *Log) fail(ctx context.Context, err error) {
	l.mu.Lock()
	first := l.fault.err == nil
	if first {
		l.fault.since = l.cfg.Now()
	}
	if !l.fault.final {
		l.fault.err, l.fault.final = err, final(err)
	}
	l.tell()
	l.mu.Unlock()
	level := slog.LevelDebug // the same again
	if first || final(err) {
		level = slog.LevelError
	}
	l.cfg.Logger.LogAttrs(ctx, level, "the log's tree is not kept", slog.Any("err", err))
}

// errAgain ends a session that is to begin again at once.
var errAgain = errors.New("the tree is built again")

// serve takes over entries until it is to end, which is no error.
func (l *Log) serve(ctx context.Context, tree *builder, at *note.Range) error {
	for {
		changed := l.cfg.Ledger.Committed()
		more, err := l.take(ctx, tree, at)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it is to end
		case err != nil:
			return err
		case more:
			continue
		case l.stopping():
			return nil
		}
		if err := l.sleep(ctx, changed); err != nil {
			return err
		}
	}
}

func (l *Log) stopping() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// sleep waits for the interval, so that what comes within it is taken over
// together, and then for a change.
func (l *Log) sleep(ctx context.Context, changed <-chan struct{}) error {
	timer := time.NewTimer(l.cfg.Interval)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.stop:
		return nil
	case <-ctx.Done():
		return nil
	}
	if l.cfg.rests != nil {
		l.cfg.rests()
	}
	select {
	case <-changed:
	case <-l.again:
		return errAgain
	case <-l.stop:
	case <-ctx.Done():
	}
	return nil
}

// take takes over what is durable, as much as is handed over at once, and signs
// what the tree is then. It says whether there is more to take over
// at once.
func (l *Log) take(ctx context.Context, tree *builder, at *note.Range) (more bool, err error) {
	if err := l.condemned(); err != nil {
		return false, err
	}
	from, limit := at.Size(), audit.LeafBatch
	// A tree that is built again stops where it was signed: proofs to that
	// checkpoint need the tiles as they were at its size.
	if _, mark := l.Latest(); from < mark.Size {
		limit = int(min(mark.Size-from, audit.LeafBatch)) //nolint:gosec // G115: as it says
	}
	list, err := l.cfg.Ledger.Leaves(ctx, from, limit)
	if err != nil {
		return false, err
	}
	if len(list) > 0 {
		failpoint.Hit(failpoint.LogFeed, "")
		if err := l.await(ctx, tree.feed(list)); err != nil {
			return false, err
		}
		failpoint.Hit(failpoint.LogFed, "")
		if err := l.advance(at, list); err != nil {
			return false, err
		}
	}
	if err := l.publish(ctx, at); err != nil {
		return false, err
	}
	return len(list) == limit || len(list) > 0 && l.stopping(), l.prune(from, at.Size())
}

// await waits for the tree. That it takes too long is a fault, and does not end
// the wait: another tree beside one that hangs would write the same files.
func (l *Log) await(ctx context.Context, came <-chan error) error {
	timer := time.NewTimer(l.cfg.stall)
	defer timer.Stop()
	for {
		select {
		case err := <-came:
			return err
		case <-timer.C:
			l.fail(ctx, fmt.Errorf("the tree does not take entries over for more than %s: see to the disk of %s", l.cfg.stall, l.tiles.dir))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// advance counts the entries in, by the hashes that the table has, and holds
// what Tessera made against that.
func (l *Log) advance(at *note.Range, list []audit.Committed) error {
	_, mark := l.Latest()
	for i := range list {
		if err := at.Add(list[i].Hash); err != nil {
			return err
		}
		if at.Size() == mark.Size {
			if err := same(at, mark, ErrChanged); err != nil {
				return err
			}
		}
	}
	root, err := at.Root()
	if err != nil {
		return err
	}
	if size, made, err := l.tiles.state(); err != nil || size != at.Size() || made != root {
		return errors.Join(fmt.Errorf("the tree of %d entries has another root than the table: %w", at.Size(), errDamaged), err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.size = at.Size()
	l.tell()
	return nil
}

// publish signs the tree, if it is more than what was signed before.
func (l *Log) publish(ctx context.Context, at *note.Range) error {
	_, mark := l.Latest()
	c := note.Checkpoint{Origin: l.cfg.Origin, Size: at.Size()}
	if c.Size <= mark.Size {
		if c.Size == mark.Size {
			l.well(nil)
		}
		return nil
	}
	var err error
	if c.Root, err = at.Root(); err != nil {
		return err
	}
	signed, err := note.Sign(ctx, c, l.cfg.Signer)
	if err != nil {
		return err
	}
	failpoint.Hit(failpoint.LogSigned, "")
	if err := durable.Replace(filepath.Join(l.cfg.Dir, markName), signed, 0o600); err != nil {
		return err
	}
	failpoint.Hit(failpoint.LogPublished, "")
	l.well(&published{Checkpoint: c, signed: signed, at: l.cfg.Now()})
	return nil
}

// well ends a fault that passed. What was signed may be nil: nothing new was
// there to sign.
func (l *Log) well(signed *published) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if signed != nil {
		l.latest = *signed
	}
	if !l.fault.final {
		l.fault = fault{}
	}
	l.tell()
}

// condemned returns the fault that does not pass.
func (l *Log) condemned() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fault.final {
		return l.fault.err
	}
	return nil
}
