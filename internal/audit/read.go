package audit

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// Committed is an entry of the log as it was read back: hash, kind and form
// were checked.
type Committed struct {
	Seq   uint64
	Entry record.Entry
	Leaf  []byte   // its exact bytes
	Hash  [32]byte // LeafHash of them
}

// Line returns the entry as a caller gets it.
func (c *Committed) Line() api.LogLine {
	return api.LogLine{Seq: c.Seq, Text: c.Entry.Line(c.Seq), Leaf: c.Leaf}
}

// Query chooses entries. The zero value is the whole log, a page at a time.
type Query struct {
	From      uint64         // the first number wanted
	Limit     int            // 0 means 100; at most 1,000
	Newest    bool           // the newest Limit entries that match, still in the order of the log
	Run       api.RunID      // only of this run, its tasks and their dispatches
	Dispatch  api.DispatchID // only of this dispatch
	Kind      record.Kind    // only of this kind
	Principal api.Principal  // only of this principal
}

const (
	defaultLimit = 100
	maxLimit     = 1000
)

func (q Query) filtered() bool {
	return q.Run != "" || q.Dispatch != "" || q.Kind != "" || q.Principal != ""
}

// sql is constant text per choice of filters.
func (q Query) sql() (string, store.Args) {
	text, args := "SELECT seq, kind, leaf, hash FROM audit_entry WHERE seq >= ?", store.Args{int64(q.From)} //nolint:gosec // G115: see append
	if q.Run != "" {
		text, args = text+" AND run = ?", append(args, string(q.Run))
	}
	if q.Dispatch != "" {
		text, args = text+" AND dispatch = ?", append(args, string(q.Dispatch))
	}
	switch q.Kind {
	case "":
	case record.KindOperatorRecorded: // as their indices have them
		text += " AND kind = 'operator.recorded'"
	case record.KindStopEngaged:
		text += " AND kind = 'stop.engaged'"
	default:
		text, args = text+" AND kind = ?", append(args, string(q.Kind))
	}
	if q.Principal != "" {
		text, args = text+" AND json_extract(leaf, '$.principal') = ?", append(args, string(q.Principal))
	}
	order := " ORDER BY seq LIMIT ?"
	if q.Newest {
		order = " ORDER BY seq DESC LIMIT ?"
	}
	limit := q.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	return text + order, append(args, min(limit, maxLimit))
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

// page also returns how long the log was when it was read.
func (l *Ledger) page(ctx context.Context, q Query) (list []Committed, head uint64, err error) {
	err = l.store.Read(ctx, func(v *store.View) error {
		if head, err = length(v); err != nil {
			return err
		}
		text, args := q.sql()
		return v.Each(text, args, func(scan store.Scan) error {
			c, err := read(scan, true)
			list = append(list, c)
			return err
		})
	})
	if err != nil {
		return nil, 0, err
	}
	if q.Newest {
		slices.Reverse(list)
	}
	return list, head, nil
}

// read scans one row (seq, kind, leaf, hash) and checks it; without decode only
// its hash.
func read(scan store.Scan, decode bool) (Committed, error) {
	var c Committed
	var seq int64
	var kind string
	var hash []byte
	if err := scan(&seq, &kind, &c.Leaf, &hash); err != nil {
		return Committed{}, err
	}
	c.Seq, c.Hash = uint64(seq), LeafHash(c.Leaf) //nolint:gosec // G115: seq is never negative
	if !slices.Equal(c.Hash[:], hash) {
		return Committed{}, fmt.Errorf("audit log: entry #%d is not what was written: its hash differs", seq)
	}
	if !decode {
		return c, nil
	}
	var err error
	if c.Entry, err = record.DecodeEntry(c.Leaf); err != nil {
		return Committed{}, fmt.Errorf("audit log: entry #%d: %w", seq, err)
	}
	if string(c.Entry.Kind) != kind {
		return Committed{}, fmt.Errorf("audit log: entry #%d is %q in the table and %q by itself", seq, kind, c.Entry.Kind)
	}
	return c, nil
}
