package evidence

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// withhold removes entries from a bundle, with the documents that only they name,
// and proves the rest again, as an exporter can.
func withhold(s *story, b *bundle.Bundle, which func(e *record.Entry) bool) {
	left := map[api.Digest]bool{}
	b.Entries = slices.DeleteFunc(slices.Clone(b.Entries), func(e bundle.Entry) bool {
		gone := which(&s.entries[e.Seq])
		for _, d := range s.entries[e.Seq].Refs {
			left[d] = left[d] || !gone
		}
		return gone
	})
	maps.DeleteFunc(b.Documents, func(d api.Digest, _ []byte) bool {
		still, named := left[d]
		return named && !still
	})
	reprove(s, b)
}

// add puts entries of the log into a bundle, with the documents that they name.
func add(s *story, b *bundle.Bundle, which func(e *record.Entry) bool) {
	for i := range s.entries {
		n := uint64(i) //nolint:gosec // G115: an index
		if !which(&s.entries[i]) || slices.ContainsFunc(b.Entries, func(e bundle.Entry) bool { return e.Seq == n }) {
			continue
		}
		b.Entries = append(b.Entries, bundle.Entry{Seq: n, Leaf: s.leaves[i]})
		for _, d := range s.entries[i].Refs {
			if doc, ok := s.documents[d]; ok {
				b.Documents[d] = doc
			}
		}
	}
	slices.SortFunc(b.Entries, func(x, y bundle.Entry) int { return int(x.Seq) - int(y.Seq) }) //nolint:gosec // G115: small
	reprove(s, b)
}

func ofDispatch(id api.DispatchID) func(*record.Entry) bool {
	return func(e *record.Entry) bool { return e.Dispatch == id }
}

// endings tells work that ended in several ways, and returns its cases: finished,
// lost, retried, answered, cancelled before its start; and a run that is retried.
func endings(s *story) []bundle.Case {
	s.whole("d-01")
	tell(s)
	d := &work{id: "d-02"}
	s.admit(d)
	s.abort(d, "no longer needed")
	s.lose(d, record.KindDispatchCancelled, record.DispatchEnd{By: "service"})
	s.submit(strings.Replace(planDoc, `"id":"r1"`, `"id":"r2"`, 1), "r1", 2)
	s.act2("r2", record.KindRunCancelled)
	for _, id := range []string{"c", "d"} {
		s.step(record.KindTaskCancelled, &work{run: "r2", task: api.TaskID(id)}, 0, record.TaskStep{By: "local:ann"})
	}
	s.settle("r2", record.RunEnd{State: "cancelled", Done: 2, Cancelled: 2})
	return []bundle.Case{{Dispatch: "d-01"}, {Dispatch: "d-02"}, {Run: "r1"}, {Run: "r2"}}
}

func (s *story) act2(run string, kind record.Kind) {
	s.write(record.Entry{Kind: kind, Principal: "local:ann", Action: "run.cancel", Resource: run, Policies: []string{"owner"}, Run: run, Detail: record.RunAction{}})
}

// An exporter cannot leave out a statement: neither all of them, nor one, nor the
// end of a dispatch with it.
//
// proves R-A7
func TestNoStatementCanBeWithheld(t *testing.T) {
	s := newStory(t)
	attested := func(e *record.Entry) bool { return e.Kind == record.KindDispatchAttested }
	for _, c := range endings(s) {
		if r := Verify(reread(t, s.bundle(c)), s.trust(), Options{}); r.Failed() {
			t.Fatalf("control:\n%s", r.Text())
		}
		for name, which := range map[string]func(*record.Entry) bool{
			"every statement": attested,
			"one statement":   func(e *record.Entry) bool { return attested(e) && (e.Dispatch == "t-c1" || e.Dispatch == c.Dispatch) },
			"statements and end": func(e *record.Entry) bool {
				return attested(e) || e.Dispatch == c.Dispatch && record.EndsDispatch(e.Kind)
			},
		} {
			b := s.bundle(c)
			withhold(s, b, which)
			if r := Verify(reread(t, b), s.trust(), Options{}); r.Row(report.RowCompleteness).Status != report.Fail || r.Claim != report.ClaimNone {
				t.Errorf("%+v without %s:\n%s", c, name, r.Text())
			}
		}
	}
}

