package audit

import (
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/note"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// proves R-A7 (the last entry of a run reveals whether one is withheld)
func TestEntriesLinkToThePreviousOneOfTheirRunDispatchAndRules(t *testing.T) {
	l, _, _ := ledger(t)
	step := func(run, dispatch string) Item {
		return Item{Entry: record.Entry{Kind: record.KindTaskDone, Run: run, Dispatch: api.DispatchID(dispatch), Detail: record.TaskStep{}}}
	}
	rule := Item{Entry: record.Entry{Kind: record.KindCatalogRevision, Detail: record.RevisionSeen{}}}
	for _, batch := range [][]Item{
		{step("a", "x")}, // 0
		{step("b", ""), step("a", "x"), step("", "x")}, // 1 2 3
		{rule, step("a", "y"), rule},                   // 4 5 6
		{step("b", "y")},                               // 7
	} {
		if err := l.CommitAll(t.Context(), batch, nil); err != nil {
			t.Fatal(err)
		}
	}
	list, err := l.List(t.Context(), Query{})
	if err != nil {
		t.Fatal(err)
	}
	want := []record.Prev{{}, {}, {Run: 1, Dispatch: 1}, {Dispatch: 3}, {}, {Run: 3}, {Rule: 5}, {Run: 2, Dispatch: 6}}
	for i, c := range list {
		if c.Entry.Prev != want[i] {
			t.Errorf("entry #%d: %+v, want %+v", i, c.Entry.Prev, want[i])
		}
	}
}

func TestCheckChainsFindsAnUnlinkedEntry(t *testing.T) {
	l, s, _ := ledger(t)
	for range 3 {
		if _, err := l.Record(t.Context(), record.Entry{Kind: record.KindTaskDone, Run: "a", Detail: record.TaskStep{}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := l.CheckChains(t.Context()); err != nil || n != 3 {
		t.Fatal(n, err)
	}
	// As by a compromised service: all is valid but the link.
	leaf, err := (&record.Entry{Kind: record.KindTaskDone, At: now(), Decision: record.NoDecided, Run: "a", Detail: record.TaskStep{}}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	hash := note.LeafHash(leaf)
	if err := s.Update(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec(insertEntry, 3, now().UnixMicro(), string(record.KindTaskDone), nil, "a", string(leaf), hash[:], nil, nil, nil, nil)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.CheckChains(t.Context()); err == nil {
		t.Error("CheckChains found nothing")
	}
}
