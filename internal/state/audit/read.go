package audit

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Committed is a durable entry: its hash, kind and form have been verified.
type Committed struct {
	Seq   uint64
	Entry record.Entry
	Leaf  []byte   // its exact bytes
	Hash  [32]byte // logproof.LeafHash of Leaf
}

// Line returns the entry in the form of the API.
func (c *Committed) Line() api.LogLine {
	return api.LogLine{Seq: c.Seq, Text: c.Entry.Line(c.Seq), Leaf: c.Leaf}
}

// List returns the entries that match q, in the order of the log. A damaged
// entry is an error that names it.
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

// Len returns the number of durable entries.
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

// Watch yields the entries that match q, from q.From on, in the order of the log
// and as they become durable: without filters each exactly once and without a
// gap. It does not poll. It ends when ctx is done, or by yielding an error.
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

// readHashed scans a hashedRow and verifies its hash, without decoding the entry.
func readHashed(scan store.Scan) (Committed, error) {
	var c Committed
	var kind string
	err := c.scan(scan, &kind)
	return c, err
}

// read scans a wholeRow and verifies its hash; with decode also that the entry is
// valid and that its columns match it.
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
		return Committed{}, fmt.Errorf("audit log: entry #%d has kind %q in the table, but %q in its leaf", c.Seq, kind, c.Entry.Kind)
	}
	return c, c.verifyColumns(found)
}

func (c *Committed) scan(scan store.Scan, kind *string, also ...any) error {
	var seq int64
	var hash []byte
	if err := scan(append([]any{&seq, kind, &c.Leaf, &hash}, also...)...); err != nil {
		return err
	}
	c.Seq, c.Hash = uint64(seq), logproof.LeafHash(c.Leaf) //nolint:gosec // G115: seq is never negative
	if !slices.Equal(c.Hash[:], hash) {
		return fmt.Errorf("audit log: entry #%d was changed: its hash differs", seq)
	}
	return nil
}

// verifyColumns compares the columns that an entry is found by with the entry.
func (c *Committed) verifyColumns(found [terms]*string) error {
	for i, want := range termsOf(&c.Entry) {
		got := ""
		if found[i] != nil {
			got = term(*found[i])
		}
		if got != want {
			return fmt.Errorf("audit log: entry #%d has %s %q in the table, but %q in its leaf", c.Seq, termNames()[i], got, want)
		}
	}
	return nil
}
