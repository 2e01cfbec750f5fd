package dispatch

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// ofTask makes a dispatch that of a task, which takes something over.
func ofTask(d *api.Dispatch, m *record.Manifest, res *record.Result) {
	d.Run, d.Task = "r-1", "t-1"
	m.Run, m.Task, m.Fence, res.Fence = "r-1", "t-1", 7, 7
	m.Needs = []record.Need{{Name: "a", Task: "up", Dispatch: "d-up", Kind: record.NeedPatch, Digest: api.DigestOf([]byte("patch")), Size: 5}}
}

// askedTask is a task's dispatch that waits for an answer.
func (g gate) askedTask(t *testing.T) row {
	t.Helper()
	if _, err := g.cfg.Blobs.Put(t.Context(), []byte("patch")); err != nil {
		t.Fatal(err)
	}
	return g.asked(t, ofTask)
}

var that = api.AnswerRequest{Option: 2, Attempt: 1}

// A task that asked a question resumes when it has its locks again, under the lease
// that it has then. The same answer again, as after a crash, changes nothing.
//
// proves R-D6, R-O3, R-O6
func TestTaskResumesUnderItsNewLease(t *testing.T) {
	g := newRunGate(t)
	r := g.askedTask(t)
	for range 2 {
		d, err := g.ResumeTask(t.Context(), ann, r.record.ID, that, "local:ann", 9, nil)
		if err != nil || d.Attempt != 2 || d.Run != "r-1" || d.Task != "t-1" {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	now, _, err := g.row(t.Context(), r.record.ID)
	if err != nil {
		t.Fatal(err)
	}
	m := g.manifestOf(t, now.record)
	if m.Fence != 9 || m.Run != "r-1" || m.Task != "t-1" || len(m.Needs) != 1 || m.Needs[0].Name != "a" || m.Attempt != 2 || m.Resume == nil {
		t.Errorf("%+v", m)
	}
	job := g.files.job(t.Context(), now, m)
	if job.Files[record.WorkNeed+"a"] == nil || job.Files[record.WorkResume] == nil {
		t.Errorf("%v", job.Files)
	}
	if !g.started(t) {
		t.Error("no worker was started")
	}
	answered, err := g.cfg.Ledger.List(t.Context(), audit.Query{Kind: record.KindDispatchAnswered})
	if err != nil || len(answered) != 1 || answered[0].Entry.Run != "r-1" || answered[0].Entry.Task != "t-1" || answered[0].Entry.Attempt != 2 {
		t.Errorf("%+v, %v", answered, err)
	}
	for name, req := range map[string]api.AnswerRequest{
		"another answer":     {Option: 1, Attempt: 1},
		"no attempt":         {Option: 2},
		"a later one's":      {Option: 2, Attempt: 2},
		"one not there":      {Option: 2, Attempt: 3},
		"neither of the two": {Attempt: 1},
	} {
		if _, err := g.ResumeTask(t.Context(), ann, r.record.ID, req, "local:ann", 10, nil); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

// An attempt that resumes is tainted if an earlier one was. Its calls are its own.
//
// proves R-G6
func TestTaintOutlivesItsAttempt(t *testing.T) {
	g := newRunGate(t)
	r := g.askedTask(t)
	taint := &api.Taint{Dispatch: r.record.ID, Attempt: 1, Call: 4, Tool: "web/fetch"}
	g.alter(t, r.record.ID, func(d *api.Dispatch) { d.Taint, d.Calls = taint, &api.ToolCalls{Allowed: 4} })
	d, err := g.ResumeTask(t.Context(), ann, r.record.ID, that, "local:ann", 9, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := g.manifestOf(t, d)
	if err := m.Check(m.NotBefore); err != nil || m.Taint == nil || *m.Taint != *taint || d.Taint == nil || *d.Taint != *taint || d.Calls != nil {
		t.Errorf("manifest %+v, record %+v with %+v, %v", m.Taint, d.Taint, d.Calls, err)
	}
	var earlier []api.Dispatch
	if err := g.cfg.Store.Read(t.Context(), func(v *store.View) (err error) { earlier, err = attempts(v, d.ID); return err }); err != nil {
		t.Fatal(err)
	}
	if len(earlier) != 1 || earlier[0].Calls == nil || earlier[0].Calls.Allowed != 4 {
		t.Errorf("the attempt before: %+v", earlier)
	}
}

// A task cannot resume under a lease that was granted to another.
//
// proves R-O3
func TestTaskDoesNotResumeUnderOlderLease(t *testing.T) {
	g := newRunGate(t)
	r := g.askedTask(t)
	for _, fence := range []uint64{0, 1, 6} {
		if _, err := g.ResumeTask(t.Context(), ann, r.record.ID, that, "local:ann", fence, nil); err == nil {
			t.Errorf("it resumed under lease %d", fence)
		}
	}
	if g.started(t) {
		t.Error("a worker was started")
	}
	if _, err := g.ResumeTask(t.Context(), ann, r.record.ID, that, "local:ann", 8, nil); err != nil { // the control
		t.Error(err)
	}
}

// The question of a task is answered at its run, which knows when there are
// locks to resume. The control is a dispatch of its own.
//
// proves R-D6
func TestTaskQuestionIsAnsweredThroughItsRun(t *testing.T) {
	g := newRunGate(t)
	r := g.askedTask(t)
	_, err := g.Answer(t.Context(), ann, r.record.ID, that)
	if api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), "hint: bailiwick run answer r-1 --task t-1") || g.started(t) {
		t.Errorf("%v", err)
	}
	// Who may not answer learns nothing of the run.
	bob := Caller{Principal: "local:bob", Ceiling: api.Irreversible}
	if _, err := g.Answer(t.Context(), bob, r.record.ID, that); api.CodeOf(err) != api.CodeNotFound || strings.Contains(err.Error(), "r-1") {
		t.Errorf("%v", err)
	}
	g = newRunGate(t)
	r = g.asked(t)
	if _, err := g.ResumeTask(t.Context(), ann, r.record.ID, that, "local:ann", 9, nil); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("one that is no task's: %v", err)
	}
	if d, err := g.Answer(t.Context(), ann, r.record.ID, that); err != nil || d.Attempt != 2 {
		t.Errorf("%+v, %v", d, err)
	}
}

// Resuming is decided by today's policy: may the answering principal still answer, and may the
// principal whose run it is still dispatch it.
//
// proves R-D6, R-T10
func TestTaskResumesByTodaysPolicy(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*testing.T, gate)
		by     api.Principal
		code   api.Code
	}{
		"nothing changed":     {func(*testing.T, gate) {}, "local:ann", ""},
		"the grant is gone":   {func(t *testing.T, g gate) { t.Helper(); g.apply(t, fmt.Sprintf(runManifest, "first", "change")) }, "local:ann", api.CodeDenied},
		"answered by another": {func(*testing.T, gate) {}, "local:bob", api.CodeDenied},
		"stopped on the way": {func(t *testing.T, g gate) {
			t.Helper()
			g.overtake(func() { g.mustStop(t, api.StopRequest{Scope: api.StopTarget, Name: "local"}) })
		}, "local:ann", api.CodeDenied},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRunGate(t)
			r := g.askedTask(t)
			c.change(t, g)
			d, err := g.ResumeTask(t.Context(), ann, r.record.ID, that, c.by, 9, nil)
			if c.code == "" {
				if err != nil || d.Attempt != 2 || !g.started(t) {
					t.Errorf("%+v, %v", d, err)
				}
				return
			}
			if api.CodeOf(err) != c.code || g.started(t) {
				t.Errorf("%v", err)
			}
		})
	}
	// Another principal's run cannot resume it.
	g := newRunGate(t)
	r := g.askedTask(t)
	if _, err := g.ResumeTask(t.Context(), Caller{Principal: "local:bob", Ceiling: api.Irreversible}, r.record.ID, that, "local:ann", 9, nil); err == nil || g.started(t) {
		t.Errorf("%v", err)
	}
}

