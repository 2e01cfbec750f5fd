package approval

import (
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

func writeAction(dispatch api.DispatchID) api.TaskAction {
	a := taskAction("ship")
	a.Write = &api.WriteAction{
		Dispatch: dispatch, Subagent: "ship", Tier: api.Reversible, Target: "local", Revision: api.DigestOf([]byte("rev")), Input: []byte(`{"do":"it"}`),
		Source: &api.PinnedSource{Name: "repo", Commit: "c1"}, Needs: []api.WriteNeed{{Name: "in", Task: "build", Dispatch: "d-one", Kind: "patch", Digest: api.DigestOf([]byte("p"))}},
	}
	return a
}

func (d *desk) useTask(a api.TaskAction) (used bool) {
	d.t.Helper()
	d.must(d.st.Update(d.t.Context(), func(tx *store.Tx) (err error) {
		used, err = d.UseTask(tx, a)
		return err
	}))
	return used
}

// What a task writes is admitted once, after enough people approved exactly that: another
// attempt, other content, other people or another run do not use it, nor does it after
// one person. Another rule ends what was asked, and a task that ended has nothing to use.
//
// proves R-O12
func TestAnApprovalOfAWriteIsUsedOnceForItsContent(t *testing.T) {
	d := newDesk(t)
	a := d.askTask(writeAction("t-one"))
	if again := d.askTask(writeAction("t-one")); again.Action.ID != a.Action.ID {
		t.Fatalf("asked twice: %s and %s", a.Action.ID, again.Action.ID)
	}
	d.must(d.says(api.VerbApprove, "human:ann", "k1", a, nil))
	if d.useTask(writeAction("t-one")) {
		t.Fatal("used after one of two people")
	}
	d.must(d.says(api.VerbApprove, "human:bob", "k2", a, nil))
	for name, change := range map[string]func(a *api.TaskAction){
		"attempt":   func(a *api.TaskAction) { a.Write.Dispatch = "t-two" },
		"subagent":  func(a *api.TaskAction) { a.Write.Subagent = "other" },
		"tier":      func(a *api.TaskAction) { a.Write.Tier = api.Irreversible },
		"target":    func(a *api.TaskAction) { a.Write.Target = "far" },
		"revision":  func(a *api.TaskAction) { a.Write.Revision = api.DigestOf([]byte("rev2")) },
		"env":       func(a *api.TaskAction) { a.Write.Envs = []api.Name{"prod"} },
		"tools":     func(a *api.TaskAction) { a.Write.Capabilities = []api.Name{"more"} },
		"commit":    func(a *api.TaskAction) { a.Write.Source.Commit = "c2" },
		"input":     func(a *api.TaskAction) { a.Write.Input = []byte(`{"do":"more"}`) },
		"patch":     func(a *api.TaskAction) { a.Write.Needs[0].Digest = api.DigestOf([]byte("q")) },
		"taint":     func(a *api.TaskAction) { a.Write.Taint = &api.Taint{Dispatch: "d-one"} },
		"people":    func(a *api.TaskAction) { a.By = append(a.By, "human:eve") },
		"count":     func(a *api.TaskAction) { a.Needs = 3 },
		"submitter": func(a *api.TaskAction) { a.Principal = "local:zoe" },
		"run":       func(a *api.TaskAction) { a.Run = "r-two" },
		"task":      func(a *api.TaskAction) { a.Task = "other" },
		"nothing":   func(a *api.TaskAction) { a.Write = nil },
	} {
		other := writeAction("t-one")
		if change(&other); d.useTask(other) {
			t.Errorf("used for another %s", name)
		}
	}
	d.close()
	d.open(store.Open)
	if !d.useTask(writeAction("t-one")) || d.state(a.Action.ID) != api.ApprovalUsed {
		t.Fatalf("control: %s", d.state(a.Action.ID))
	}
	if d.useTask(writeAction("t-one")) {
		t.Error("used twice")
	}

	retry := d.askTask(writeAction("t-two"))
	if retry.Action.ID == a.Action.ID || retry.State != api.ApprovalOpen {
		t.Fatalf("a retry has %s, %s", retry.Action.ID, retry.State)
	}
	stricter := writeAction("t-two")
	stricter.Needs = 1
	now := d.askTask(stricter)
	if now.Action.ID == retry.Action.ID || d.state(retry.Action.ID) != api.ApprovalEnded {
		t.Errorf("another rule asks %s, and the earlier request is %s", now.Action.ID, d.state(retry.Action.ID))
	}
	d.must(d.says(api.VerbApprove, "human:ann", "k1", now, nil))
	d.must(d.endTask("ship", false))
	if d.useTask(stricter) || d.state(now.Action.ID) != api.ApprovalEnded {
		t.Errorf("after the task ended: %s", d.state(now.Action.ID))
	}
}
