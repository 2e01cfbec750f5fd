package approval

import (
	"errors"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

func taskAction(task api.TaskID) api.TaskAction {
	return api.TaskAction{
		V: 1, Run: "r-one", Task: task, Principal: "local:carl", Plan: api.DigestOf([]byte("p")), By: []api.Principal{"human:ann", "human:bob", "local:ann", "human:carl", "agent:claude"}, Needs: 2,
		Shown: []api.ShownTask{{Task: "build", Dispatch: "d-one", Result: api.DigestOf([]byte("r")), Patch: &api.Artifact{Digest: api.DigestOf([]byte("patch")), Size: 5}}},
	}
}

func (d *desk) askTask(a api.TaskAction) api.Approval {
	d.t.Helper()
	got, err := d.AskTask(d.t.Context(), a, time.Hour, func(*store.Tx) error { return nil })
	d.must(err)
	return got
}

func (d *desk) endTask(task api.TaskID, done bool) error {
	return d.st.Update(d.t.Context(), func(tx *store.Tx) error { return d.EndTask(tx, "r-one", task, done) })
}

// A task is approved by distinct people in its list with distinct keys, and used once:
// not by who submitted the run, a program, a person beyond the list, the same person or key twice.
//
// proves R-O9
func TestPeopleApproveATask(t *testing.T) {
	d := newDesk(t)
	a := d.askTask(taskAction("ship"))
	if again := d.askTask(taskAction("ship")); again.Action.ID != a.Action.ID {
		t.Fatalf("asked twice: %s and %s", a.Action.ID, again.Action.ID)
	}
	wants(t, d.endTask("ship", true), "no approval to use")
	wants(t, d.says(api.VerbApprove, "human:carl", "k9", a, nil), "submitted run r-one")
	wants(t, d.says(api.VerbApprove, "agent:claude", "k9", a, nil), "is a program")
	wants(t, d.says(api.VerbApprove, "human:eve", "k9", a, nil), "does not list human:eve")
	wants(t, d.says(api.VerbApprove, "human:ann", "k1", a, func(r *api.OperatorRecord) { r.Content = api.DigestOf([]byte("other")) }), "is about action")
	d.must(d.says(api.VerbApprove, "human:ann", "k1", a, nil))
	wants(t, d.endTask("ship", true), "no approval to use")
	wants(t, d.says(api.VerbApprove, "local:ann", "k2", a, nil), "another person")
	wants(t, d.says(api.VerbApprove, "human:bob", "k1", a, nil), "key")
	if s := d.state(a.Action.ID); s != api.ApprovalOpen {
		t.Fatalf("after one person: %s", s)
	}
	d.must(d.says(api.VerbApprove, "human:bob", "k2", a, nil))
	d.wall = d.wall.Add(2 * time.Hour) // what is approved does not expire
	if _, err := d.expireDue(t.Context()); err != nil || d.state(a.Action.ID) != api.ApprovalApproved {
		t.Fatalf("after two people: %s %v", d.state(a.Action.ID), err)
	}
	d.must(d.endTask("ship", true))
	wants(t, d.endTask("ship", true), "no approval to use")
	if s := d.state(a.Action.ID); s != api.ApprovalUsed {
		t.Errorf("used: %s", s)
	}
}

// A request is seen by the owner of its work, by those it asks, and by operators: the
// account of the service, and who holds an operator key. It is hidden from anyone else.
//
// proves R-O9, R-B6
func TestWhoSeesARequest(t *testing.T) {
	d := newDesk(t)
	d.operator = "local:alice"
	task, call := d.askTask(taskAction("ship")), d.ask(action())
	for p, want := range map[api.Principal][2]bool{
		"local:carl": {true, false}, "agent:claude": {true, true}, "human:bob": {true, true}, "human:carl": {true, false},
		"local:service": {true, true}, "local:alice": {true, true}, "human:alice": {}, "human:eve": {}, "": {},
	} {
		mayRead, err := d.MayRead(t.Context(), p)
		d.must(err)
		if got := [2]bool{mayRead(&task), mayRead(&call)}; got != want {
			t.Errorf("%q sees task and call: %v, want %v", p, got, want)
		}
	}
}

// One denial is enough, nobody decides after the time, and a task that ended asks nobody.
// What is decided survives a restart, and the engine is told of it.
//
// proves R-O9
func TestATaskIsDeniedOrExpires(t *testing.T) {
	d := newDesk(t)
	denied, late, ended := d.askTask(taskAction("denied")), d.askTask(taskAction("late")), d.askTask(taskAction("ended"))
	d.told = nil
	d.must(d.says(api.VerbDeny, "human:bob", "k2", denied, nil))
	wants(t, d.says(api.VerbApprove, "human:ann", "k1", denied, nil), "is denied")
	if len(d.told) != 1 || d.told[0] != "denied" {
		t.Errorf("told of %v", d.told)
	}
	d.must(d.endTask("ended", false))
	wants(t, d.says(api.VerbApprove, "human:ann", "k1", ended, nil), "is ended")
	d.wall, d.steady = d.wall.Add(time.Hour), d.steady.Add(time.Hour)
	wants(t, d.says(api.VerbApprove, "human:ann", "k1", late, nil), "expire")
	_, err := d.expireDue(t.Context())
	d.must(err)
	d.close()
	d.open(store.Open)
	for id, want := range map[api.ApprovalID]api.ApprovalState{denied.Action.ID: api.ApprovalDenied, late.Action.ID: api.ApprovalExpired, ended.Action.ID: api.ApprovalEnded} {
		if s := d.state(id); s != want {
			t.Errorf("%s: %s, want %s", id, s, want)
		}
	}
	gone := errors.New("the task does not wait")
	if _, err := d.AskTask(t.Context(), taskAction("gone"), time.Hour, func(*store.Tx) error { return gone }); !errors.Is(err, gone) {
		t.Errorf("asked for a task that does not wait: %v", err)
	}
	if _, err := d.OfTask(t.Context(), "r-one", "gone", ""); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("and it is stored: %v", err)
	}
}

