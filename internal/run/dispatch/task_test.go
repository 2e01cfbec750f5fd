package dispatch

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/run/executor"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

const runManifest = `version: 1
subagents:
  - {name: edit, agent: command, command: ["true"], role: transform, tier: observe, target: local, description: %s}
  - {name: change, agent: command, command: ["true"], role: transform, tier: reversible, target: local}
envs:
  - {name: red, values: {COLOUR: red}}
  - {name: blue, values: {COLOUR: blue}}
targets:
  - {name: local, executor: jail, level: full, mode: guarded}
roles: [transform]
grants:
  - {principal: "local:ann", subagents: [%s], envs: [red, blue], targets: [local], ceiling: irreversible}
  - {principal: "local:bob", subagents: [edit], targets: [local], ceiling: reversible}
`

func newRunGate(t *testing.T) gate {
	t.Helper()
	return newCatalogGate(t, fmt.Sprintf(runManifest, "first", "edit, change"))
}

// rootOf trusts these keys with a threshold of one.
func rootOf(keys ...seal.Signer) seal.TrustRoot {
	var list []seal.Key
	for _, k := range keys {
		list = append(list, seal.KeyOf(k, string(k.KeyID())))
	}
	return seal.RootOf(list...)
}

func (g gate) apply(t *testing.T, manifest string) {
	t.Helper()
	g.publish(t, rootOf(g.deployKey), g.deployKey, manifest)
}

// taskRequest returns the request of a task of run r-1, with the revision in force.
func (g gate) taskRequest(t *testing.T, id api.DispatchID) TaskRequest {
	t.Helper()
	p, err := g.cfg.InForce.Current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return TaskRequest{Request: api.DispatchRequest{Subagent: "edit", DispatchID: id}, Run: "r-1", Task: "t-1", Revision: p.Revision.Digest(), Fence: 7}
}

