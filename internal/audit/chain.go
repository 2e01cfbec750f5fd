package audit

import (
	"context"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/internal/note"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// ruleSchema finds the entries that rule (record.Kind.Rules), which are few.
const ruleSchema = `
CREATE INDEX audit_entry_rule ON audit_entry (seq) WHERE kind IN ('catalog.revision', 'operator.recorded', 'stop.engaged');
`

const selectRule = "SELECT coalesce(max(seq) + 1, 0) FROM audit_entry WHERE kind IN ('catalog.revision', 'operator.recorded', 'stop.engaged')"

func (l *Ledger) lastRule(ctx context.Context) (rule uint64, err error) {
	err = l.store.Read(ctx, func(v *store.View) error { return v.Get(selectRule, nil, &rule) })
	return rule, err
}

// row is an entry on its way into the log: all of it but its number and what
// comes before it, which only the writer knows.
type row struct {
	entry *record.Entry
	leaf  []byte
	at    int64
	found []any // values of the columns that only searches need
}

// chain links the entries of one transaction to those before them: of the same
// run, of the same dispatch, and to what rules. Whoever is given the last entry
// of a run can tell by it whether one is kept back.
type chain struct {
	tx         *store.Tx
	runs       map[string]uint64
	dispatches map[string]uint64
	rule       uint64
}

func newChain(tx *store.Tx, rule uint64) *chain {
	return &chain{tx: tx, runs: map[string]uint64{}, dispatches: map[string]uint64{}, rule: rule}
}

// link returns the values of insertEntry for a row.
func (c *chain) link(r *row, seq uint64) ([]any, error) {
	e := r.entry
	args := []any{int64(seq), r.at, string(e.Kind), nil, nil, "", nil} //nolint:gosec // G115: a log does not reach 2^63 entries
	var prev record.Prev
	var err error
	if e.Dispatch != "" {
		args[3] = string(e.Dispatch)
		if prev.Dispatch, err = c.last(c.dispatches, string(e.Dispatch), seq, "SELECT coalesce(max(seq) + 1, 0) FROM audit_entry WHERE dispatch = ?"); err != nil {
			return nil, err
		}
	}
	if e.Run != "" {
		args[4] = e.Run
		if prev.Run, err = c.last(c.runs, e.Run, seq, "SELECT coalesce(max(seq) + 1, 0) FROM audit_entry WHERE run = ?"); err != nil {
			return nil, err
		}
	}
	if e.Kind.Rules() || e.Kind.Admits() {
		prev.Rule = c.rule
	}
	if e.Kind.Rules() {
		c.rule = seq + 1
	}
	leaf, err := prev.Link(r.leaf)
	if err != nil {
		return nil, err
	}
	hash := note.LeafHash(leaf)
	args[5], args[6] = string(leaf), hash[:]
	return args, nil
}

// last returns one more than the number of the last entry under a key, and
// notes that seq is the last from now on.
func (c *chain) last(known map[string]uint64, key string, seq uint64, query string) (uint64, error) {
	n, ok := known[key]
	if !ok {
		if err := c.tx.Get(query, store.Args{key}, &n); err != nil {
			return 0, err
		}
	}
	known[key] = seq + 1
	return n, nil
}

// CheckChains holds every entry of the log against what it says comes before
// it: an entry of a run that was written past the chain of that run, so that its
// evidence would lack it, is found here. It returns how many entries it looked
// at.
func (l *Ledger) CheckChains(ctx context.Context) (uint64, error) {
	runs, dispatches, rule := map[string]uint64{}, map[string]uint64{}, uint64(0)
	for from := uint64(0); ; {
		list, err := l.Leaves(ctx, from, LeafBatch)
		if err != nil || len(list) == 0 {
			return from, err
		}
		for i := range list {
			e, err := record.DecodeEntry(list[i].Leaf)
			if err != nil {
				return list[i].Seq, fmt.Errorf("audit log: entry #%d: %w", list[i].Seq, err)
			}
			seq, want := list[i].Seq, record.Prev{}
			if e.Dispatch != "" {
				want.Dispatch = dispatches[string(e.Dispatch)]
				dispatches[string(e.Dispatch)] = seq + 1
			}
			if e.Run != "" {
				want.Run = runs[e.Run]
				runs[e.Run] = seq + 1
			}
			if e.Kind.Rules() || e.Kind.Admits() {
				want.Rule = rule
			}
			if e.Kind.Rules() {
				rule = seq + 1
			}
			if e.Prev != want {
				return seq, fmt.Errorf("audit log: entry #%d says that it follows %+v, and it follows %+v", seq, e.Prev, want)
			}
		}
		from = list[len(list)-1].Seq + 1
	}
}