// An answer that would be refused is refused before anything is done.
//
// proves R-D6
func TestValidateAnswerChangesNothing(t *testing.T) {
	g := newRunGate(t)
	r := g.askedTask(t)
	before := len(g.kinds(t))
	for name, c := range map[string]struct {
		req    api.AnswerRequest
		option int
		code   api.Code
	}{
		"an option":              {api.AnswerRequest{Option: 2}, 2, ""},
		"an option in its words": {api.AnswerRequest{Text: "that"}, 2, ""},
		"a text":                 {api.AnswerRequest{Text: "neither", Attempt: 1}, 0, ""},
		"nothing":                {api.AnswerRequest{}, 0, api.CodeInvalid},
		"both":                   {api.AnswerRequest{Text: "x", Option: 1}, 0, api.CodeInvalid},
		"an option too many":     {api.AnswerRequest{Option: 3}, 0, api.CodeInvalid},
		"a negative option":      {api.AnswerRequest{Option: -1}, 0, api.CodeInvalid},
		"too long":               {api.AnswerRequest{Text: strings.Repeat("x", api.MaxAnswer+1)}, 0, api.CodeInvalid},
		"of an attempt to be":    {api.AnswerRequest{Option: 1, Attempt: 2}, 0, api.CodeConflict},
	} {
		option, err := g.ValidateAnswer(t.Context(), r.record.ID, c.req)
		if err == nil && c.code != "" || err != nil && api.CodeOf(err) != c.code || err == nil && option != c.option {
			t.Errorf("%s: option %d, %v", name, option, err)
		}
	}
	if _, err := g.ValidateAnswer(t.Context(), "d-none", that); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("%v", err)
	}
	if len(g.kinds(t)) != before || g.started(t) {
		t.Error("something was done")
	}
	if _, err := g.ResumeTask(t.Context(), ann, r.record.ID, that, "local:ann", 9, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := g.ValidateAnswer(t.Context(), r.record.ID, that); err != nil { // given already
		t.Errorf("%v", err)
	}
	if _, err := g.ValidateAnswer(t.Context(), r.record.ID, api.AnswerRequest{Option: 1, Attempt: 1}); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("%v", err)
	}
}

