package audit

import (
	"errors"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// proves R-A7 (the last entry of a run reveals whether one is withheld)
func TestEntriesLinkToThePreviousOneOfTheirRunDispatchAndRules(t *testing.T) {
	l, _, _ := ledger(t)
	step := func(run string, d api.DispatchID) Item {
		if run == "" {
			return Item{Entry: record.Entry{Kind: record.KindToolChanged, Dispatch: d, Detail: record.ToolChange{}}}
		}
		return Item{Entry: record.Entry{Kind: record.KindTaskDone, Run: run, Task: "a", Dispatch: d, Detail: record.TaskStep{}}}
	}
	submit := func(run string) Item {
		return Item{Decision: decide(t, "local:root"), Entry: record.Entry{Kind: record.KindRunSubmitted, Run: run, Detail: record.RunRequest{}}}
	}
	rule := func(n int64) Item {
		return Item{Entry: record.Entry{Kind: record.KindCatalogRevision, Detail: record.RevisionSeen{Number: n}}}
	}
	for _, batch := range [][]Item{
		{submit("a"), submit("b"), step("a", "x")},     // 0 1 2
		{step("b", ""), step("a", "x"), step("", "x")}, // 3 4 5
		{rule(1), step("a", "y"), rule(2)},             // 6 7 8
		{step("b", "y")},                               // 9
	} {
		if err := l.CommitAll(t.Context(), batch, nil); err != nil {
			t.Fatal(err)
		}
	}
	list, err := l.List(t.Context(), Query{})
	if err != nil {
		t.Fatal(err)
	}
	want := []record.Prev{{}, {}, {Run: 1}, {Run: 2}, {Run: 3, Dispatch: 3}, {Dispatch: 5}, {}, {Run: 5}, {Rule: 7}, {Run: 4, Dispatch: 8}}
	for i, c := range list {
		if c.Entry.Prev != want[i] {
			t.Errorf("entry #%d: %+v, want %+v", i, c.Entry.Prev, want[i])
		}
	}
}

// A service that ends between the slot of a schedule and the submission of its run
// leaves a log that the next one continues. The control is a second submission.
//
// proves R-O10, R-A1
func TestARunIsSubmittedAfterItsSlotFiredBeforeARestart(t *testing.T) {
	w := newWorld(t)
	restart := func() error { w.close(); return w.open(t) }
	must(t, w.open(t))
	w.commit(t, Item{Entry: record.Entry{Kind: record.KindScheduleFired, Run: "nightly", Detail: record.ScheduleSlot{}}})
	w.covered(t)
	must(t, restart())
	submit := Item{Decision: decide(t, "local:root"), Entry: record.Entry{Kind: record.KindRunSubmitted, Run: "nightly", Detail: record.RunRequest{}}}
	w.commit(t, submit)
	w.covered(t)
	must(t, restart())
	w.commit(t, submit)
	if err := restart(); !errors.Is(err, ErrImpossible) {
		t.Errorf("submitted twice: %v", err)
	}
}

func (w *world) commit(t *testing.T, item Item) {
	t.Helper()
	must(t, w.ledger.CommitAll(t.Context(), []Item{item}, nil))
}