// What may follow the attestation of a dispatch changes nothing of it, so evidence
// is the same without it. Nothing else may follow.
//
// proves R-A7
func TestOnlyWhatChangesNothingFollowsTheAttestation(t *testing.T) {
	after := func(kind record.Kind) report.Report {
		s := newStory(t)
		w := &work{id: "d-01"}
		if area, _, _ := strings.Cut(string(kind), "."); area == "run" || area == "schedule" || area == "task" {
			w.run, w.task, w.fence = "r1", "a1", 1 // entries of these kinds are about a run
		}
		s.admit(w)
		s.start(w)
		s.finish(w, api.EventFinished, "")
		d := kind.Detail()
		switch kind { //nolint:exhaustive // those that need a detail
		case record.KindDispatchPinned, record.KindDispatchUnpinned:
			d = record.Access{Operation: "dispatch.pin"}
		case record.KindTaskDenied:
			d = record.TaskStep{Reason: "denied"}
		case record.KindTaskFailed:
			d = record.TaskStep{Reason: "integrity"}
		case record.KindRunGrown:
			d = record.RunGrowth{Cause: "gate", Round: 1, Tasks: 1, Total: 2}
		}
		e := s.beside(kind, w, d)
		if slices.Contains(taskKinds(), kind) {
			e.Role, e.Tier = "", nil
		}
		if kind == record.KindRunGrown {
			e.Refs = map[string]api.Digest{record.RefGrowth: api.DigestOf([]byte("a growth"))}
		}
		if kind == record.KindApprovalExpired {
			e = record.CallEntry(kind, s.manifests[w.key()], "warehouse/apply", nil, d)
		}
		// The members without which an entry of the kind cannot be written.
		switch area, _, _ := strings.Cut(string(kind), "."); area {
		case "tool", "approval":
			e.Tool = "warehouse/query"
		case "run", "schedule", "task":
			e.Run, e.Task = string(w.run), string(w.task)
		}
		seq := s.write(e)
		b := s.bundle(bundle.Case{Dispatch: "d-01"})
		r := Verify(reread(t, b), s.trust(), Options{})
		withhold(s, b, func(e *record.Entry) bool { return e == &s.entries[seq] })
		if without := Verify(reread(t, b), s.trust(), Options{}); without.Failed() {
			t.Errorf("%s is left out:\n%s", kind, without.Text())
		}
		return r
	}
	for _, kind := range record.Kinds() {
		if r := after(kind); r.Failed() == record.FollowsAttestation(kind) {
			t.Errorf("%s after the attestation:\n%s", kind, r.Text())
		}
	}
}

// Whatever is in a bundle belongs to its subject.
//
// proves R-A7
func TestWhatDoesNotBelongToTheCaseIsRefused(t *testing.T) {
	all := func(which ...func(*record.Entry) bool) func(*story, *bundle.Bundle) {
		return func(s *story, b *bundle.Bundle) {
			for _, w := range which {
				add(s, b, w)
			}
		}
	}
	inRun := func(run string) func(*record.Entry) bool {
		return func(e *record.Entry) bool { return e.Run == run }
	}
	document := func(s *story, b *bundle.Bundle, doc []byte) { b.Documents[s.put(doc)] = doc }
	for name, x := range map[string]struct {
		c    bundle.Case
		add  func(*story, *bundle.Bundle)
		row  report.RowName
		says string
	}{
		"another dispatch beside a dispatch":          {bundle.Case{Dispatch: "d-01"}, all(ofDispatch("d-02")), report.RowCompleteness, "does not belong"},
		"another dispatch beside a task's":            {bundle.Case{Dispatch: "t-c1"}, all(ofDispatch("d-02")), report.RowCompleteness, "does not belong"},
		"another task's dispatch that it did not use": {bundle.Case{Dispatch: "t-c1"}, all(ofDispatch("t-a1")), report.RowCompleteness, "does not belong"},
		"a run beside a dispatch":                     {bundle.Case{Dispatch: "d-01"}, all(inRun("r1")), report.RowCompleteness, "an entry is missing or added"},
		"its run beside a task's dispatch":            {bundle.Case{Dispatch: "t-c1"}, all(inRun("r1")), report.RowCompleteness, "an entry is missing or added"},
		"a run that retries it":                       {bundle.Case{Run: "r1"}, all(inRun("r2")), report.RowCompleteness, "does not belong"},
		"another dispatch beside a run":               {bundle.Case{Run: "r1"}, all(ofDispatch("d-01")), report.RowCompleteness, "does not belong"},
		"a start of the service":                      {bundle.Case{Run: "r1"}, all(func(e *record.Entry) bool { return e.Kind == record.KindServiceStarted }), report.RowCompleteness, "does not belong"},
		"rules of after the last decision":            {bundle.Case{Dispatch: "d-01"}, all(func(e *record.Entry) bool { return e.Kind == record.KindStopEngaged }), report.RowCompleteness, "does not belong"},
		"the statement of another dispatch, without entry": {bundle.Case{Dispatch: "d-01"}, func(s *story, b *bundle.Bundle) {
			i := slices.IndexFunc(s.entries, func(e record.Entry) bool { return e.Kind == record.KindDispatchAttested && e.Dispatch == "d-02" })
			document(s, b, s.documents[s.entries[i].Refs[record.RefStatement]])
		}, report.RowProvenance, "not referenced"},
		"text that nothing names": {bundle.Case{Run: "r1"}, func(s *story, b *bundle.Bundle) { document(s, b, []byte("all is well")) }, report.RowProvenance, "not referenced"},
		"content that nothing names": {bundle.Case{Run: "r1"}, func(_ *story, b *bundle.Bundle) {
			b.Content = append(b.Content, bundle.Content{Digest: api.DigestOf([]byte("x")), Size: 1})
		}, report.RowProvenance, "not referenced"},
		"a catalog revision that nothing used": {bundle.Case{Dispatch: "d-01"}, func(s *story, b *bundle.Bundle) {
			r := s.revisions[s.revisionDigest]
			document(s, b, s.documents[r.Envelopes[0]])
			b.Case.Revisions = append(b.Case.Revisions, r)
			slices.SortFunc(b.Case.Revisions, func(x, y bundle.Revision) int { return strings.Compare(string(x.Digest), string(y.Digest)) })
		}, report.RowProvenance, "not referenced"},
		"an artifact that nothing used": {bundle.Case{Dispatch: "d-01"}, func(s *story, b *bundle.Bundle) {
			d := s.revision.Artifacts["subagent/other"].Digest
			b.Documents[d] = s.documents[d]
		}, report.RowProvenance, "not referenced"},
		"an operator's record that nothing used": {bundle.Case{Dispatch: "d-01"}, func(s *story, b *bundle.Bundle) {
			d := s.records[len(s.records)-1]
			b.Documents[d], b.Case.Records = s.documents[d], append(b.Case.Records, d)
		}, report.RowAuthorisation, "operator records"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			endings(s)
			s.publish("local:ann", "local:bob")
			s.consent("local:bob", api.Observe)
			s.write(record.Entry{Kind: record.KindStopEngaged, Principal: "local:op", Detail: record.StopEngaged{Stop: "s-1", Scope: "all"}})
			b := s.bundle(x.c)
			if r := Verify(b, s.trust(), Options{}); r.Failed() {
				t.Fatalf("control:\n%s", r.Text())
			}
			x.add(s, b)
			if r := Verify(b, s.trust(), Options{}); r.Row(x.row).Status != report.Fail || !strings.Contains(r.Row(x.row).Why, x.says) {
				t.Error(r.Text())
			}
		})
	}
}

