package audit

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/note"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// Committed is an entry of the log as it was read back: hash, kind and form
// were checked.
type Committed struct {
	Seq   uint64
	Entry record.Entry
	Leaf  []byte   // its exact bytes
	Hash  [32]byte // note.LeafHash of them
}

// Line returns the entry as a caller gets it.
func (c *Committed) Line() api.LogLine {
	return api.LogLine{Seq: c.Seq, Text: c.Entry.Line(c.Seq), Leaf: c.Leaf}
}

// List returns the entries that q chooses, in the order of the log. An entry
// that is damaged is an error that names it.
func (l *Ledger) List(ctx context.Context, q Query) ([]Committed, error) {
	list, _, err := l.page(ctx, q)
	return list, err
}

// Get returns one entry.
func (l *Ledger) Get(ctx context.Context, seq uint64) (Committed, error) {
	list, err := l.List(ctx, Query{From: seq, Limit: 1})
	if err != nil {
		return Committed{}, err
	}
	if len(list) == 0 || list[0].Seq != seq {
		return Committed{}, api.Errorf(api.CodeNotFound, "the log has no entry #%d", seq)
	}
	return list[0], nil
}

// Len returns how many entries are durable.
func (l *Ledger) Len(ctx context.Context) (n uint64, err error) {
	err = l.store.Read(ctx, func(v *store.View) error {
		n, err = length(v)
		return err
	})
	return n, err
}

func length(r store.Reader) (uint64, error) {
	var n int64
	err := r.Get("SELECT coalesce(max(seq) + 1, 0) FROM audit_entry", nil, &n)
	return uint64(n), err //nolint:gosec // G115: seq is never negative
}

// Watch yields the entries that q chooses, from q.From on and without end, as
// they become durable and in the order of the log: without filters each
// exactly once and without a gap. It is told of commits and polls nothing. It
// ends with ctx, or by yielding an error. The Merkle tree is fed from it.
func (l *Ledger) Watch(ctx context.Context, q Query) iter.Seq2[Committed, error] {
	q.Limit, q.Newest = maxLimit, false
	return func(yield func(Committed, error) bool) {
		for {
			changed := l.store.Committed()
			list, head, err := l.page(ctx, q)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				yield(Committed{}, err)
				return
			}
			for i := range list {
				if want := q.From + uint64(i); !q.filtered() && list[i].Seq != want {
					yield(Committed{}, fmt.Errorf("audit log: entry #%d is missing", want))
					return
				}
				if !yield(list[i], nil) {
					return
				}
			}
			if len(list) == maxLimit {
				q.From = list[len(list)-1].Seq + 1
				continue
			}
			q.From = max(q.From, head)
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}
}

// readHashed scans a hashedRow and checks its hash. It decodes nothing.
func readHashed(scan store.Scan) (Committed, error) {
	var c Committed
	var kind string
	err := c.scan(scan, &kind)
	return c, err
}

// read scans a wholeRow and checks its hash; with decode also that the entry is
// one, and is found by what it says of itself.
func read(scan store.Scan, decode bool) (Committed, error) {
	var c Committed
	var kind string
	var found [terms]*string
	also := make([]any, terms)
	for i := range found {
		also[i] = &found[i]
	}
	err := c.scan(scan, &kind, also...)
	if err != nil || !decode {
		return c, err
	}
	if c.Entry, err = record.DecodeEntry(c.Leaf); err != nil {
		return Committed{}, fmt.Errorf("audit log: entry #%d: %w", c.Seq, err)
	}
	if string(c.Entry.Kind) != kind {
		return Committed{}, fmt.Errorf("audit log: entry #%d is %q in the table and %q by itself", c.Seq, kind, c.Entry.Kind)
	}
	return c, c.holds(found)
}

func (c *Committed) scan(scan store.Scan, kind *string, also ...any) error {
	var seq int64
	var hash []byte
	if err := scan(append([]any{&seq, kind, &c.Leaf, &hash}, also...)...); err != nil {
		return err
	}
	c.Seq, c.Hash = uint64(seq), note.LeafHash(c.Leaf) //nolint:gosec // G115: seq is never negative
	if !slices.Equal(c.Hash[:], hash) {
		return fmt.Errorf("audit log: entry #%d is not what was written: its hash differs", seq)
	}
	return nil
}

// holds refuses what an entry was found by, where it is not what the entry
// itself says.
func (c *Committed) holds(found [terms]*string) error {
	for i, want := range termsOf(&c.Entry) {
		got := ""
		if found[i] != nil {
			got = term(*found[i])
		}
		if got != want {
			return fmt.Errorf("audit log: entry #%d is found by %s %q and has %q by itself", c.Seq, termNames()[i], got, want)
		}
	}
	return nil
}
