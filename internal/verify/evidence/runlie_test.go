package evidence

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// planned writes a plan of run r1: each task is its id and further members.
func plannedAs(more string, tasks ...string) string {
	for i, t := range tasks {
		id, rest, _ := strings.Cut(t, " ")
		tasks[i] = fmt.Sprintf(`{"id":%q,"subagent":"code","env":["plain"],"capabilities":["tools"]%s}`, id, rest)
	}
	return `{"id":"r1","source":{"name":"app"}` + more + `,"tasks":[` + strings.Join(tasks, ",") + `]}`
}

// of is the first attempt of a task.
func of(task api.TaskID, fence uint64) *work {
	return &work{id: api.DispatchID("t-" + string(task) + "1"), run: "r1", task: task, fence: fence}
}

// holding starts a task with locks.
func (s *story) holding(w *work, locks ...string) {
	s.step(record.KindTaskStarted, w, 1, record.TaskStart{Fence: int64(w.fence), Locks: locks}) //nolint:gosec // G115: small
	s.admit(w)
	s.start(w)
}

func (s *story) done(w *work, attempt int) {
	s.finish(w, api.EventFinished, "")
	s.step(record.KindTaskDone, w, attempt, record.TaskStep{})
}

func (s *story) failed(w *work, attempt int, reason string) {
	s.lose(w, record.KindDispatchFailed, record.DispatchEnd{Reason: reason})
	s.step(record.KindTaskFailed, w, attempt, record.TaskStep{Reason: reason})
}

// act is a caller's action on the run, or on a task of it.
func (s *story) act(kind record.Kind, who api.Principal, task string, d record.RunAction) {
	action := map[record.Kind]string{
		record.KindRunCancelled: "run.cancel", record.KindRunPaused: "run.pause", record.KindRunResumed: "run.pause", record.KindTaskAnswered: "run.answer",
	}[kind]
	by := "owner"
	if who != "local:ann" {
		by = "operator"
	}
	s.write(record.Entry{Kind: kind, Principal: who, Action: action, Resource: "r1", Policies: []string{by}, Run: "r1", Task: task, Detail: d})
}

// asks ends an attempt with a question.
func (s *story) asks(w *work) {
	s.finish(w, api.EventNeedsInput, "")
	s.step(record.KindTaskWaiting, w, 1, record.TaskStep{})
}

// resumes starts an attempt that resumes with an answer.
func (s *story) resumes(w *work, fence uint64) *work {
	next := &work{id: w.id, run: w.run, task: w.task, fence: fence, attempt: w.attempt + 1, answer: "this"}
	s.step(record.KindTaskStarted, w, 1, record.TaskStart{Fence: int64(fence)}) //nolint:gosec // G115: small
	return next
}

// expire says that the run reached a limit of time, so long after its submission.
func (s *story) expire(after, limit time.Duration) {
	s.editEntry = func(_ uint64, e *record.Entry) {
		if e.Kind == record.KindRunExpired {
			e.At = s.entries[slices.IndexFunc(s.entries, func(e record.Entry) bool { return e.Kind == record.KindRunSubmitted })].At.Add(after)
		}
	}
	s.write(record.Entry{Kind: record.KindRunExpired, Run: "r1", Refs: s.planOf("r1"), Detail: record.RunExpiry{Limit: record.LimitWall, Millis: limit.Milliseconds()}})
}

// tale is a run that is written twice: honestly, and with a lie.
type tale struct {
	row  report.RowName
	plan string
	tell func(s *story, lie bool)
}