// An unanswered question of a task expires like any other.
//
// proves R-D6
func TestTaskQuestionExpires(t *testing.T) {
	g := newRunGate(t)
	r := g.askedTask(t)
	g.cfg.Now = func() time.Time { return time.Now().Add(1000 * time.Hour) }
	if _, err := g.ValidateAnswer(t.Context(), r.record.ID, that); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("%v", err)
	}
	if _, err := g.expireDue(); err != nil {
		t.Fatal(err)
	}
	d, _, err := g.Get(t.Context(), r.record.ID)
	if err != nil || d.State != api.EventFailed || d.Reason != api.ReasonTimeout {
		t.Errorf("%+v, %v", d, err)
	}
	list, err := g.cfg.Ledger.List(t.Context(), audit.Query{Kind: record.KindDispatchFailed})
	if err != nil || len(list) != 1 || list[0].Entry.Run != "r-1" {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := g.ResumeTask(t.Context(), ann, r.record.ID, that, "local:ann", 9, nil); api.CodeOf(err) != api.CodeConflict || g.started(t) {
		t.Errorf("%v", err)
	}
}

// An answer that came in time counts, however long its task waits for its locks.
// The control is an unanswered one.
//
// proves R-D6
func TestAnsweredQuestionDoesNotExpire(t *testing.T) {
	for name, answered := range map[string]bool{"answered": true, "not answered": false} {
		t.Run(name, func(t *testing.T) {
			g := newRunGate(t)
			r := g.askedTask(t)
			if answered {
				for range 2 {
					if err := g.cfg.Store.Update(t.Context(), func(tx *store.Tx) error { return ClearAnswerDeadline(tx, r.record.ID) }); err != nil {
						t.Fatal(err)
					}
				}
			}
			g.cfg.Now = func() time.Time { return time.Now().Add(1000 * time.Hour) }
			if _, err := g.expireDue(); err != nil {
				t.Fatal(err)
			}
			d, err := g.ResumeTask(t.Context(), ann, r.record.ID, that, "local:ann", 9, nil)
			if answered != (err == nil && d.Attempt == 2) {
				t.Errorf("%+v, %v", d, err)
			}
		})
	}
	// One that was answered at the moment in which it was given up.
	g := newRunGate(t)
	r := g.askedTask(t)
	if err := g.cfg.Store.Update(t.Context(), func(tx *store.Tx) error { return ClearAnswerDeadline(tx, r.record.ID) }); err != nil {
		t.Fatal(err)
	}
	if err := g.endUnanswered(t.Context(), r, outcome{event: api.EventFailed, reason: api.ReasonTimeout}); err != nil {
		t.Fatal(err)
	}
	if d, _, err := g.Get(t.Context(), r.record.ID); err != nil || d.State != api.EventNeedsInput {
		t.Errorf("%s, %v", d.State, err)
	}
	// It is cancelled as any other.
	if d, err := g.Cancel(t.Context(), "local:ann", r.record.ID, ""); err != nil || d.State != api.EventCancelled {
		t.Errorf("%s, %v", d.State, err)
	}
}

// Many at once, as where a service asks again that heard no reply, are one
// attempt.
//
// proves R-O6
func TestConcurrentSameAnswersAreOneAttempt(t *testing.T) {
	g := newRunGate(t)
	r := g.askedTask(t)
	var all sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		all.Go(func() { _, errs[i] = g.ResumeTask(t.Context(), ann, r.record.ID, that, "local:ann", 9, nil) })
	}
	all.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		t.Errorf("%v", errs[i])
	}
	if list, err := g.cfg.Ledger.List(t.Context(), audit.Query{Kind: record.KindDispatchAnswered}); err != nil || len(list) != 1 {
		t.Errorf("%d, %v", len(list), err)
	}
}

