package audit

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// ruleSchema indexes the entries that rule (record.Kind.Rules), which are few.
const ruleSchema = `
CREATE INDEX audit_entry_rule ON audit_entry (seq) WHERE kind IN ('catalog.revision', 'operator.recorded', 'stop.engaged');
`

const selectRule = "SELECT coalesce(max(seq) + 1, 0) FROM audit_entry WHERE kind IN ('catalog.revision', 'operator.recorded', 'stop.engaged') AND seq < ?"

// row is an entry to be written: all but its number and its links, which only
// the writer knows.
type row struct {
	entry  *record.Entry
	leaf   []byte
	at     int64
	search []any // values of the columns that only searches need
}

// chains follows the entries of each dispatch and run and those that rule, by the
// tables of package record, and links each entry to the one before it: with the
// last entry of a chain a verifier can tell if one is withheld. It keeps the chains
// that were used lately and reads others from the table.
//
// The writer refuses what follows the end of a dispatch or run, or breaks the order
// of the rules; its callers keep the states before the end, with guards in SQL. A
// follower refuses all that the tables refuse.
type chains struct {
	strict     bool // a follower
	dispatches recent[dispatchChain]
	runs       recent[runChain]
	rules      *ruleChain // nil: not read yet
}

type dispatchChain struct {
	last uint64 // number of its last entry, plus one
	record.DispatchChain
}

type runChain struct {
	last uint64
	record.RunChain
	tasks   map[string]record.TaskChain // of an open run; nil if not followed
	retries bool                        // it retries another run; likewise
}

type ruleChain struct {
	last uint64
	record.RuleChain
}

// next applies entry seq and returns its links. It reads earlier entries from r.
// After an error the chains must be forgotten.
func (c *chains) next(r store.Reader, e *record.Entry, seq uint64) (prev record.Prev, err error) {
	if e.Kind.Rules() || e.Kind.Admits() {
		if prev.Rule, err = c.rule(r, e, seq); err != nil {
			return prev, impossible(seq, "", err)
		}
	}
	if id := term(e.Dispatch); id != "" {
		if prev.Dispatch, err = c.dispatch(r, e, seq); err != nil {
			return prev, impossible(seq, "dispatch "+id, err)
		}
	}
	if id := term(e.Run); id != "" {
		if prev.Run, err = c.run(r, e, seq); err != nil {
			return prev, impossible(seq, "run "+id, err)
		}
	}
	return prev, nil
}

// stepError is why a table of package record refuses an entry.
type stepError struct{ error }

// impossible adds to a stepError what it is about; other errors stay as they are.
func impossible(seq uint64, about string, err error) error {
	step, ok := errors.AsType[stepError](err)
	if !ok {
		return err
	}
	if about != "" {
		about += ": "
	}
	return fmt.Errorf("%w: entry #%d: %s%w", ErrImpossible, seq, about, step.error)
}

func (c *chains) rule(r store.Reader, e *record.Entry, seq uint64) (uint64, error) {
	if c.rules == nil {
		rules, err := loadRules(r, seq)
		if err != nil {
			return 0, err
		}
		c.rules = &rules
	}
	last := c.rules.last
	if e.Kind.Rules() {
		if err := c.rules.Step(e); err != nil {
			return 0, stepError{err}
		}
		c.rules.last = seq + 1
	}
	return last, nil
}

func loadRules(r store.Reader, before uint64) (c ruleChain, err error) {
	if err := r.Get(selectRule, store.Args{int64(before)}, &c.last); err != nil || c.last == 0 { //nolint:gosec // G115: see append
		return c, err
	}
	for _, kind := range []record.Kind{record.KindCatalogRevision, record.KindOperatorRecorded} {
		var leaf []byte
		err := r.Get("SELECT leaf FROM audit_entry WHERE kind = ? AND seq < ? ORDER BY seq DESC LIMIT 1", store.Args{string(kind), int64(before)}, &leaf) //nolint:gosec // G115: see append
		if errors.Is(err, store.ErrNoRow) {
			continue
		}
		if err != nil {
			return c, err
		}
		e, err := record.DecodeEntry(leaf)
		if err != nil {
			return c, err
		}
		switch d := e.Detail.(type) {
		case record.RevisionSeen:
			c.Revision = d.Number
		case record.OperatorDecision:
			c.Records = d.Number
		}
	}
	return c, nil
}

func (c *chains) dispatch(r store.Reader, e *record.Entry, seq uint64) (uint64, error) {
	id := string(e.Dispatch)
	s, ok := c.dispatches.get(id)
	if !ok {
		err := eachOf(r, "dispatch", id, seq, func(seq uint64, e *record.Entry) {
			_ = s.Step(e) // signed already; a check of the whole log reports it
			s.last = seq + 1
		})
		if err != nil {
			return 0, err
		}
	}
	last := s.last
	if err := s.Step(e); err != nil && (c.strict || s.Over()) {
		return 0, stepError{err}
	}
	s.last = seq + 1
	c.dispatches.put(id, s)
	return last, nil
}