func tales() map[string]tale {
	one := func(more string) string { return plannedAs(more, "a") }
	done := func(n int64) record.RunEnd { return record.RunEnd{State: "done", Done: n} }
	asking := func(s *story) *work {
		a := of("a", 1)
		s.fire(a, 1)
		s.asks(a)
		return a
	}
	return map[string]tale{
		"a settled state that does not follow": {report.RowCompleteness, one(""), func(s *story, lie bool) {
			a := of("a", 1)
			s.fire(a, 1)
			s.failed(a, 1, "agent")
			end := record.RunEnd{State: "failed", Failed: 1}
			if lie {
				end.State = "cancelled"
			}
			s.settle("r1", end)
		}},
		"a task that is done, but whose dispatch failed": {report.RowCompleteness, one(""), func(s *story, lie bool) {
			a := of("a", 1)
			s.fire(a, 1)
			if lie {
				s.finish(a, api.EventFinished, "")
				s.step(record.KindTaskFailed, a, 1, record.TaskStep{Reason: "agent"})
				s.settle("r1", record.RunEnd{State: "failed", Failed: 1})
				return
			}
			s.done(a, 1)
			s.settle("r1", done(1))
		}},
		"a task that was skipped, and had run": {report.RowCompleteness, plannedAs("", "a", `b ,"depends_on":["a"]`), func(s *story, lie bool) {
			a, b := of("a", 1), of("b", 2)
			s.fire(a, 1)
			if !lie {
				s.failed(a, 1, "agent")
				s.step(record.KindTaskSkipped, &work{run: "r1", task: "b"}, 0, record.TaskStep{Cause: "a"})
				s.settle("r1", record.RunEnd{State: "failed", Failed: 1, Skipped: 1})
				return
			}
			s.fire(b, 1)
			s.failed(a, 1, "agent")
			s.lose(b, record.KindDispatchFailed, record.DispatchEnd{Reason: "agent"})
			s.step(record.KindTaskSkipped, b, 1, record.TaskStep{Cause: "a"})
			s.settle("r1", record.RunEnd{State: "failed", Failed: 1, Skipped: 1})
		}},
		"a task that is skipped for one that it does not come after": {report.RowCompleteness, plannedAs("", "a", "x", `b ,"depends_on":["a"]`, `c ,"depends_on":["b"]`), func(s *story, lie bool) {
			a, x := of("a", 1), of("x", 2)
			s.fire(a, 1)
			s.fire(x, 1)
			s.failed(x, 1, "agent")
			s.failed(a, 1, "agent")
			cause := "a"
			if lie {
				cause = "x"
			}
			s.step(record.KindTaskSkipped, &work{run: "r1", task: "b"}, 0, record.TaskStep{Cause: cause})
			s.step(record.KindTaskSkipped, &work{run: "r1", task: "c"}, 0, record.TaskStep{Cause: cause})
			s.settle("r1", record.RunEnd{State: "failed", Failed: 2, Skipped: 2})
		}},
		"an attempt more than the plan has": {report.RowCompleteness, one(""), func(s *story, lie bool) {
			a := of("a", 1)
			s.fire(a, 1)
			if !lie {
				s.failed(a, 1, "lost")
				s.settle("r1", record.RunEnd{State: "failed", Failed: 1})
				return
			}
			s.lose(a, record.KindDispatchFailed, record.DispatchEnd{Reason: "lost"})
			s.step(record.KindTaskWaiting, a, 1, record.TaskStep{Reason: "lost", Until: "2026-11-21T15:00:00Z"})
			a = &work{id: "t-a2", run: "r1", task: "a", fence: 2}
			s.fire(a, 2)
			s.done(a, 2)
			s.settle("r1", done(1))
		}},
		"a task that is given up before its last attempt": {report.RowCompleteness, plannedAs("", `a ,"retry":{"attempts":2}`), func(s *story, lie bool) {
			a := of("a", 1)
			s.fire(a, 1)
			if !lie { // the honest run requested its cancellation
				s.act(record.KindRunCancelled, "local:ann", "a", record.RunAction{})
			}
			s.failed(a, 1, "lost")
			s.settle("r1", record.RunEnd{State: "failed", Failed: 1})
		}},
		"a start before what it comes after is done": {report.RowCompleteness, plannedAs("", "a", `b ,"depends_on":["a"]`), func(s *story, lie bool) {
			a, b := of("a", 1), of("b", 2)
			s.fire(a, 1)
			if lie {
				s.fire(b, 1)
			}
			s.done(a, 1)
			if !lie {
				s.fire(b, 1)
			}
			s.done(b, 1)
			s.settle("r1", done(2))
		}},
		"a start while another holds the lock": {report.RowCompleteness, plannedAs("", `a ,"locks":["db"]`, `b ,"locks":["db"]`), func(s *story, lie bool) {
			a, b := of("a", 1), of("b", 2)
			s.holding(a, "db")
			if lie {
				s.holding(b, "db")
			}
			s.done(a, 1)
			if !lie {
				s.holding(b, "db")
			}
			s.done(b, 1)
			s.settle("r1", done(2))
		}},
		"a start alone while others share the lock": {report.RowCompleteness, plannedAs("", `a ,"locks":[{"shared":"db"}]`, `b ,"locks":[{"shared":"db"}]`, `c ,"locks":["db"]`), func(s *story, lie bool) {
			shared := func(w *work) {
				s.step(record.KindTaskStarted, w, 1, record.TaskStart{Fence: int64(w.fence), Shared: []string{"db"}}) //nolint:gosec // G115: small
				s.admit(w)
				s.start(w)
			}
			a, b, c := of("a", 1), of("b", 2), of("c", 3)
			shared(a)
			shared(b)
			s.done(a, 1)
			if lie {
				s.holding(c, "db")
			}
			s.done(b, 1)
			if !lie {
				s.holding(c, "db")
			}
			s.done(c, 1)
			s.settle("r1", done(3))
		}},
		"a start without the locks of the plan": {report.RowCompleteness, plannedAs("", `a ,"locks":["db"]`), func(s *story, lie bool) {
			locks := []string{"db"}
			if lie {
				locks = nil
			}
			a := of("a", 1)
			s.holding(a, locks...)
			s.done(a, 1)
			s.settle("r1", done(1))
		}},
		"a fencing token that goes back": {report.RowCompleteness, plannedAs("", "a", "b"), func(s *story, lie bool) {
			a, b := of("a", 5), of("b", 6)
			if lie {
				b.fence = 4
			}
			s.fire(a, 1)
			s.fire(b, 1)
			s.done(a, 1)
			s.done(b, 1)
			s.settle("r1", done(2))
		}},
		"a start behind a pause": {report.RowCompleteness, one(""), func(s *story, lie bool) {
			a := of("a", 1)
			s.act(record.KindRunPaused, "local:ann", "", record.RunAction{})
			if !lie {
				s.act(record.KindRunResumed, "local:ann", "", record.RunAction{})
			}
			s.fire(a, 1)
			s.done(a, 1)
			s.settle("r1", done(1))
		}},
		"a start after its cancellation was requested": {report.RowCompleteness, plannedAs("", "a", "b"), func(s *story, lie bool) {
			a, b := of("a", 1), of("b", 2)
			s.fire(a, 1)
			s.act(record.KindRunCancelled, "local:ann", "", record.RunAction{})
			if lie {
				s.fire(b, 1)
				s.finish(b, api.EventCancelled, "")
				s.step(record.KindTaskCancelled, b, 1, record.TaskStep{By: "local:ann", Message: whyCancelled})
			} else {
				s.step(record.KindTaskCancelled, &work{run: "r1", task: "b"}, 0, record.TaskStep{By: "local:ann"})
			}
			s.done(a, 1) // too late for it
			s.settle("r1", record.RunEnd{State: "cancelled", Done: 1, Cancelled: 1})
		}},
		"a cancellation without a request": {report.RowCompleteness, plannedAs(`,"limits":{"wall":"10m"}`, "a"), func(s *story, lie bool) {
			if !lie {
				s.expire(10*time.Minute, 10*time.Minute)
			}
			s.step(record.KindTaskCancelled, &work{run: "r1", task: "a"}, 0, record.TaskStep{By: string(api.Service)})
			s.settle("r1", record.RunEnd{State: "cancelled", Cancelled: 1, Millis: 600_000})
		}},
		"a limit of time that was not reached": {report.RowCompleteness, plannedAs(`,"limits":{"wall":"10m"}`, "a"), func(s *story, lie bool) {
			after := 10 * time.Minute
			if lie {
				after = 9 * time.Minute
			}
			s.expire(after, 10*time.Minute)
			s.step(record.KindTaskCancelled, &work{run: "r1", task: "a"}, 0, record.TaskStep{By: string(api.Service)})
			s.settle("r1", record.RunEnd{State: "cancelled", Cancelled: 1, Millis: after.Milliseconds()})
		}},
		"a limit of time that the plan does not have": {report.RowCompleteness, plannedAs(`,"limits":{"wall":"10m"}`, "a"), func(s *story, lie bool) {
			limit := 10 * time.Minute
			if lie {
				limit = 5 * time.Minute
			}
			s.expire(10*time.Minute, limit)
			s.step(record.KindTaskCancelled, &work{run: "r1", task: "a"}, 0, record.TaskStep{By: string(api.Service)})
			s.settle("r1", record.RunEnd{State: "cancelled", Cancelled: 1, Millis: 600_000})
		}},
		"an answer that was not given": {report.RowCompleteness, one(""), func(s *story, lie bool) {
			a := asking(s)
			if !lie {
				s.act(record.KindTaskAnswered, "local:ann", "a", record.RunAction{})
			}
			a = s.resumes(a, 2)
			s.admit(a)
			s.start(a)
			s.done(a, 1)
			s.settle("r1", done(1))
		}},
		"an answer that another principal gave": {report.RowCompleteness, one(""), func(s *story, lie bool) {
			a := asking(s)
			who := api.Principal("local:ann")
			if lie {
				who = "local:eve"
			}
			s.act(record.KindTaskAnswered, who, "a", record.RunAction{})
			a = s.resumes(a, 2)
			s.admit(a)
			s.start(a)
			s.done(a, 1)
			s.settle("r1", done(1))
		}},
		"a question that was given up, and was answered": {report.RowCompleteness, one(""), func(s *story, lie bool) {
			a := asking(s)
			if lie {
				s.act(record.KindTaskAnswered, "local:ann", "a", record.RunAction{})
			}
			e := s.about(record.KindDispatchFailed, a, record.DispatchEnd{Reason: "timeout", Files: 1})
			for _, ref := range []string{record.RefResult, record.RefPatch, record.RefQuestion} {
				e.Refs[ref] = s.entries[len(s.entries)-len(s.after(record.KindDispatchNeedsInput))].Refs[ref]
			}
			s.write(e)
			s.attest(a, api.EventFailed, api.ReasonTimeout, "")
			s.step(record.KindTaskFailed, a, 1, record.TaskStep{Reason: "timeout"})
			s.settle("r1", record.RunEnd{State: "failed", Failed: 1})
		}},
		"a task that is denied, and nothing denied it": {report.RowCompleteness, one(""), func(s *story, lie bool) {
			a := of("a", 1)
			s.step(record.KindTaskStarted, a, 1, record.TaskStart{Fence: 1})
			if !lie {
				tier := api.Reversible
				s.write(record.Entry{
					Kind: record.KindDispatchDenied, Principal: "local:ann", Action: "dispatch", Resource: "code", Run: "r1", Task: "a", Dispatch: a.id, Tier: &tier,
					Detail: record.DispatchRequest{Subagent: "code", Target: "local"},
				})
			}
			s.step(record.KindTaskDenied, a, 1, record.TaskStep{Reason: "denied"})
			s.settle("r1", record.RunEnd{State: "failed", Denied: 1})
		}},
		"more tasks taken over than were done": {report.RowCompleteness, one(""), func(s *story, lie bool) {
			a := of("a", 1)
			s.fire(a, 1)
			s.failed(a, 1, "agent")
			s.settle("r1", record.RunEnd{State: "failed", Failed: 1})
			taken, end := int64(0), record.RunEnd{State: "failed", Failed: 1}
			if lie {
				taken, end = 1, done(1)
			}
			s.submit(strings.Replace(one(""), `"r1"`, `"r2"`, 1), "r1", taken)
			if !lie {
				b := &work{id: "t-a2", run: "r2", task: "a", fence: 2}
				s.fire(b, 1)
				s.failed(b, 1, "agent")
			}
			s.settle("r2", end)
		}},
		"a dispatch under another lease": {report.RowManifest, one(""), func(s *story, lie bool) {
			a := of("a", 1)
			if lie {
				s.editManifest = func(m *record.Manifest) { m.Fence = 7 }
			}
			s.fire(a, 1)
			s.done(a, 1)
			s.settle("r1", done(1))
		}},
		"other work than the plan's": {report.RowManifest, one(""), func(s *story, lie bool) {
			a := of("a", 1)
			if lie {
				a.input = `{"do":"something else"}`
			}
			s.fire(a, 1)
			s.done(a, 1)
			s.settle("r1", done(1))
		}},
		"names of a later revision than was pinned": {report.RowManifest, one(""), func(s *story, lie bool) {
			pinned, digest := s.revision, s.revisionDigest
			s.publish("local:ann", "local:bob")
			if !lie {
				s.revision, s.revisionDigest = pinned, digest
			}
			a := of("a", 1)
			s.fire(a, 1)
			s.done(a, 1)
			s.settle("r1", done(1))
		}},
		"a source at two commits": {report.RowManifest, plannedAs("", "a", "b"), func(s *story, lie bool) {
			for i, id := range []api.TaskID{"a", "b"} {
				if lie && i == 1 {
					other := strings.Repeat("b2", 20)
					s.editManifest = func(m *record.Manifest) { m.Source = &api.PinnedSource{Name: "app", Commit: other} }
					s.editEntry = func(_ uint64, e *record.Entry) {
						if ask, ok := e.Detail.(record.DispatchRequest); ok {
							ask.Commit = other
							e.Detail = ask
						}
					}
				}
				w := of(id, uint64(i+1)) //nolint:gosec // G115: small
				s.fire(w, 1)
				s.done(w, 1)
			}
			s.settle("r1", done(2))
		}},
		"a result of another task": {report.RowResult, plannedAs("", "a", "b"), func(s *story, lie bool) {
			a, b := of("a", 1), of("b", 2)
			s.fire(a, 1)
			s.done(a, 1)
			s.fire(b, 1)
			if lie {
				s.editResult = func(r *record.Result) { r.Manifest = s.manifestDigests[a.key()] }
			}
			s.done(b, 1)
			s.settle("r1", done(2))
		}},
		"an input from nowhere": {report.RowProvenance, plannedAs("", "a", `b ,"needs":{"in":{"from":"a","output":"out"}}`), func(s *story, lie bool) {
			a := of("a", 1)
			s.fire(a, 1)
			s.done(a, 1)
			out := s.results[a.key()].Summary.Outputs[0]
			if lie {
				out.Digest = api.DigestOf([]byte("from nowhere"))
			}
			b := of("b", 2)
			b.needs = []record.Need{{Name: "in", Task: "a", Dispatch: a.id, Kind: record.NeedOutput, Path: "out", Digest: out.Digest, Size: out.Size}}
			s.fire(b, 1)
			s.done(b, 1)
			s.settle("r1", done(2))
		}},
		"a capability that was not requested": {report.RowManifest, strings.ReplaceAll(one(""), `,"capabilities":["tools"]`, ``), func(s *story, lie bool) {
			s.editEntry = func(_ uint64, e *record.Entry) {
				if ask, ok := e.Detail.(record.DispatchRequest); ok {
					ask.Capabilities = nil
					e.Detail = ask
				}
			}
			if !lie {
				s.editManifest = func(m *record.Manifest) {
					m.Capabilities = nil
					m.Artifacts = slices.DeleteFunc(m.Artifacts, func(p record.Pin) bool { return p.Ref == "capability/tools" })
				}
			}
			a := of("a", 1)
			s.fire(a, 1)
			s.done(a, 1)
			s.settle("r1", done(1))
		}},
		"a dispatch while a stop held its run": {report.RowAuthorisation, one(""), func(s *story, lie bool) {
			stopped := "r7"
			if lie {
				stopped = "r1"
			}
			s.write(record.Entry{Kind: record.KindStopEngaged, Detail: record.StopEngaged{Stop: "s-1", Scope: "run", Name: stopped}})
			a := of("a", 1)
			s.fire(a, 1)
			s.done(a, 1)
			s.settle("r1", done(1))
		}},
		"an attempt after the consent was taken back": {report.RowAuthorisation, one(""), func(s *story, lie bool) {
			a := asking(s)
			s.act(record.KindTaskAnswered, "local:ann", "a", record.RunAction{})
			if lie {
				s.consent("local:ann", api.Observe)
			}
			a = s.resumes(a, 2)
			s.admit(a)
			s.start(a)
			s.done(a, 1)
			s.settle("r1", done(1))
		}},
	}
}

