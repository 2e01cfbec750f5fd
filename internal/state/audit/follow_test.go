package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// lived is a log with one dispatch and one run of each state: ended and attested,
// ended, open, settled.
func lived(t *testing.T, w *world) {
	t.Helper()
	admitted := func(e record.Entry) Item { return Item{Decision: decide(t, "local:root"), Entry: e} }
	fact := func(kind record.Kind, dispatch, run, task string, attempt int) Item {
		return Item{Entry: step(kind, run, task, dispatch, attempt)}
	}
	rule := func(kind record.Kind, d record.Detail) Item { return Item{Entry: record.Entry{Kind: kind, Detail: d}} }
	list := []Item{
		rule(record.KindCatalogRevision, record.RevisionSeen{Number: 1}),
		rule(record.KindCatalogRevision, record.RevisionSeen{Number: 2}),
		rule(record.KindOperatorRecorded, record.OperatorDecision{Number: 1, Verb: "principal.add"}),
	}
	for _, id := range []string{"d-attested", "d-ended", "d-open"} {
		list = append(list, admitted(accepted(id)), fact(record.KindDispatchStarted, id, "", "", 1))
		if id != "d-open" {
			list = append(list, fact(record.KindDispatchFinished, id, "", "", 1))
		}
	}
	list = append(list, fact(record.KindDispatchAttested, "d-attested", "", "", 1))
	for _, run := range []string{"r-settled", "r-open"} {
		list = append(list, admitted(record.Entry{Kind: record.KindRunSubmitted, Run: run, Detail: record.RunRequest{Tasks: 2}}),
			fact(record.KindTaskStarted, run+"-a", run, "a", 1), fact(record.KindTaskFailed, run+"-a", run, "a", 1),
			fact(record.KindTaskStarted, run+"-b", run, "b", 1))
	}
	list = append(list, fact(record.KindTaskFailed, "r-settled-b", "r-settled", "b", 1), fact(record.KindRunSettled, "", "r-settled", "", 0))
	must(t, w.ledger.CommitAll(t.Context(), list, nil))
	w.n += len(list)
}

// afterTheEnd returns entries that cannot follow those of lived, because a dispatch
// or run is over, or by the order of the rules.
func afterTheEnd() map[string]record.Entry {
	rule := func(kind record.Kind, d record.Detail) record.Entry { return record.Entry{Kind: kind, Detail: d} }
	return map[string]record.Entry{
		"a second end":                     step(record.KindDispatchFailed, "", "", "d-ended", 1),
		"the same end":                     step(record.KindDispatchFinished, "", "", "d-ended", 1),
		"a second end after the statement": step(record.KindDispatchCancelled, "", "", "d-attested", 1),
		"a second statement":               step(record.KindDispatchAttested, "", "", "d-attested", 1),
		"a recovery after the statement":   step(record.KindDispatchRecovered, "", "", "d-attested", 1),
		"a second settlement":              step(record.KindRunSettled, "r-settled", "", "", 0),
		"a step after the settlement":      step(record.KindTaskDone, "r-settled", "b", "r-settled-b", 1),
		"an expiry after the settlement":   step(record.KindRunExpired, "r-settled", "", "", 0),
		"an older catalog revision":        rule(record.KindCatalogRevision, record.RevisionSeen{Number: 1}),
		"the same catalog revision":        rule(record.KindCatalogRevision, record.RevisionSeen{Number: 2}),
		"an operator's record again":       rule(record.KindOperatorRecorded, record.OperatorDecision{Number: 1, Verb: "principal.add"}),
		"an operator's record left out":    rule(record.KindOperatorRecorded, record.OperatorDecision{Number: 3, Verb: "principal.add"}),
	}
}