// eachOf calls fn with each entry before number before whose column has a value, in
// the order of the log.
func eachOf(r store.Reader, column, value string, before uint64, fn func(seq uint64, e *record.Entry)) error {
	return r.Each("SELECT seq, leaf FROM audit_entry WHERE "+column+" = ? AND seq < ? ORDER BY seq", store.Args{value, int64(before)}, func(scan store.Scan) error { //nolint:gosec // G115: see append
		var seq int64
		var leaf []byte
		if err := scan(&seq, &leaf); err != nil {
			return err
		}
		e, err := record.DecodeEntry(leaf)
		if err != nil {
			return fmt.Errorf("audit log: entry #%d: %w", seq, err)
		}
		fn(uint64(seq), &e) //nolint:gosec // G115: seq is never negative
		return nil
	})
}

func (c *chains) run(r store.Reader, e *record.Entry, seq uint64) (uint64, error) {
	s, ok := c.runs.get(e.Run)
	if !ok {
		var err error
		if s, err = c.loadRun(r, e.Run, seq); err != nil {
			return 0, err
		}
	}
	last := s.last
	if err := s.Step(e.Kind); err != nil && (c.strict || s.Settled) {
		return 0, stepError{err}
	}
	if err := s.task(e); err != nil {
		return 0, stepError{fmt.Errorf("task %s: %w", record.Word(e.Task), err)}
	}
	s.last = seq + 1
	c.runs.put(e.Run, s)
	return last, nil
}

// task applies an entry to the task that it names.
func (s *runChain) task(e *record.Entry) error {
	if s.Settled || s.tasks == nil {
		s.tasks = nil
		return nil
	}
	if d, ok := e.Detail.(record.RunRequest); ok && e.Kind == record.KindRunSubmitted {
		s.retries = d.RetryOf != ""
	}
	if e.Task == "" || !record.StepsTask(e.Kind) {
		return nil
	}
	t, ok := s.tasks[e.Task]
	if !ok {
		t = record.TaskChainAt(e, s.retries)
	}
	err := t.Step(e)
	s.tasks[e.Task] = t
	return err
}

// loadRun reads a run from the table. The writer of a large run does not wait until
// all of it is decoded.
func (c *chains) loadRun(r store.Reader, id string, before uint64) (s runChain, err error) {
	args := store.Args{id, int64(before)} //nolint:gosec // G115: see append
	if err := r.Get("SELECT coalesce(max(seq) + 1, 0) FROM audit_entry WHERE run = ? AND seq < ?", args, &s.last); err != nil {
		return s, err
	}
	if c.strict {
		s.tasks = map[string]record.TaskChain{}
	}
	var kind string // of an entry that follows the submission, or is it
	switch err := r.Get("SELECT kind FROM audit_entry INDEXED BY audit_entry_run WHERE run = ? AND seq < ? AND kind NOT IN ('run.denied', 'schedule.fired') ORDER BY seq DESC LIMIT 1", args, &kind); {
	case errors.Is(err, store.ErrNoRow):
		return s, nil
	case err != nil:
		return s, err
	}
	if s.Submitted, s.Settled = true, record.Kind(kind) == record.KindRunSettled; s.Settled || !c.strict {
		return s, nil
	}
	return s, eachOf(r, "run", id, before, func(_ uint64, e *record.Entry) {
		_ = s.task(e) // see dispatch
	})
}

// recent keeps the values that were used last: at least limit of them, and at most
// twice that. A limit of 0 means recentLimit.
type recent[V any] struct {
	limit       int
	now, before map[string]V
}

const recentLimit = 4096

func (c *recent[V]) get(key string) (v V, ok bool) {
	if v, ok = c.now[key]; ok {
		return v, true
	}
	v, ok = c.before[key]
	return v, ok
}

func (c *recent[V]) put(key string, v V) {
	if _, ok := c.now[key]; !ok && len(c.now) >= cmp.Or(c.limit, recentLimit) || c.now == nil {
		c.before, c.now = c.now, map[string]V{}
	}
	c.now[key] = v
}

// link returns the values of insertEntry for a row.
func (l *Ledger) link(tx *store.Tx, r *row, seq uint64) ([]any, error) {
	prev, err := l.chains.next(tx, r.entry, seq)
	if err != nil {
		return nil, err
	}
	leaf, err := prev.Link(r.leaf)
	if err != nil {
		return nil, err
	}
	hash := logproof.LeafHash(leaf)
	args := []any{int64(seq), r.at, string(r.entry.Kind), nil, nil, string(leaf), hash[:]} //nolint:gosec // G115: a log does not reach 2^63 entries
	if r.entry.Dispatch != "" {
		args[3] = string(r.entry.Dispatch)
	}
	if r.entry.Run != "" {
		args[4] = r.entry.Run
	}
	return append(args, r.search...), nil
}
