package evidence

import (
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

const planDoc = `{"id":"r1","source":{"name":"app"},"tasks":[
{"id":"a","subagent":"code","env":["plain"],"capabilities":["tools"],"retry":{"attempts":2,"backoff":"1s..2s"}},
{"id":"b","subagent":"code","env":["plain"],"capabilities":["tools"],"needs":{"in":{"from":"a","patch":true}}},
{"id":"c","subagent":"code","env":["plain"],"capabilities":["tools"]},
{"id":"d","subagent":"code","env":["plain"],"capabilities":["tools"],"depends_on":["c"]}]}`

// tell writes a run with a failed attempt, a question, a cancelled task and one
// skipped because of it.
func tell(s *story) {
	s.submit(planDoc, "", 0)
	a := &work{id: "t-a1", run: "r1", task: "a", fence: 1}
	s.fire(a, 1)
	s.lose(a, record.KindDispatchFailed, record.DispatchEnd{Reason: "lost", Message: "gone"})
	s.step(record.KindTaskWaiting, a, 1, record.TaskStep{Reason: "lost", Message: "gone", Until: "2026-11-21T15:00:00Z"})
	a = &work{id: "t-a2", run: "r1", task: "a", fence: 2}
	s.fire(a, 2)
	c := &work{id: "t-c1", run: "r1", task: "c", fence: 3}
	s.fire(c, 1)
	s.write(record.Entry{Kind: record.KindCatalogRefused, Detail: record.RevisionRefused{Cause: "unsigned"}}) // of something else
	s.finish(a, api.EventFinished, "")
	s.step(record.KindTaskDone, a, 2, record.TaskStep{})
	patch := s.results[a.key()].Summary.Patch
	b := &work{id: "t-b1", run: "r1", task: "b", fence: 4, needs: []record.Need{{Name: "in", Task: "a", Dispatch: a.id, Kind: record.NeedPatch, Digest: patch.Digest, Size: patch.Size}}}
	s.fire(b, 1)
	s.finish(b, api.EventNeedsInput, "")
	s.step(record.KindTaskWaiting, b, 1, record.TaskStep{})
	s.write(record.Entry{Kind: record.KindRunCancelled, Principal: "local:ann", Action: "run.cancel", Resource: "r1", Policies: []string{"owner"}, Run: "r1", Task: "c", Detail: record.RunAction{}})
	s.write(record.Entry{Kind: record.KindTaskAnswered, Principal: "local:ann", Action: "run.answer", Resource: "r1", Policies: []string{"owner"}, Run: "r1", Task: "b", Detail: record.RunAction{}})
	s.finish(c, api.EventCancelled, "")
	s.step(record.KindTaskCancelled, c, 1, record.TaskStep{By: "local:ann", Message: whyCancelled})
	s.step(record.KindTaskSkipped, &work{run: "r1", task: "d"}, 0, record.TaskStep{Cause: "c"})
	s.step(record.KindTaskStarted, b, 1, record.TaskStart{Fence: 5})
	b2 := &work{id: b.id, run: b.run, task: b.task, fence: 5, attempt: 2, answer: "the first"}
	s.admit(b2)
	s.start(b2)
	s.finish(b2, api.EventFinished, "")
	s.step(record.KindTaskDone, b2, 1, record.TaskStep{})
	s.settle("r1", record.RunEnd{State: "cancelled", Done: 2, Cancelled: 1, Skipped: 1})
}

func rows(r report.Report) map[report.RowName]report.Status {
	out := map[report.RowName]report.Status{}
	for _, row := range r.Rows {
		out[row.Row] = row.Status
	}
	return out
}

// honest is the status of every row of an honest bundle without anchors.
func honest(t testing.TB, r report.Report) {
	t.Helper()
	for name, status := range rows(r) {
		want := report.Pass
		switch name { //nolint:exhaustive // the others pass
		case report.RowAnchor, report.RowTime, report.RowConsistency, report.RowTools:
			want = report.NA
		}
		if status != want {
			t.Errorf("%s is %s: %s", name, status, r.Row(name).Why)
		}
	}
	if r.Authorisation != report.AuthorisationSameUser {
		t.Errorf("authorisation %s", r.Authorisation)
	}
}

// proves R-A7
func TestHonestEvidenceVerifies(t *testing.T) {
	s := newStory(t)
	s.whole("d-01")
	tell(s)
	for _, c := range []bundle.Case{{Dispatch: "d-01"}, {Run: "r1"}, {Dispatch: "t-a1"}} {
		r := Verify(reread(t, s.bundle(c)), s.trust(), Options{})
		honest(t, r)
		if t.Failed() {
			t.Fatalf("%+v\n%s", c, r.Text())
		}
	}
}