// beforeTheEnd returns other entries that cannot follow those of lived. The service
// refuses them itself, by the same tables.
func beforeTheEnd() map[string]record.Entry {
	return map[string]record.Entry{
		"a statement before the end":             step(record.KindDispatchAttested, "", "", "d-open", 1),
		"a start of what runs":                   step(record.KindDispatchStarted, "", "", "d-open", 1),
		"the end of another attempt":             step(record.KindDispatchFinished, "", "", "d-open", 2),
		"the end of a dispatch that never was":   step(record.KindDispatchFinished, "", "", "d-none", 1),
		"a step of a run that was not submitted": step(record.KindTaskDone, "r-none", "a", "d-none", 1),
		"a second end of a task":                 step(record.KindTaskDone, "r-open", "a", "r-open-a", 1),
		"an end of a task that never began":      step(record.KindTaskDone, "r-open", "c", "d-none", 1),
		"an end by another dispatch":             step(record.KindTaskDone, "r-open", "b", "r-open-a", 1),
		"a second start of a task that runs":     step(record.KindTaskStarted, "r-open", "b", "r-open-b2", 2),
		"an end of an attempt that never was":    step(record.KindTaskFailed, "r-open", "b", "r-open-b", 2),
		"a task skipped while it runs":           step(record.KindTaskSkipped, "r-open", "b", "r-open-b", 1),
		"an answer to a task that asks nothing":  step(record.KindTaskAnswered, "r-open", "b", "", 0),
	}
}

func step(kind record.Kind, run, task, dispatch string, attempt int) record.Entry {
	return record.Entry{Kind: kind, Decision: kind.Decided(), Run: run, Task: task, Dispatch: api.DispatchID(dispatch), Attempt: attempt, Detail: kind.Detail()}
}

// plant writes an entry into the table as somebody with write access can: with the
// right number, hash, columns and links, unless change alters those.
func (w *world) plant(t *testing.T, e record.Entry, change func(*record.Prev)) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+w.path("store", "state.db")+"?_pragma=busy_timeout(5000)")
	must(t, err)
	defer db.Close()
	one := func(q string, args ...any) (n uint64) {
		must(t, db.QueryRowContext(t.Context(), "SELECT coalesce(max(seq) + 1, 0) FROM audit_entry "+q, args...).Scan(&n))
		return n
	}
	e.At, e.Decision = w.clock(), e.Kind.Decided()
	if e.Decision != record.NoDecided {
		e.Principal = "local:root"
	}
	var dispatch, run, task any
	if e.Dispatch != "" {
		dispatch, e.Prev.Dispatch = string(e.Dispatch), one("WHERE dispatch = ?", string(e.Dispatch))
	}
	if e.Run != "" {
		run, e.Prev.Run = e.Run, one("WHERE run = ?", e.Run)
	}
	if e.Task != "" {
		task = e.Task
	}
	if e.Kind.Rules() || e.Kind.Admits() {
		e.Prev.Rule = one("WHERE kind IN ('catalog.revision', 'operator.recorded', 'stop.engaged')")
	}
	if change != nil {
		change(&e.Prev)
	}
	leaf, err := e.Encode()
	must(t, err)
	hash := logproof.LeafHash(leaf)
	var principal any
	if e.Principal != "" {
		principal = string(e.Principal)
	}
	_, err = db.ExecContext(t.Context(), insertEntry, one(""), e.At.UnixMicro(), string(e.Kind), dispatch, run, string(leaf), hash[:], principal, task, nil, nil)
	must(t, err)
}

// The log refuses what cannot follow when it is written, and continues: an entry
// that could never be signed would end it.
//
// proves R-A1, R-A7
func TestTheLogRefusesWhatCannotFollow(t *testing.T) {
	for name, e := range afterTheEnd() {
		w := newWorld(t)
		lived(t, w)
		e.Decision = e.Kind.Decided()
		if _, err := w.ledger.append(t.Context(), &e, nil); !errors.Is(err, ErrImpossible) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := w.ledger.Record(t.Context(), record.Entry{Kind: record.KindDispatchFinished, Dispatch: "d-open", Attempt: 1, Detail: record.DispatchEnd{}}, nil); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
		if n, err := w.ledger.CheckChains(t.Context()); err != nil || n != uint64(w.n+1) { //nolint:gosec // G115: small
			t.Errorf("after %s: %d entries, %v", name, n, err)
		}
	}
}