// after are the entries from the last of a kind on.
func (s *story) after(kind record.Kind) []record.Entry {
	for i, e := range slices.Backward(s.entries) {
		if e.Kind == kind {
			return s.entries[i:]
		}
	}
	return nil
}

// verifyRun verifies the newest run of a story.
func verifyRun(t *testing.T, x tale, lie bool) report.Report {
	t.Helper()
	s := newStory(t)
	s.submit(x.plan, "", 0)
	x.tell(s, lie)
	c := bundle.Case{Run: api.RunID(s.entries[len(s.entries)-1].Run)}
	return Verify(reread(t, s.bundle(c)), s.trust(), Options{})
}

// Each run is written with one lie, which needs the service key, and without: the
// first fails in exactly the row for it, the second in none.
//
// proves R-A7
func TestEachLieAboutARunFailsExactlyItsRow(t *testing.T) {
	for name, x := range tales() {
		t.Run(name, func(t *testing.T) {
			if r := verifyRun(t, x, false); r.Failed() || r.Row(x.row).Status != report.Pass {
				t.Errorf("without the lie:\n%s", r.Text())
			}
			r := verifyRun(t, x, true)
			for _, row := range r.Rows {
				if (row.Status == report.Fail) != (row.Row == x.row) {
					t.Errorf("%s is %s: %s", row.Row, row.Status, row.Why)
				}
			}
		})
	}
}

