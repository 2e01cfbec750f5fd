package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/internal/note"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// ruleSchema indexes the entries that rule (record.Kind.Rules), which are few.
const ruleSchema = `
CREATE INDEX audit_entry_rule ON audit_entry (seq) WHERE kind IN ('catalog.revision', 'operator.recorded', 'stop.engaged');
`

const selectRule = "SELECT coalesce(max(seq) + 1, 0) FROM audit_entry WHERE kind IN ('catalog.revision', 'operator.recorded', 'stop.engaged')"

func (l *Ledger) lastRule(ctx context.Context) (rule uint64, err error) {
	err = l.store.Read(ctx, func(v *store.View) error { return v.Get(selectRule, nil, &rule) })
	return rule, err
}

// row is an entry to be written: all but its number and its links, which only
// the writer knows.
type row struct {
	entry  *record.Entry
	leaf   []byte
	at     int64
	search []any // values of the columns that only searches need
}

// chain links the next entries to those before them: of the same run, of the
// same dispatch, and the last one that rules. With the last entry of a run a
// verifier can tell if one is withheld.
type chain struct {
	tx   *store.Tx            // nil: the chain starts with the first entry of the log
	last map[[2]string]uint64 // by column and value: seq of the last entry, plus one
	rule uint64               // seq of the last entry that rules, plus one
}

func newChain(tx *store.Tx, rule uint64) *chain {
	return &chain{tx: tx, last: map[[2]string]uint64{}, rule: rule}
}

// next returns the links of entry seq, which becomes the last one.
func (c *chain) next(e *record.Entry, seq uint64) (prev record.Prev, err error) {
	if e.Dispatch != "" {
		prev.Dispatch, err = c.swap("dispatch", string(e.Dispatch), seq)
	}
	if e.Run != "" && err == nil {
		prev.Run, err = c.swap("run", e.Run, seq)
	}
	if e.Kind.Rules() || e.Kind.Admits() {
		prev.Rule = c.rule
	}
	if e.Kind.Rules() {
		c.rule = seq + 1
	}
	return prev, err
}

// swap makes seq the last entry with that value, and returns the number of the
// one before, plus one.
func (c *chain) swap(column, value string, seq uint64) (n uint64, err error) {
	key := [2]string{column, value}
	n, ok := c.last[key]
	if !ok && c.tx != nil {
		err = c.tx.Get("SELECT coalesce(max(seq) + 1, 0) FROM audit_entry WHERE "+column+" = ?", store.Args{value}, &n)
	}
	c.last[key] = seq + 1
	return n, err
}

// link returns the values of insertEntry for a row.
func (c *chain) link(r *row, seq uint64) ([]any, error) {
	prev, err := c.next(r.entry, seq)
	if err != nil {
		return nil, err
	}
	leaf, err := prev.Link(r.leaf)
	if err != nil {
		return nil, err
	}
	hash := note.LeafHash(leaf)
	args := []any{int64(seq), r.at, string(r.entry.Kind), nil, nil, string(leaf), hash[:]} //nolint:gosec // G115: a log does not reach 2^63 entries
	if r.entry.Dispatch != "" {
		args[3] = string(r.entry.Dispatch)
	}
	if r.entry.Run != "" {
		args[4] = r.entry.Run
	}
	return append(args, r.search...), nil
}

// CheckChains verifies the links of every entry, and returns how many entries
// it verified. It finds an entry of a run that was inserted past the chain, so
// that the run's evidence would lack it.
func (l *Ledger) CheckChains(ctx context.Context) (uint64, error) {
	chain := newChain(nil, 0)
	for from := uint64(0); ; {
		list, err := l.Leaves(ctx, from, LeafBatch)
		if err != nil || len(list) == 0 {
			return from, err
		}
		for i := range list {
			seq := list[i].Seq
			e, err := record.DecodeEntry(list[i].Leaf)
			if err != nil {
				return seq, fmt.Errorf("audit log: entry #%d: %w", seq, err)
			}
			if want, err := chain.next(&e, seq); err != nil || e.Prev != want {
				return seq, errors.Join(fmt.Errorf("audit log: entry #%d links to %+v, want %+v", seq, e.Prev, want), err)
			}
		}
		from = list[len(list)-1].Seq + 1
	}
}
