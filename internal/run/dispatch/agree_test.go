package dispatch

import (
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

func digestOf(s string) api.Digest { return api.DigestOf([]byte(s)) }

// endedRow is the row of a dispatch that has ended, and what its entries say.
func endedRow(t *testing.T) (row, record.DispatchStanding) {
	t.Helper()
	code := 2
	d := api.Dispatch{
		ID: "d-1", State: api.EventFailed, Reason: api.ReasonVerify, Attempt: 1, Principal: "agent:a1", Run: "r-1", Task: "t-1", Subagent: "code", Role: "coder", Tier: api.Stateful,
		Target: "local", Source: &api.PinnedSource{Name: "app", Commit: "0123"}, Revision: 3, Manifest: digestOf("manifest"), Input: digestOf("input"), Result: digestOf("result"),
		Outcome: &api.ResultSummary{
			ExitCode: &code, Files: []api.FileChange{{Path: "a"}}, Verify: &api.VerifyReport{Changed: []string{"a"}}, Partial: true,
			Patch: &api.Artifact{Digest: digestOf("patch")}, Question: &api.Artifact{Digest: digestOf("question")},
		},
		Calls: &api.ToolCalls{Record: &api.Artifact{Digest: digestOf("calls")}},
	}
	m := admitted(&d)
	accepted, ended := record.Accepted(m, d.Manifest, nil), record.Ended(&d)
	accepted.Principal = d.Principal
	var s record.DispatchStanding
	for _, e := range []record.Entry{accepted, {Kind: record.KindDispatchStarted, Dispatch: d.ID, Attempt: 1, Detail: record.DispatchStart{WorkerKey: "key"}}, ended} {
		if err := s.Apply(&e); err != nil {
			t.Fatal(err)
		}
	}
	return row{record: d, key: "key"}, s
}

// Each member of a row that an entry repeats is compared with it.
//
// proves R-A8
func TestARowDisagreesWithItsEntriesInEachMember(t *testing.T) {
	if r, s := endedRow(t); r.disagrees(&s) != "" {
		t.Fatalf("it disagrees with its own entries in %q", r.disagrees(&s))
	}
	for name, change := range map[string]func(*row){
		"run":               func(r *row) { r.record.Run = "r-2" },
		"task":              func(r *row) { r.record.Task = "t-2" },
		"subagent":          func(r *row) { r.record.Subagent = "other" },
		"target":            func(r *row) { r.record.Target = "other" },
		"source":            func(r *row) { r.record.Source.Name = "other" },
		"no source":         func(r *row) { r.record.Source = nil },
		"commit":            func(r *row) { r.record.Source.Commit = "4567" },
		"revision":          func(r *row) { r.record.Revision++ },
		"role":              func(r *row) { r.record.Role = "other" },
		"tier":              func(r *row) { r.record.Tier = api.Observe },
		"manifest":          func(r *row) { r.record.Manifest = digestOf("other") },
		"worker key":        func(r *row) { r.key = "other" },
		"result":            func(r *row) { r.record.Result = digestOf("other") },
		"no result":         func(r *row) { r.record.Result = "" },
		"reason":            func(r *row) { r.record.Reason = api.ReasonAgent },
		"patch":             func(r *row) { r.record.Outcome.Patch.Digest = digestOf("other") },
		"no patch":          func(r *row) { r.record.Outcome.Patch = nil },
		"no question":       func(r *row) { r.record.Outcome.Question = nil },
		"no outcome":        func(r *row) { r.record.Outcome = nil },
		"partial":           func(r *row) { r.record.Outcome.Partial = false },
		"files":             func(r *row) { r.record.Outcome.Files = nil },
		"verify":            func(r *row) { r.record.Outcome.Verify.Passed = true },
		"changed":           func(r *row) { r.record.Outcome.Verify.Changed = nil },
		"exit code":         func(r *row) { r.record.Outcome.ExitCode = nil },
		"statement":         func(r *row) { r.record.Statement = digestOf("statement") },
		"refusals":          func(r *row) { r.record.Outcome.Refusals = &api.Refusals{Count: 1} },
		"calls":             func(r *row) { r.record.Calls.Allowed = 1 },
		"denied calls":      func(r *row) { r.record.Calls.Denied = 1 },
		"record of calls":   func(r *row) { r.record.Calls.Record.Digest = digestOf("other") },
		"no record of them": func(r *row) { r.record.Calls = nil },
		"taint":             func(r *row) { r.record.Taint = &api.Taint{Dispatch: "d-1"} },
	} {
		r, s := endedRow(t)
		if change(&r); r.disagrees(&s) == "" {
			t.Errorf("%s: the changed row agrees with its entries", name)
		}
	}
}

// An end repeats the manifest of its row. A row that was changed before the end still
// differs from the entry that admitted it.
func TestARowDisagreesWithTheManifestThatWasAdmitted(t *testing.T) {
	r, s := endedRow(t)
	r.record.Manifest = digestOf("other")
	s.End = record.Ended(&r.record)
	if what := r.disagrees(&s); what != "manifest" {
		t.Errorf("it disagrees in %q", what)
	}
}

// The principal that cancelled a dispatch is compared.
func TestARowDisagreesWithWhoCancelledIt(t *testing.T) {
	r, s := endedRow(t)
	r.record.State, r.record.Reason, r.record.CancelBy = api.EventCancelled, "", "agent:a1"
	s.End = record.Ended(&r.record)
	if what := r.disagrees(&s); what != "" {
		t.Fatalf("it disagrees in %q", what)
	}
	r.record.CancelBy = "human:h1"
	if what := r.disagrees(&s); what != "by" {
		t.Errorf("it disagrees in %q", what)
	}
}

// The row of a dispatch with the result of another one repeats its only entry.
func TestAReusedRowDisagreesWithItsEntry(t *testing.T) {
	key := digestOf("key")
	of := func() (row, record.DispatchStanding) {
		d := api.Dispatch{
			ID: "d-2", State: api.EventFinished, Attempt: 1, Principal: "agent:a1", Run: "r-1", Task: "t-1", Subagent: "code", Role: "coder", Tier: api.Observe,
			Manifest: digestOf("manifest"), Input: digestOf("input"), Reused: &api.Reuse{DispatchID: "d-1", Key: key},
		}
		e := record.Reused(admitted(&d), d.Manifest, key, "d-1")
		var s record.DispatchStanding
		if err := s.Apply(&e); err != nil {
			t.Fatal(err)
		}
		return row{record: d}, s
	}
	for name, change := range map[string]func(*row){
		"not reused": func(r *row) { r.record.Reused = nil },
		"of":         func(r *row) { r.record.Reused.DispatchID = "d-3" },
		"key":        func(r *row) { r.record.Reused.Key = digestOf("other") },
		"run":        func(r *row) { r.record.Run = "r-2" },
		"task":       func(r *row) { r.record.Task = "t-2" },
		"subagent":   func(r *row) { r.record.Subagent = "other" },
		"role":       func(r *row) { r.record.Role = "other" },
		"tier":       func(r *row) { r.record.Tier = api.Stateful },
		"manifest":   func(r *row) { r.record.Manifest = digestOf("other") },
		"input":      func(r *row) { r.record.Input = digestOf("other") },
	} {
		r, s := of()
		change(&r)
		if what, err := r.disagreesReused(nil, &s); err != nil || what == "" {
			t.Errorf("%s: %q, %v", name, what, err)
		}
	}
}