// What an exporter can do to the bundle of a run.
//
// proves R-A7
func TestEachForgedRunBundleFailsExactlyItsRow(t *testing.T) {
	for _, f := range []struct {
		name string
		row  report.RowName
		lie
	}{
		{"an entry of a task is rewritten", report.RowInclusion, lie{bundle: func(s *story, b *bundle.Bundle) {
			i := slices.IndexFunc(b.Entries, func(e bundle.Entry) bool { return s.entries[e.Seq].Kind == record.KindTaskStarted })
			e := s.entries[b.Entries[i].Seq]
			e.At = e.At.Add(time.Millisecond)
			var err error
			b.Entries[i].Leaf, err = e.Encode()
			s.must(err)
		}}},
		{"the checkpoint is a stranger's", report.RowSignature, lie{bundle: func(s *story, b *bundle.Bundle) { b.Case.Checkpoint = s.signCheckpoint(newSigner(s.t), len(s.leaves)) }}},
		{"another checkpoint is of another log", report.RowConsistency, lie{bundle: func(_ *story, b *bundle.Bundle) { b.Case.Anchored[0].Proof[0] ^= 1 }}},
		{"a receipt is of another checkpoint", report.RowAnchor, lie{bundle: func(s *story, b *bundle.Bundle) {
			s.stamped(b, len(s.leaves), s.at)
			s.stamped(b, len(s.leaves)-1, s.at)
			b.Case.Anchored[1].Receipt = b.Case.Anchored[2].Receipt
		}}},
		{"the catalog is a stranger's", report.RowCatalog, lie{bundle: foreignRevision}},
		{"the entry of a task is left out", report.RowCompleteness, lie{bundle: func(s *story, b *bundle.Bundle) { drop(s, b, record.KindTaskSkipped) }}},
		{"the entry that requests a cancellation is left out", report.RowCompleteness, lie{bundle: func(s *story, b *bundle.Bundle) { drop(s, b, record.KindRunCancelled) }}},
		{"the stamp is older than the run", report.RowTime, lie{bundle: func(s *story, b *bundle.Bundle) { s.stamped(b, len(s.leaves), s.at.Add(-time.Hour)) }}},
	} {
		t.Run(f.name, func(t *testing.T) {
			_, r := judge(t, bundle.Case{Run: "r1"}, f.lie)
			for _, row := range r.Rows {
				if (row.Status == report.Fail) != (row.Row == f.row) {
					t.Errorf("%s is %s: %s", row.Row, row.Status, row.Why)
				}
			}
		})
	}
	if _, r := judge(t, bundle.Case{Run: "r1"}, lie{}); r.Failed() {
		t.Errorf("without any:\n%s", r.Text())
	}
}