// Retention removes what people were asked, arguments too, with the evidence of the
// dispatch and the rows of the run. Control: it is there before, and an open one stays.
//
// proves R-O9
func TestRetentionForgetsApprovals(t *testing.T) {
	d := newDesk(t)
	call, task := d.ask(action()), d.askTask(taskAction("ship"))
	forget := func() {
		d.must(d.st.Update(t.Context(), func(tx *store.Tx) error {
			return errors.Join(d.ForgetDispatch(tx, "d-one"), d.ForgetRun(tx, "r-one"))
		}))
	}
	forget()
	for _, a := range []api.Approval{call, task} {
		if _, err := d.Action(t.Context(), a.Action.ID); err != nil {
			t.Errorf("control: %v", err)
		}
	}
	d.must(d.st.Update(t.Context(), func(tx *store.Tx) error { return d.EndDispatch(tx, "d-one") }))
	d.must(d.endTask("ship", false))
	forget()
	for _, a := range []api.Approval{call, task} {
		if _, err := d.Action(t.Context(), a.Action.ID); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("kept: %v", err)
		}
	}
}

// The engine, which may ask before the clock of the requests does, finds a request expired
// only with its entry in the log.
//
// proves R-O9
func TestATaskFindsItsRequestExpiredInTheLog(t *testing.T) {
	d := newDesk(t)
	entries := func() int {
		n, err := d.ledger.List(t.Context(), audit.Query{Kind: record.KindApprovalExpired, Limit: 10})
		d.must(err)
		return len(n)
	}
	if got := d.askTask(taskAction("ship")); got.State != api.ApprovalOpen || entries() != 0 {
		t.Fatalf("control: %s with %d entries", got.State, entries())
	}
	d.wall, d.steady = d.wall.Add(2*time.Hour), d.steady.Add(2*time.Hour)
	for range 2 {
		if got := d.askTask(taskAction("ship")); got.State != api.ApprovalExpired || entries() != 1 {
			t.Errorf("%s with %d entries", got.State, entries())
		}
	}
}
