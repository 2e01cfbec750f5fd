package operator

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

func markNothing(*store.Tx, api.Stop) (int, error) { return 0, nil }

// engage engages a stop for a test.
func (o *office) engage(scope api.StopScope, name string) api.Stop {
	o.t.Helper()
	s, err := o.registry.Engage(o.t.Context(), "local:ann", api.StopRequest{Scope: scope, Name: name, Reason: "strange"}, markNothing)
	if err != nil {
		o.t.Fatal(err)
	}
	return s
}

// holds fails the test unless exactly these stops are in force, outside and inside a
// transaction.
func (o *office) holds(p api.Principal, target api.Name, id api.DispatchID, want ...string) {
	o.t.Helper()
	if got := o.registry.StopsFor(api.StopSubject{Principal: p, Target: target, Dispatch: id}); !slices.Equal(got, want) {
		o.t.Errorf("%s on %s as %s is held by %v, want %v", p, target, id, got, want)
	}
	if err := o.store.Update(o.t.Context(), func(tx *store.Tx) error {
		if got, err := o.registry.StopsIn(tx, api.StopSubject{Principal: p, Target: target, Dispatch: id}); err != nil || !slices.Equal(got, want) {
			o.t.Errorf("in a transaction %s on %s as %s is held by %v, want %v: %v", p, target, id, got, want, err)
		}
		return nil
	}); err != nil {
		o.t.Fatal(err)
	}
}

func (o *office) lift(id string) error {
	o.t.Helper()
	return o.add(o.draft(api.VerbStopLift, func(r *api.OperatorRecord) { r.Stop = id }))
}

// proves R-T10
func TestAStopCoversItsScopeUntilItIsLifted(t *testing.T) {
	o := newOffice(t)
	o.holds("agent:a", "local", "d-aaaa")
	o.engage(api.StopPrincipal, "agent:a")
	o.engage(api.StopTarget, "local")
	o.engage(api.StopDispatch, "d-aaaa")
	check := func() {
		t.Helper()
		o.holds("agent:a", "local", "d-aaaa", "s-1", "s-2", "s-3")
		o.holds("agent:a", "other", "d-bbbb", "s-1")
		o.holds("agent:b", "local", "", "s-2")
		o.holds("agent:b", "other", "d-aaaa", "s-3")
		o.holds("agent:b", "other", "")
	}
	check()
	if err := o.restart(); err != nil { // it lasts
		t.Fatal(err)
	}
	check()
	o.engage(api.StopAll, "")
	o.holds("agent:b", "other", "", "s-4")
	if got := o.registry.Principal("agent:a").Stops; !slices.Equal(got, []string{"s-1", "s-4"}) {
		t.Errorf("agent:a is held by %v", got)
	}
	o.now = o.now.Add(time.Minute)
	for _, id := range []string{"s-4", "s-1"} {
		if err := o.lift(id); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		o.holds("agent:a", "local", "d-aaaa", "s-2", "s-3")
		o.holds("agent:b", "other", "")
		list := o.registry.Stops()
		if len(list) != 4 || list[0].LiftedAt == nil || !list[0].LiftedAt.Equal(o.now) || list[1].LiftedAt != nil || list[3].LiftedAt == nil || list[1].Name != "local" {
			t.Errorf("stops %+v", list)
		}
		if err := o.restart(); err != nil {
			t.Fatal(err)
		}
	}
}

// Lifting needs the operator's key, for this stop, once.
//
// proves R-T10, R-B9
func TestOnlyAnOperatorLiftsAStop(t *testing.T) {
	o := newOffice(t)
	o.engage(api.StopAll, "")
	stranger := newSigner(t)
	lift := o.draft(api.VerbStopLift, func(r *api.OperatorRecord) { r.Stop = "s-1" })
	for name, envelope := range map[string][]byte{
		"a stranger's":             o.sign(lift, seal.Operator, stranger),
		"a signature of a catalog": o.sign(lift, seal.Revision),
		"no envelope":              []byte("{}"),
	} {
		if _, err := o.registry.Add(t.Context(), "local:ann", envelope, nil); err == nil {
			t.Errorf("%s lifts it", name)
		}
	}
	for _, id := range []string{"s-2", "s-9999999"} {
		if err := o.lift(id); api.CodeOf(err) != api.CodeInvalid || !strings.Contains(err.Error(), "no such stop "+id) {
			t.Errorf("lifting %s: %v", id, err)
		}
	}
	o.holds("agent:a", "local", "", "s-1")
	if err := o.lift("s-1"); err != nil { // the control
		t.Fatal(err)
	}
	o.holds("agent:a", "local", "")
	if err := o.lift("s-1"); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("lifting it again: %v", err)
	}
	again := o.engage(api.StopAll, "")
	if again.ID != "s-2" {
		t.Errorf("the next one is %s", again.ID)
	}
	o.holds("agent:a", "local", "", "s-2") // what was signed for s-1 is worth nothing for it
}