// A task cannot be given another dispatch's work.
//
// proves R-A7
func TestATaskNeedsADispatchOfItsOwn(t *testing.T) {
	s := newStory(t)
	s.submit(plannedAs("", "a"), "", 0)
	w := of("a", 1)
	s.whole(w.id) // a dispatch outside the run
	s.step(record.KindTaskStarted, w, 1, record.TaskStart{Fence: 1})
	s.step(record.KindTaskDone, w, 1, record.TaskStep{})
	s.settle("r1", record.RunEnd{State: "done", Done: 1})
	r := Verify(reread(t, s.bundle(bundle.Case{Run: "r1"})), s.trust(), Options{})
	if row := r.Row(report.RowCompleteness); row.Status != report.Fail || !strings.Contains(row.Why, "was not admitted for it") {
		t.Error(r.Text())
	}
}

// A statement that is signed after the settlement is required too.
//
// proves R-A7
func TestAStatementAfterTheSettlementIsRequired(t *testing.T) {
	s := newStory(t)
	s.submit(plannedAs("", "a"), "", 0)
	w := of("a", 1)
	s.fire(w, 1)
	s.write(s.about(record.KindDispatchFailed, w, record.DispatchEnd{Reason: "lost"}))
	s.step(record.KindTaskFailed, w, 1, record.TaskStep{Reason: "lost"})
	s.settle("r1", record.RunEnd{State: "failed", Failed: 1})
	for _, c := range []bundle.Case{{Run: "r1"}, {Dispatch: w.id}} {
		if r := Verify(reread(t, s.bundle(c)), s.trust(), Options{}); r.Row(report.RowCompleteness).Status != report.Fail || !strings.Contains(r.Row(report.RowCompleteness).Why, "no entry attests it") {
			t.Errorf("%+v before it:\n%s", c, r.Text())
		}
	}
	s.attest(w, api.EventFailed, api.ReasonLost, "")
	for _, c := range []bundle.Case{{Run: "r1"}, {Dispatch: w.id}} {
		if r := Verify(reread(t, s.bundle(c)), s.trust(), Options{}); r.Failed() {
			t.Errorf("%+v:\n%s", c, r.Text())
		}
		b := s.bundle(c)
		withhold(s, b, func(e *record.Entry) bool { return e.Kind == record.KindDispatchAttested })
		if r := Verify(reread(t, b), s.trust(), Options{}); r.Row(report.RowCompleteness).Status != report.Fail {
			t.Errorf("%+v without it:\n%s", c, r.Text())
		}
	}
}
