package audit

import (
	"errors"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// proves R-A2 (no degraded mode): while the tree is not kept, new work is refused
// with the reason. Denials and facts are written, and work may be ended.
func TestNothingNewIsAdmittedWhileTheTreeIsNotKept(t *testing.T) {
	_, s, _ := ledger(t)
	var why error
	l, err := Open(t.Context(), Config{Store: s, Now: now, Admit: func() error { return why }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Commit(t.Context(), decide(t, "local:root"), accepted("d-before"), pair("before")); err != nil {
		t.Fatalf("control: %v", err)
	}
	why = errors.New("the tree is not kept")
	a, err := l.Commit(t.Context(), decide(t, "local:root"), accepted("d-new"), pair("new"))
	if api.CodeOf(err) != api.CodeAuditUnavailable || !strings.Contains(err.Error(), why.Error()) || a != (Admission{}) {
		t.Errorf("admitted: %v, %v", a, err)
	}
	if got := strings.Join(rows(t, s), " "); got != "before" {
		t.Errorf("rows %q", got)
	}
	if _, err := l.Commit(t.Context(), decide(t, "local:eve"), accepted("d-denied"), nil); api.CodeOf(err) != api.CodeDenied {
		t.Errorf("a denial: %v", err)
	}
	if _, err := l.Record(t.Context(), stopped(), nil); err != nil {
		t.Errorf("a fact: %v", err)
	}
	stop := record.Entry{Kind: record.KindStopRequested, Detail: record.Access{Operation: "service.stop"}}
	if _, err := l.Commit(t.Context(), decide(t, "local:root"), stop, nil); err != nil {
		t.Errorf("the end of the service: %v", err)
	}
	why = nil
	if _, err := l.Commit(t.Context(), decide(t, "local:root"), accepted("d-after"), nil); err != nil {
		t.Errorf("after: %v", err)
	}
}

func TestLeavesReturnsEntriesInOrderWithoutGaps(t *testing.T) {
	l, _, _ := ledger(t)
	for range 10 {
		if _, err := l.Record(t.Context(), stopped(), nil); err != nil {
			t.Fatal(err)
		}
	}
	list, err := l.Leaves(t.Context(), 3, 5)
	if err != nil || len(list) != 5 || list[0].Seq != 3 || list[4].Hash != logproof.LeafHash(list[4].Leaf) {
		t.Errorf("%d, %v", len(list), err)
	}
	if list, err := l.Leaves(t.Context(), 10, 5); err != nil || len(list) != 0 {
		t.Errorf("after the end: %d, %v", len(list), err)
	}
}