// A result counts that its own worker sealed for its own attempt under its own
// lease. The control is one that is right in all of it.
//
// proves R-O3, R-D5
func TestResultOfAnotherLeaseIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*api.Dispatch, *record.Manifest, *record.Result)
		words  string // of the refusal; "": it is taken
	}{
		"its own":          {func(*api.Dispatch, *record.Manifest, *record.Result) {}, ""},
		"a later lease":    {func(_ *api.Dispatch, _ *record.Manifest, r *record.Result) { r.Fence = 8 }, "fencing token 8, its lease has 7"},
		"an earlier lease": {func(_ *api.Dispatch, _ *record.Manifest, r *record.Result) { r.Fence = 6 }, "fencing token 6, its lease has 7"},
		"no lease":         {func(_ *api.Dispatch, _ *record.Manifest, r *record.Result) { r.Fence = 0 }, "fencing token 0, its lease has 7"},
		"an earlier attempt's": {func(_ *api.Dispatch, _ *record.Manifest, r *record.Result) {
			r.Manifest = api.DigestOf([]byte("earlier"))
		}, "result is of dispatch"},
		"a lease of no task": {func(d *api.Dispatch, m *record.Manifest, r *record.Result) {
			d.Run, d.Task, m.Run, m.Task, m.Fence, m.Needs = "", "", "", "", 0, nil
		}, "fencing token 7, its lease has 0"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t)
			r := g.asks(t, ofTask, c.change)
			if err := g.collect(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			d, _, err := g.Get(t.Context(), r.record.ID)
			if err != nil {
				t.Fatal(err)
			}
			if c.words == "" {
				if d.State != api.EventNeedsInput || d.Result == "" {
					t.Errorf("%s %s", d.State, d.Message)
				}
				return
			}
			if d.State != api.EventFailed || d.Reason != api.ReasonIntegrity || !strings.Contains(d.Message, c.words) || d.Result != "" || d.Outcome != nil {
				t.Errorf("%s %s %q", d.State, d.Reason, d.Message)
			}
		})
	}
}

// A result that cannot be verified against its manifest, because that was changed on
// the disk, does not count, and its dispatch does not stand open for ever.
//
// proves R-B5, R-D3
func TestResultWithoutManifestIsRefused(t *testing.T) {
	g := newGate(t)
	r := g.asks(t, ofTask)
	g.overwrite(t, r.record.Manifest, "{}")
	if err := g.collect(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if d, _, err := g.Get(t.Context(), r.record.ID); err != nil || d.State != api.EventFailed || d.Reason != api.ReasonIntegrity || d.Result != "" {
		t.Errorf("%s %s %q, %v", d.State, d.Reason, d.Message, err)
	}
}

// What only the manifest of an attempt under way names is kept, and what a run
// that resumes may still need. The controls are the same after it has ended.
//
// proves R-O2
func TestReservedDispatchesAreNotRemoved(t *testing.T) {
	g := newRunGate(t)
	r := g.askedTask(t)
	up := g.upstream(t, "d-up", "up", record.NeedOutput, "x", "content\n")
	change := func(fn func(*store.Tx) error) error { return g.cfg.Store.Update(t.Context(), fn) }
	mark := func(id api.DispatchID) error {
		return change(func(tx *store.Tx) error {
			return g.MarkRemoved(tx, id, api.Removal{Class: api.ClassContent, At: time.Now(), Rule: "age"})
		})
	}
	for range 2 {
		for _, run := range []api.RunID{"r-1", "r-2"} { // r-2 takes over what r-1 has done
			if err := change(func(tx *store.Tx) error { return Reserve(tx, run, up.Dispatch) }); err != nil {
				t.Fatal(err)
			}
		}
	}
	items := g.items(t)
	if !items[up.Dispatch].Ended.IsZero() {
		t.Error("what is held may go")
	}
	if !slices.Contains(items[r.record.ID].Content, api.DigestOf([]byte("patch"))) {
		t.Error("what an attempt under way takes over is not referred to")
	}
	for _, run := range []api.RunID{"r-1", "r-2"} {
		if err := mark(up.Dispatch); err == nil {
			t.Fatalf("it was marked while %s may need it", run)
		}
		if err := change(func(tx *store.Tx) error { return ReleaseReserved(tx, run) }); err != nil {
			t.Fatal(err)
		}
	}
	// A resumed attempt refers to it, and after its end nothing does.
	if _, err := g.ResumeTask(t.Context(), ann, r.record.ID, that, "local:ann", 9, nil); err != nil {
		t.Fatal(err)
	}
	if g.items(t)[up.Dispatch].Ended.IsZero() {
		t.Error("what is released may not go")
	}
	if err := mark(up.Dispatch); err != nil {
		t.Error(err)
	}
	g.work.Wait()                                                           // its worker exits at once
	g.alter(t, r.record.ID, func(d *api.Dispatch) { d.Input = d.Manifest }) // as every record of a request has it
	if slices.Contains(g.items(t)[r.record.ID].Content, api.DigestOf([]byte("patch"))) {
		t.Error("what has ended still takes something over")
	}
}
