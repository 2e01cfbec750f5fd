package record

import (
	"fmt"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

func described() *Manifest {
	m := &Manifest{
		ID: "d-1", Attempt: 1, Principal: "local:ann", Run: "r-1", Task: "fix", Revision: 7, Subagent: "fixer", Role: "transform", Tier: api.Reversible, Target: "local",
		Source: &api.PinnedSource{Name: "app", Commit: "0123456789012345678901234567890123456789"}, Input: api.DigestOf([]byte("{}")),
	}
	for i := range 40 {
		m.Envs = append(m.Envs, api.Name(fmt.Sprintf("env-%d", i)))
	}
	return m
}

// An entry has all that its manifest says about it, and what the log keeps of it differs
// in no field. The controls change one field each.
func TestExpectedEntriesAreThoseOfTheLog(t *testing.T) {
	m := described()
	want := Accepted(m, api.DigestOf([]byte("m")), []api.Name{"net"})
	fields := []string{"kind", "run", "task", "dispatch", "attempt", "role", "tier", "refs", "detail.subagent", "detail.target", "detail.source", "detail.commit", "detail.envs", "detail.capabilities", "detail.revision"}
	logged := want // with what the ledger adds
	logged.Decision, logged.Principal, logged.At = Allow, m.Principal, time.Unix(0, 0)
	doc, err := logged.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeEntry(doc)
	if err != nil {
		t.Fatal(err)
	}
	if d := Difference(&want, &got, fields...); d != "" {
		t.Errorf("%s differs", d)
	}
	for field, change := range map[string]func(*Manifest){
		"run":             func(m *Manifest) { m.Run = "r-2" },
		"attempt":         func(m *Manifest) { m.Attempt = 2 },
		"role":            func(m *Manifest) { m.Role = "quality" },
		"tier":            func(m *Manifest) { m.Tier = api.Observe },
		"refs.input":      func(m *Manifest) { m.Input = api.DigestOf([]byte("[]")) },
		"detail.subagent": func(m *Manifest) { m.Subagent = "other" },
		"detail.target":   func(m *Manifest) { m.Target = "other" },
		"detail.source":   func(m *Manifest) { m.Source = nil },
		"detail.envs":     func(m *Manifest) { m.Envs[39] = "other" },
		"detail.revision": func(m *Manifest) { m.Revision = 8 },
	} {
		changed := described()
		change(changed)
		other := Accepted(changed, api.DigestOf([]byte("m")), []api.Name{"net"})
		if d := Difference(&other, &got, fields...); d != field {
			t.Errorf("%s is changed, and %q differs", field, d)
		}
	}
}

// An end says what the record says, and who cancelled only of a cancelled dispatch.
func TestEndsSayWhatTheRecordSays(t *testing.T) {
	d := &api.Dispatch{
		ID: "d-1", Attempt: 2, State: api.EventFailed, Reason: api.ReasonLimit, Message: "too long", CancelBy: "local:ann", Manifest: api.DigestOf([]byte("m")), Result: api.DigestOf([]byte("r")),
		Outcome: &api.ResultSummary{Partial: true, Patch: &api.Artifact{Digest: api.DigestOf([]byte("p"))}}, Calls: &api.ToolCalls{Record: &api.Artifact{Digest: api.DigestOf([]byte("c"))}},
	}
	e := Ended(d)
	end := e.Detail.(DispatchEnd)
	if e.Kind != KindDispatchFailed || end.By != "" || end.Reason != string(api.ReasonLimit) || end.Message != "too long" || !end.Partial || len(e.Refs) != 4 {
		t.Errorf("%+v", e)
	}
	d.State, d.Reason = api.EventCancelled, ""
	if e = Ended(d); e.Kind != KindDispatchCancelled || e.Detail.(DispatchEnd).By != "local:ann" {
		t.Errorf("%+v", e)
	}
}