// A stop, its log entry and the marks on its dispatches are durable together.
//
// proves R-T10, R-A2
func TestAStopThatCannotBeWrittenIsNotInForce(t *testing.T) {
	o := newOffice(t)
	broken := errors.New("no marks")
	if _, err := o.registry.Engage(t.Context(), "local:ann", api.StopRequest{Scope: api.StopAll}, func(*store.Tx, api.Stop) (int, error) { return 0, broken }); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	o.holds("agent:a", "local", "")
	list, err := o.ledger.List(t.Context(), audit.Query{Kind: record.KindStopEngaged})
	if err != nil || len(list) != 0 {
		t.Errorf("%d entries, %v", len(list), err)
	}
	for _, bad := range []api.StopRequest{{}, {Scope: "most"}, {Scope: api.StopAll, Name: "x"}, {Scope: api.StopTarget, Name: "A\nB"}} {
		if _, err := o.registry.Engage(t.Context(), "local:ann", bad, markNothing); api.CodeOf(err) != api.CodeInvalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	s, err := o.registry.Engage(t.Context(), "local:ann", api.StopRequest{Scope: api.StopTarget, Name: "local", Reason: "two\nlines"}, func(_ *store.Tx, s api.Stop) (int, error) {
		if s.ID != "s-1" || s.By != "local:ann" {
			t.Errorf("marked by %+v", s)
		}
		return 3, nil
	})
	if err != nil || s.ID != "s-1" || s.Cancelled != 3 || !s.At.Equal(o.now) {
		t.Errorf("%+v, %v", s, err)
	}
	list, err = o.ledger.List(t.Context(), audit.Query{Kind: record.KindStopEngaged})
	if err != nil || len(list) != 1 || !strings.Contains(list[0].Line().Text, `local:ann engaged stop s-1 on target local; its dispatches in flight are cancelled: "two\nlines"`) {
		t.Errorf("entries %v, %v", list, err)
	}
}

func TestConcurrentStopsAreAllInForce(t *testing.T) {
	o := newOffice(t)
	const many = 20
	var wait sync.WaitGroup
	for range many {
		wait.Go(func() { o.engage(api.StopAll, "") })
	}
	wait.Wait()
	if err := o.restart(); err != nil {
		t.Fatal(err)
	}
	if got := o.registry.StopsFor(api.StopSubject{Principal: "agent:a", Target: "local"}); len(got) != many || got[many-1] != stopID(many) {
		t.Errorf("held by %v", got)
	}
}

// Writing to the state removes no stop unnoticed: the log says that it was engaged, and
// only a signed record lifts it. The control is the unchanged state.
//
// proves R-T10
func TestATamperedStopRefusesTheStart(t *testing.T) {
	unguarded := []string{"DROP TRIGGER operator_stop_update", "DROP TRIGGER operator_stop_delete"}
	for name, c := range map[string]struct {
		words string // of the refusal; empty: accepted
		sql   string
	}{
		"untouched":      {"", "SELECT 1"},
		"the last gone":  {"stop s-2 is missing", "DELETE FROM operator_stop WHERE number = 2"},
		"the first gone": {"stop s-1 is missing", "DELETE FROM operator_stop WHERE number = 1"},
		"all gone":       {"stop s-1 is missing", "DELETE FROM operator_stop"},
		"narrowed":       {"stop s-2 differs from the one engaged", `UPDATE operator_stop SET stop = replace(stop, '"all"', '"target"') WHERE number = 2`},
		"of another":     {"stop s-1 differs from the one engaged", `UPDATE operator_stop SET stop = replace(stop, 'agent:a', 'agent:b')`},
		"unreadable":     {"stop 1", `UPDATE operator_stop SET stop = '{' WHERE number = 1`},
		"one more":       {"stop s-3 has no log entry", `INSERT INTO operator_stop SELECT 3, replace(stop, 's-2', 's-3') FROM operator_stop WHERE number = 2`},
		"lifted by hand": {"", `UPDATE operator_stop SET stop = replace(stop, '"cancelled"', '"liftedAt":"2026-11-21T14:00:00Z","cancelled"')`},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOffice(t)
			o.engage(api.StopPrincipal, "agent:a")
			o.engage(api.StopAll, "")
			o.write(append(slices.Clone(unguarded), c.sql)...)
			var err error
			if o.store, err = store.Open(t.Context(), o.config()); err != nil {
				t.Fatal(err)
			}
			err = o.open()
			if c.words == "" {
				if err != nil {
					t.Fatal(err)
				}
				o.holds("agent:a", "local", "", "s-1", "s-2")
				if s := o.registry.Stops()[0]; s.LiftedAt != nil {
					t.Errorf("it looks lifted: %+v", s)
				}
				return
			}
			if api.CodeOf(err) != api.CodeIntegrity || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%v, want a refusal that says %q", err, c.words)
			}
		})
	}
}