// An entry that somebody wrote into the table, and that cannot follow those before
// it, is not signed: not at the next start, and not while the service runs. The
// control is an entry that can follow: it is signed, because nothing tells it from
// one of the service.
//
// takeover both modes, database: yes forge evidence
//
// proves R-A1, R-A7
func TestAnEntryWrittenIntoTheTableIsNotSigned(t *testing.T) {
	type attack struct {
		entry  record.Entry
		change func(*record.Prev)
	}
	attacks := map[string]attack{
		"past the chain of its dispatch": {record.Entry{Kind: record.KindDispatchPinned, Dispatch: "d-ended", Policies: []string{"owner"}, Detail: record.Access{}}, func(p *record.Prev) { p.Dispatch = 0 }},
		"past the chain of its run":      {record.Entry{Kind: record.KindRunPaused, Run: "r-open", Policies: []string{"owner"}, Detail: record.RunAction{}}, func(p *record.Prev) { p.Run-- }},
		"past the chain of the rules":    {record.Entry{Kind: record.KindStopEngaged, Detail: record.StopEngaged{}}, func(p *record.Prev) { p.Rule = 0 }},
	}
	for _, list := range []map[string]record.Entry{afterTheEnd(), beforeTheEnd()} {
		for name, e := range list {
			attacks[name] = attack{entry: e}
		}
	}
	for name, a := range attacks {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			must(t, w.open(t))
			lived(t, w)
			before := w.covered(t)
			w.close()
			w.plant(t, a.entry, a.change)
			if err := w.open(t); !errors.Is(err, ErrImpossible) || !strings.Contains(err.Error(), fmt.Sprintf("entry #%d", before.Size)) {
				t.Errorf("at the start: %v", err)
			}
			if _, err := w.ledger.CheckChains(t.Context()); !errors.Is(err, ErrImpossible) {
				t.Errorf("the whole log: %v", err)
			}
			w.close()
			w.edit(t, fmt.Sprintf("DELETE FROM audit_entry WHERE seq = %d", before.Size))

			must(t, w.open(t))
			w.plant(t, a.entry, a.change)
			w.log.wake.Send()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := w.log.Wait(ctx, before.Size+1); !errors.Is(err, ErrImpossible) || w.log.Admit() == nil {
				t.Errorf("while it runs: %v, and admits: %v", err, w.log.Admit())
			}
			if _, c := w.log.Latest(); c.Size != before.Size {
				t.Errorf("%d entries are signed, want %d", c.Size, before.Size)
			}
		})
	}
	t.Run("control: it can follow", func(t *testing.T) {
		w := newWorld(t)
		must(t, w.open(t))
		lived(t, w)
		c := w.covered(t)
		w.close()
		w.plant(t, record.Entry{Kind: record.KindDispatchFailed, Dispatch: "d-open", Attempt: 1, Detail: record.DispatchEnd{Reason: "lost"}}, nil)
		w.n++
		must(t, w.open(t))
		if w.covered(t).Size != c.Size+1 {
			t.Error("it is not signed")
		}
		if n, err := w.ledger.CheckChains(t.Context()); err != nil || n != c.Size+1 {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// A chain that is not in memory any more is read from the table, with the same
// result; memory does not grow with the log.
func TestChainsAreReadAgain(t *testing.T) {
	w := newWorld(t)
	must(t, w.open(t))
	const limit, most = 64, 50
	c := &w.ledger.chains.dispatches
	c.limit = limit
	lived(t, w)
	for range 4 * limit / most {
		var list []Item
		for range most {
			id := fmt.Sprintf("d-%d", w.n)
			list = append(list, Item{Decision: decide(t, "local:root"), Entry: AccessEntry(api.DispatchID(id), "read")})
			w.n++
		}
		must(t, w.ledger.CommitAll(t.Context(), list, nil))
	}
	if n := len(c.now) + len(c.before); n > 2*limit {
		t.Errorf("%d chains in memory", n)
	}
	if _, ok := c.get("d-ended"); ok {
		t.Error("control: the chain is still in memory")
	}
	for name, e := range afterTheEnd() {
		e.Decision = e.Kind.Decided()
		if _, err := w.ledger.append(t.Context(), &e, nil); !errors.Is(err, ErrImpossible) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := w.ledger.Record(t.Context(), record.Entry{Kind: record.KindTaskDone, Run: "r-open", Task: "b", Dispatch: "r-open-b", Attempt: 1, Detail: record.TaskStep{}}, nil); err != nil {
		t.Error(err)
	}
	w.n++
	w.covered(t)
	if n, err := w.ledger.CheckChains(t.Context()); err != nil || n != uint64(w.n) { //nolint:gosec // G115: small
		t.Errorf("%d, %v", n, err)
	}
}