func (g gate) manifestOf(t *testing.T, d api.Dispatch) record.Manifest {
	t.Helper()
	m, err := g.manifest(t.Context(), d.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (g gate) submitTask(t *testing.T, o TaskRequest) api.Dispatch {
	t.Helper()
	d, err := g.SubmitTask(t.Context(), ann, o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The dispatch of a task is like any other, and names its run in its manifest,
// its record and its entries.
//
// proves R-O2, R-A3
func TestTaskDispatchNamesItsRun(t *testing.T) {
	g := newRunGate(t)
	d := g.submitTask(t, g.taskRequest(t, "d-task"))
	m := g.manifestOf(t, d)
	if d.Run != "r-1" || d.Task != "t-1" || m.Run != "r-1" || m.Task != "t-1" || m.Fence != 7 || m.Attempt != 1 || d.Principal != "local:ann" {
		t.Errorf("record %+v, manifest %+v", d, m)
	}
	plain, err := g.Submit(t.Context(), ann, api.DispatchRequest{Subagent: "edit", DispatchID: "d-plain"})
	if err != nil {
		t.Fatal(err)
	}
	if m := g.manifestOf(t, plain); plain.Run != "" || m.Run != "" || m.Task != "" || m.Fence != 0 {
		t.Errorf("%+v", m)
	}
	if !g.started(t) {
		t.Error("no worker was started")
	}
	if _, err := g.Pin(t.Context(), "local:ann", "d-task", true); err != nil {
		t.Fatal(err)
	}
	want := map[record.Kind]bool{record.KindDispatchAccepted: true, record.KindDispatchFailed: true, record.KindDispatchPinned: false}
	for _, id := range []api.DispatchID{"d-task", "d-plain"} {
		list, err := g.cfg.Ledger.List(t.Context(), audit.Query{Dispatch: id})
		if err != nil || len(list) < 2 {
			t.Fatalf("%v, %v", list, err)
		}
		for _, c := range list {
			e := c.Entry
			if of := e.Run == "r-1" && e.Task == "t-1"; of != (id == "d-task" && want[e.Kind]) || e.Run == "" && e.Task != "" {
				t.Errorf("entry %s of %s: run %q, task %q", e.Kind, id, e.Run, e.Task)
			}
		}
	}
	if got, ok, err := g.Get(t.Context(), "d-task"); err != nil || !ok || got.State != api.EventFailed || got.Run != "r-1" {
		t.Errorf("%+v, %v, %v", got, ok, err)
	}
	if _, ok, err := g.Get(t.Context(), "d-none"); err != nil || ok {
		t.Errorf("one that is not there: %v, %v", ok, err)
	}
}

// The same task request again, as after a crash, is the same dispatch, whatever
// its state. Another request under its id is a conflict.
//
// proves R-O6
func TestSameTaskRequestIsSameDispatch(t *testing.T) {
	g := newRunGate(t)
	o := g.taskRequest(t, "d-task")
	first := g.submitTask(t, o)
	g.started(t)
	again := g.submitTask(t, o)
	if again.Manifest != first.Manifest || again.State != api.EventFailed {
		t.Errorf("%+v", again)
	}
	for name, change := range map[string]func(*TaskRequest){
		"another run":      func(o *TaskRequest) { o.Run = "r-2" },
		"another task":     func(o *TaskRequest) { o.Task = "t-2" },
		"another lease":    func(o *TaskRequest) { o.Fence = 8 },
		"another input":    func(o *TaskRequest) { o.Request.Input = []byte(`{"n":1}`) },
		"another subagent": func(o *TaskRequest) { o.Request.Envs = []api.Name{"red"} },
	} {
		c := o
		change(&c)
		if _, err := g.SubmitTask(t.Context(), ann, c); api.CodeOf(err) != api.CodeConflict {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list, err := g.cfg.Ledger.List(t.Context(), audit.Query{Kind: record.KindDispatchAccepted}); err != nil || len(list) != 1 {
		t.Errorf("%d were admitted, %v", len(list), err)
	}
}

// A row that was stored before 0.1.0 has the digest of a document whose member of the task
// is "order". Its request is recognised; one that differs is not.
//
// proves R-O6
func TestATaskIsRecognisedByItsEarlierDigest(t *testing.T) {
	g := newRunGate(t)
	o := g.taskRequest(t, "d-task")
	first := g.submitTask(t, o)
	g.started(t)
	sub, err := newSubmission(ann, o.Request, &o)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := canon.Marshal(struct {
		Principal api.Principal       `json:"principal"`
		Request   api.DispatchRequest `json:"request"`
		Task      *TaskRequest        `json:"order"`
	}{sub.caller.Principal, sub.request, sub.task})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.cfg.Store.Update(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE dispatch SET request = ? WHERE id = ?", api.DigestOf(doc), o.Request.DispatchID)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if again := g.submitTask(t, o); again.Manifest != first.Manifest {
		t.Errorf("%+v", again)
	}
	o.Fence++
	if _, err := g.SubmitTask(t.Context(), ann, o); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("another lease: %v", err)
	}
}

// A caller who learns the id of a dispatch that a run is about to submit gains
// nothing by taking it: the task fails, and neither of the two learns anything
// of the other's.
//
// proves R-O6, R-B6
func TestUsedDispatchIDIsAConflictAndRevealsNothing(t *testing.T) {
	g := newRunGate(t)
	bob := Caller{Principal: "local:bob", Ceiling: api.Irreversible}
	if _, err := g.Submit(t.Context(), bob, api.DispatchRequest{Subagent: "edit", DispatchID: "d-other"}); err != nil {
		t.Fatal(err)
	}
	// Her own request, of the same content, is no order either.
	if _, err := g.Submit(t.Context(), ann, api.DispatchRequest{Subagent: "edit", DispatchID: "d-own"}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []api.DispatchID{"d-other", "d-own"} {
		d, err := g.SubmitTask(t.Context(), ann, g.taskRequest(t, id))
		if api.CodeOf(err) != api.CodeConflict || d.ID != "" || strings.Contains(err.Error(), "bob") {
			t.Errorf("%s: %+v, %v", id, d, err)
		}
	}
	g.submitTask(t, g.taskRequest(t, "d-task"))
	for _, who := range []Caller{ann, bob} {
		d, err := g.Submit(t.Context(), who, api.DispatchRequest{Subagent: "edit", DispatchID: "d-task"})
		if api.CodeOf(err) != api.CodeConflict || d.ID != "" || strings.Contains(err.Error(), "r-1") {
			t.Errorf("%s: %+v, %v", who.Principal, d, err)
		}
	}
	// Who may not dispatch is denied, and does not even learn that it is taken.
	stranger := Caller{Principal: "local:eve", Ceiling: api.Irreversible}
	if _, err := g.Submit(t.Context(), stranger, api.DispatchRequest{Subagent: "edit", DispatchID: "d-task"}); api.CodeOf(err) != api.CodeDenied {
		t.Errorf("%v", err)
	}
}

// The names of a run mean what they meant when it was submitted, whatever was
// applied since; a dispatch outside a run uses the revision in force.
//
// proves R-C4
func TestPinnedRevisionOutlivesLaterApply(t *testing.T) {
	g := newRunGate(t)
	o := g.taskRequest(t, "d-old")
	g.apply(t, fmt.Sprintf(runManifest, "second", "edit, change"))
	fresh, err := g.Submit(t.Context(), ann, api.DispatchRequest{Subagent: "edit", DispatchID: "d-new"})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // read, and remembered
		old := g.manifestOf(t, g.submitTask(t, o))
		current := g.manifestOf(t, fresh)
		if old.Revision != 1 || old.RevisionDigest != o.Revision || current.Revision != 2 || current.RevisionDigest == o.Revision {
			t.Fatalf("pinned: %d, in force: %d", old.Revision, current.Revision)
		}
		ref := api.RefTo(api.KindSubagent, "edit")
		was, err := old.Pinned(ref)
		is, currentErr := current.Pinned(ref)
		if err != nil || currentErr != nil || was == is {
			t.Errorf("%s and %s, %v %v", was, is, err, currentErr)
		}
		o.Request.DispatchID += "-again"
	}
	// What has been seen stays the highest: the pin is no way back to it.
	g.readCatalog(t)
	if n := g.cfg.InForce.Highest().Number; n != 2 {
		t.Errorf("highest accepted revision: %d", n)
	}
}

// A pinned revision is verified by the trust root as it is: when the humans
// take back the key that signed it, nothing runs by it any more, remembered or
// not. The control is the same request before.
//
// proves R-C4, R-B5
func TestPinnedRevisionMustStillVerify(t *testing.T) {
	g := newRunGate(t)
	o := g.taskRequest(t, "d-before")
	second, err := seal.NewEphemeral()
	if err != nil {
		t.Fatal(err)
	}
	trust := func(root seal.TrustRoot) {
		t.Helper()
		encoded, err := root.Encode()
		if err == nil {
			err = os.WriteFile(g.cfg.Dirs.TrustRoot(), encoded, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	both := rootOf(g.deployKey, second)
	trust(both)
	g.publish(t, both, second, fmt.Sprintf(runManifest, "second", "edit, change"))
	if m := g.manifestOf(t, g.submitTask(t, o)); m.Revision != 1 {
		t.Fatalf("revision %d", m.Revision)
	}
	trust(rootOf(second))
	o.Request.DispatchID = "d-after"
	if _, err := g.SubmitTask(t.Context(), ann, o); api.CodeOf(err) != api.CodeIntegrity || !strings.Contains(err.Error(), "pinned by the run") {
		t.Errorf("%v", err)
	}
	if _, ok, err := g.Get(t.Context(), "d-after"); ok || err != nil {
		t.Errorf("it is there: %v", err)
	}
	// What is in force still goes.
	if _, err := g.Submit(t.Context(), ann, api.DispatchRequest{Subagent: "edit"}); err != nil {
		t.Error(err)
	}
	// An unsigned revision is refused.
	o.Revision = api.DigestOf([]byte("planted"))
	if _, err := g.SubmitTask(t.Context(), ann, o); api.CodeOf(err) != api.CodeIntegrity {
		t.Errorf("%v", err)
	}
}

// A pinned revision fixes what names mean, not what is allowed: each task request
// is decided by the grants, consent and stops of that moment.
//
// proves R-O2, R-T5, R-T10
func TestTaskRequestIsDecidedByTodaysPolicy(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*testing.T, gate, func(api.Principal, api.Tier))
		code   api.Code
	}{
		"nothing changed": {func(*testing.T, gate, func(api.Principal, api.Tier)) {}, ""},
		"the grant is gone": {func(t *testing.T, g gate, _ func(api.Principal, api.Tier)) {
			g.apply(t, fmt.Sprintf(runManifest, "first", "edit"))
		}, api.CodeDenied},
		"consent is gone": {func(_ *testing.T, _ gate, set func(api.Principal, api.Tier)) { set("local:ann", api.Observe) }, api.CodeDenied},
		"it is stopped": {func(t *testing.T, g gate, _ func(api.Principal, api.Tier)) {
			g.mustStop(t, api.StopRequest{Scope: api.StopTarget, Name: "local"})
		}, api.CodeDenied},
		"the target observes": {func(t *testing.T, g gate, _ func(api.Principal, api.Tier)) {
			g.apply(t, strings.Replace(fmt.Sprintf(runManifest, "first", "edit, change"), "mode: guarded", "mode: readonly", 1))
		}, api.CodeDenied},
		"consent is taken back while it is admitted": {func(_ *testing.T, g gate, set func(api.Principal, api.Tier)) {
			g.overtake(func() { set("local:ann", api.Observe) })
		}, api.CodeDenied},
		"consent is lowered while it is admitted": {func(_ *testing.T, g gate, set func(api.Principal, api.Tier)) {
			g.overtake(func() { set("local:ann", api.Reversible) })
		}, api.CodeUnavailable}, // and the next try goes
	} {
		t.Run(name, func(t *testing.T) {
			g := newRunGate(t)
			set := g.operators(t)
			set("local:ann", api.Stateful)
			o := g.taskRequest(t, "d-task")
			o.Request.Subagent = "change"
			c.change(t, g, set)
			d, err := g.SubmitTask(t.Context(), ann, o)
			if c.code == "" {
				if err != nil || d.State != api.EventAccepted {
					t.Errorf("%+v, %v", d, err)
				}
				return
			}
			if api.CodeOf(err) != c.code || g.started(t) {
				t.Errorf("%v", err)
			}
			if c.code == api.CodeUnavailable {
				if d := g.submitTask(t, o); g.manifestOf(t, d).Ceiling != api.Reversible {
					t.Errorf("%+v", d)
				}
				return
			}
			list, err := g.cfg.Ledger.List(t.Context(), audit.Query{Kind: record.KindDispatchDenied})
			if err != nil || len(list) != 1 || list[0].Entry.Run != "r-1" || list[0].Entry.Task != "t-1" || list[0].Entry.Dispatch != "d-task" {
				t.Errorf("%+v, %v", list, err)
			}
		})
	}
}

// A session that bound itself lower stays so bound in what its run brings about.
//
// proves R-T5
func TestTaskRequestKeepsTheSessionCeiling(t *testing.T) {
	g := newRunGate(t)
	g.operators(t)("local:ann", api.Irreversible)
	o := g.taskRequest(t, "d-task")
	o.Request.Subagent = "change"
	if _, err := g.SubmitTask(t.Context(), Caller{Principal: "local:ann", Ceiling: api.Observe}, o); api.CodeOf(err) != api.CodeDenied {
		t.Errorf("%v", err)
	}
	g.submitTask(t, o) // the control
}

func TestIncompleteTaskRequestIsRefused(t *testing.T) {
	g := newRunGate(t)
	patch := Need{Name: "a", Task: "up", Dispatch: "d-up", Kind: record.NeedPatch}
	for name, change := range map[string]func(*TaskRequest){
		"no id":           func(o *TaskRequest) { o.Request.DispatchID = "" },
		"no run":          func(o *TaskRequest) { o.Run = "" },
		"no task":         func(o *TaskRequest) { o.Task = "" },
		"no revision":     func(o *TaskRequest) { o.Revision = "" },
		"no lease":        func(o *TaskRequest) { o.Fence = 0 },
		"a branch":        func(o *TaskRequest) { o.Request.Source = &api.SourceRequest{Name: "repo", Commit: "main"} },
		"an abbreviation": func(o *TaskRequest) { o.Request.Source = &api.SourceRequest{Name: "repo", Commit: "0123456789"} },
		"a name twice":    func(o *TaskRequest) { o.Needs = []Need{patch, patch} },
		"a name of a path": func(o *TaskRequest) {
			o.Needs = []Need{{Name: "../a", Task: "up", Dispatch: "d-up", Kind: record.NeedPatch}}
		},
		"the worker's own": func(o *TaskRequest) {
			o.Needs = []Need{{Name: api.InputFile, Task: "up", Dispatch: "d-up", Kind: record.NeedPatch}}
		},
		"of an unknown kind": func(o *TaskRequest) { o.Needs = []Need{{Name: "a", Task: "up", Dispatch: "d-up", Kind: "log"}} },
		"an output of no path": func(o *TaskRequest) {
			o.Needs = []Need{{Name: "a", Task: "up", Dispatch: "d-up", Kind: record.NeedOutput}}
		},
		"a patch with a path": func(o *TaskRequest) {
			o.Needs = []Need{{Name: "a", Task: "up", Dispatch: "d-up", Kind: record.NeedPatch, Path: "x"}}
		},
	} {
		o := g.taskRequest(t, "d-task")
		change(&o)
		if _, err := g.SubmitTask(t.Context(), ann, o); api.CodeOf(err) != api.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A request has no member of a task request: a caller of the API
// says nothing of runs, leases and needs. The control is one without them.
//
// proves R-B7
func TestRequestCannotClaimToBeATask(t *testing.T) {
	for name := range reflect.TypeFor[api.DispatchRequest]().Fields() {
		for _, word := range []string{"run", "task", "fence", "need", "revision"} {
			if strings.Contains(strings.ToLower(name.Name), word) {
				t.Errorf("a request has the member %s", name.Name)
			}
		}
	}
	for text, ok := range map[string]bool{
		`{"subagent":"edit"}`:                      true,
		`{"subagent":"edit","run":"r-1"}`:          false,
		`{"subagent":"edit","task":"t-1"}`:         false,
		`{"subagent":"edit","fence":1}`:            false,
		`{"subagent":"edit","needs":[]}`:           false,
		`{"subagent":"edit","revision":"sha256:"}`: false,
	} {
		var r api.DispatchRequest
		if err := canon.Decode([]byte(text), &r); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A service that was killed between the entry that admits a task and the start of
// its worker starts the worker when it restarts, with all its needs.
//
// proves R-O6
func TestRestartStartsAdmittedTasks(t *testing.T) {
	g := newRunGate(t)
	o := g.taskRequest(t, "d-task")
	o.Needs = []Need{g.upstream(t, "d-up", "up", record.NeedOutput, "x.txt", "content\n")}
	whole := g.cfg
	g.cfg.Executor = &executor.Local{Launcher: program(filepath.Join(t.TempDir(), "none")), Logger: g.cfg.Logger}
	g.stop() // nothing is started from here on, as when the service is killed
	d := g.submitTask(t, o)
	if g.started(t) {
		t.Fatal("it was started")
	}
	next := newService(t.Context(), whole)
	t.Cleanup(func() { _ = next.Close() })
	r, _, err := next.row(t.Context(), d.ID)
	if err != nil || r.record.State != api.EventAccepted {
		t.Fatalf("%+v, %v", r.record, err)
	}
	job := next.files.job(t.Context(), r, g.manifestOf(t, d))
	if job.Files[record.WorkNeed+"a"] == nil || !strings.HasPrefix(job.Dir, filepath.Join(g.cfg.Dirs.State, "dispatches")) {
		t.Fatalf("%+v", job)
	}
	if err := next.recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	next.work.Wait()
	if !g.started(t) {
		t.Error("it was not started")
	}
	kinds := g.kinds(t)
	if n := len(slices.DeleteFunc(kinds, func(k record.Kind) bool { return k != record.KindDispatchAccepted })); n != 1 {
		t.Errorf("it was admitted %d times", n)
	}
}

// put makes a finished dispatch of a task.
func (g gate) put(t *testing.T, d api.Dispatch) {
	t.Helper()
	r := row{record: d, request: api.DigestOf([]byte(d.ID))}
	if err := g.cfg.Store.Update(t.Context(), func(tx *store.Tx) error { return insert(tx, r) }); err != nil {
		t.Fatal(err)
	}
}

// upstream makes a finished dispatch of ann's that left content as its patch,
// as an output of that path, or as its structured result, and returns what
// takes it over as "a".
func (g gate) upstream(t *testing.T, id api.DispatchID, task api.TaskID, kind, path, content string) Need {
	t.Helper()
	d, err := g.cfg.Blobs.Put(t.Context(), []byte(content))
	if err != nil {
		t.Fatal(err)
	}
	r := testRow(id).record
	r.State, r.Run, r.Task, r.Input = api.EventFinished, "r-1", task, d
	r.EndedAt = &r.AcceptedAt
	a := api.Artifact{Path: path, Size: int64(len(content)), Digest: d}
	r.Outcome = &api.ResultSummary{Captured: true}
	switch kind {
	case record.NeedPatch:
		r.Outcome.Patch = &a
	case record.NeedOutput:
		r.Outcome.Outputs = []api.Artifact{a}
	case record.NeedResult:
		a.Path = record.ResultOutput
		r.Outcome.Outputs, r.Outcome.Value = []api.Artifact{a}, []byte(content)
	}
	g.put(t, r)
	return Need{Name: "a", Task: task, Dispatch: id, Kind: kind, Path: path}
}
