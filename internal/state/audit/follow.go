package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// follower verifies the entries of the log in order: their form, their columns and
// links, and that each can follow those before it. Its memory does not grow with
// the log.
type follower struct {
	ledger *Ledger
	chains chains
	next   uint64 // the first entry that is not verified
}

func (l *Ledger) follower(from uint64) *follower {
	return &follower{ledger: l, chains: chains{strict: true}, next: from}
}

// followPage is how many entries are read at once.
const followPage = 256

// to verifies the entries before number n.
func (f *follower) to(ctx context.Context, n uint64) error {
	for f.next < n {
		err := f.ledger.store.Read(ctx, func(v *store.View) error { return f.page(v, min(n, f.next+followPage)) })
		if err != nil {
			f.chains = chains{strict: true}
			return err
		}
	}
	return nil
}

func (f *follower) page(v *store.View, to uint64) error {
	var list []Committed
	want := f.next
	if err := v.Each("SELECT "+wholeRow+" FROM audit_entry WHERE seq >= ? AND seq < ? ORDER BY seq", store.Args{int64(f.next), int64(to)}, //nolint:gosec // G115: see append
		func(scan store.Scan) error {
			c, err := read(scan, true)
			if err == nil && c.Seq != want {
				err = fmt.Errorf("audit log: entry #%d is missing", want)
			}
			want++
			list = append(list, c)
			return err
		}); err != nil {
		return err
	}
	if want != to {
		return fmt.Errorf("audit log: entry #%d is missing", want)
	}
	for i := range list {
		if err := f.follow(v, &list[i].Entry, list[i].Seq); err != nil {
			return err
		}
		f.next++
	}
	return nil
}

const foreignEntry = "the service did not write this entry: someone changed its database; restore an earlier backup"

func (f *follower) follow(v *store.View, e *record.Entry, seq uint64) error {
	want, err := f.chains.next(v, e, seq)
	if errors.Is(err, ErrImpossible) {
		return fmt.Errorf("%w: %s", err, foreignEntry)
	}
	if err != nil {
		return err
	}
	// What is no id can have no evidence. Earlier versions linked it too.
	if term(e.Dispatch) == "" {
		want.Dispatch = e.Prev.Dispatch
	}
	if term(e.Run) == "" {
		want.Run = e.Prev.Run
	}
	if e.Prev != want {
		return fmt.Errorf("%w: entry #%d links to %+v, want %+v: %s", ErrImpossible, seq, e.Prev, want, foreignEntry)
	}
	return nil
}

// CheckChains follows the whole log, and returns how many entries it verified. It
// finds an entry of a run or dispatch that was inserted past the chain, so that
// evidence would lack it, and one that cannot follow those before it. Somebody who
// writes the table can still add an entry that the service could have written.
func (l *Ledger) CheckChains(ctx context.Context) (uint64, error) {
	n, err := l.Len(ctx)
	if err != nil {
		return 0, err
	}
	f := l.follower(0)
	err = f.to(ctx, n)
	return f.next, err
}
