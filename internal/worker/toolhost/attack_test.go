package toolhost

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// refusal checks that a call was refused for a reason, and that nothing reached the server.
func (w *world) refusal(name string, r record.ToolReply, part string) {
	w.t.Helper()
	if r.Fault == nil || !strings.Contains(r.Fault.Reason+r.Fault.Text, part) || r.Answer != nil {
		w.t.Errorf("%s: %+v %+v, want a refusal with %q", name, r, r.Fault, part)
	}
	if n := w.reached(); n != 0 {
		w.t.Errorf("%s: %d calls reached the server: %q", name, n, w.calls)
	}
}

// admitted checks that a call was made.
func (w *world) admitted(name string, r record.ToolReply) {
	w.t.Helper()
	if r.Fault != nil || !strings.Contains(string(r.Answer), "done") || w.reached() != 1 {
		w.t.Errorf("control: %s: %+v %+v; %d calls reached the server", name, r, r.Fault, w.reached())
	}
	w.mu.Lock()
	w.calls = nil
	w.mu.Unlock()
}

// A service that lies reaches no tool that people approve. After each attack the same tool
// host makes the call that people did approve: that is the control.
//
// takeover system, service account: no approve
//
// proves R-B9, R-G5, R-P1
func TestALyingServiceReachesNoToolThatPeopleApprove(t *testing.T) {
	all := []api.Principal{"human:bob", "human:carol"}
	for name, c := range map[string]struct {
		want string
		make func(w *world, h *toolhost) *record.ToolUse
	}{
		"no approval": {"the service has sent no approval", func(w *world, h *toolhost) *record.ToolUse {
			a := w.action("change")
			u := use(&a)
			u.Approved = nil
			return u
		}},
		"no votes": {"is not signed by 1 people", func(w *world, h *toolhost) *record.ToolUse {
			a := w.action("change")
			return use(&a)
		}},
		"a forged vote": {"is not signed by 1 people", func(w *world, h *toolhost) *record.ToolUse {
			a := w.action("change")
			envelope, _ := w.sign(newKey(w.t), w.ballot(a, "human:bob"))
			w.refusal("a record of a stranger", h.give(append(slices.Clone(w.records), envelope)), "not in the trust root")
			return use(&a)
		}},
		"a vote under the key of another": {"is not signed by 1 people", func(w *world, h *toolhost) *record.ToolUse {
			a := w.action("change")
			envelope, _ := w.sign(w.people["human:eve"], w.ballot(a, "human:bob"))
			w.refusal("a vote under the key of another", h.give(append(slices.Clone(w.records), envelope)), "belongs to human:eve")
			return use(&a)
		}},
		"votes for another request": {"is not signed by 1 people", func(w *world, h *toolhost) *record.ToolUse {
			a := w.action("change")
			w.vote(a, all...)
			a.ID = newID()
			return use(&a)
		}},
		"other arguments": {"it is for another call", func(w *world, h *toolhost) *record.ToolUse {
			a := w.action("change")
			w.vote(a, all...)
			u := use(&a)
			u.Arguments = json.RawMessage(`{"sql":"y"}`)
			return u
		}},
		"other arguments in the action too": {"is not signed by 1 people", func(w *world, h *toolhost) *record.ToolUse {
			a := w.action("change")
			w.vote(a, all...)
			a.Arguments = json.RawMessage(`{"sql":"y"}`)
			return use(&a)
		}},
		"another tool": {"it is for another call", func(w *world, h *toolhost) *record.ToolUse {
			a := w.action("change")
			w.vote(a, all...)
			u := use(&a)
			u.Tool = "drop"
			return u
		}},
		"another dispatch": {"it is for dispatch d-01, not d-02", func(w *world, h *toolhost) *record.ToolUse {
			a := w.action("change")
			w.vote(a, all...)
			u := use(&a)
			u.Dispatch = "d-02"
			return u
		}},
		"expired": {"it expired at", func(w *world, h *toolhost) *record.ToolUse {
			a := w.action("change")
			a.Expires = time.Now().UTC().Add(-time.Second).Truncate(time.Second)
			w.vote(a, all...)
			return use(&a)
		}},
		"below the threshold": {"is not signed by 2 people", func(w *world, h *toolhost) *record.ToolUse {
			a := w.action("drop")
			w.vote(a, "human:bob")
			return use(&a)
		}},
		"one person twice": {"is not signed by 2 people", func(w *world, h *toolhost) *record.ToolUse {
			a := w.action("drop")
			w.vote(a, "human:bob", "local:bob")
			return use(&a)
		}},
		"one needed instead of two": {"by 1 people: the catalog says irreversible and 2", func(w *world, h *toolhost) *record.ToolUse {
			a := w.action("drop")
			a.Needs = 1
			w.vote(a, "human:bob")
			return use(&a)
		}},
		"a smaller tier": {"is for a call at tier stateful", func(w *world, h *toolhost) *record.ToolUse {
			a := w.action("drop")
			a.Tier, a.Needs = api.Stateful, 1
			w.vote(a, "human:bob")
			return use(&a)
		}},
		"another definition": {"is for another definition", func(w *world, h *toolhost) *record.ToolUse {
			a := w.action("change")
			a.Definition = api.DigestOf([]byte("another"))
			w.vote(a, all...)
			return use(&a)
		}},
		"a role that has no such tool": {`role "other" has no tool warehouse/change`, func(w *world, h *toolhost) *record.ToolUse {
			a := w.action("change")
			a.Role = "other"
			w.vote(a, all...)
			return use(&a)
		}},
		"an older kind of action": {"has version 1", func(w *world, h *toolhost) *record.ToolUse {
			a := w.action("change")
			a.V = 1
			w.vote(a, all...)
			return use(&a)
		}},
		"an unsigned catalog": {"another catalog", func(w *world, h *toolhost) *record.ToolUse {
			a := w.action("change")
			a.Revision = api.DigestOf([]byte("another"))
			w.vote(a, all...)
			return use(&a)
		}},
		"of a person who may not vote": {"is not signed by 1 people", func(w *world, h *toolhost) *record.ToolUse {
			a := w.action("change")
			w.vote(a, "human:eve")
			return use(&a)
		}},
		"of the person who submitted the work": {"is not signed by 2 people", func(w *world, h *toolhost) *record.ToolUse {
			a := w.action("drop")
			w.vote(a, "human:ann", "human:bob")
			return use(&a)
		}},
		"denied": {"is not signed by 1 people", func(w *world, h *toolhost) *record.ToolUse {
			a := w.action("change")
			w.vote(a, "human:bob")
			no := w.ballot(a, "human:carol")
			no.Verb = api.VerbDeny
			w.decide("human:carol", no)
			return use(&a)
		}},
		"of a removed person": {"is not signed by 1 people", func(w *world, h *toolhost) *record.ToolUse {
			a := w.action("change")
			w.vote(a, "human:bob")
			w.decide("local:root", api.OperatorRecord{Verb: api.VerbPrincipalRemove, Principal: "human:bob"})
			return use(&a)
		}},
		"a retired key": {"is not signed by 1 people", func(w *world, h *toolhost) *record.ToolUse {
			w.retire("human:bob")
			a := w.action("change")
			envelope, _ := w.sign(w.people["human:bob"], w.ballot(a, "human:bob"))
			w.refusal("a vote with it", h.give(append(slices.Clone(w.records), envelope)), "is retired since set 2")
			return use(&a)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			h := w.start(nil)
			u := c.make(w, h)
			if r := h.give(w.records); r.Fault != nil && !strings.Contains(r.Fault.Reason, "does not follow") {
				t.Fatal(r.Fault)
			}
			w.refusal(name, h.call(u), c.want)
			h.end()

			h = w.start(nil)
			a := w.action("drop")
			voters := []api.Principal{"human:bob", "human:carol"}
			if name == "of a removed person" || name == "a retired key" {
				a, voters = w.action("change"), voters[1:]
			}
			w.vote(a, voters...)
			if r := h.give(w.records); r.Fault != nil {
				t.Fatal(r.Fault)
			}
			w.admitted(name, h.call(use(&a)))
		})
	}
}

// An approval is good for one call: also after a restart of the tool host, with two that
// run at once, and after a kill between its use and the call. The control is its first use.
//
// proves R-G5
func TestAnApprovalIsUsedOnce(t *testing.T) {
	w := newWorld(t)
	a := w.action("change")
	w.vote(a, "human:bob")
	h, other := w.start(nil), w.start(nil)
	for _, h := range []*toolhost{h, other} {
		if r := h.give(w.records); r.Fault != nil {
			t.Fatal(r.Fault)
		}
	}
	w.admitted("the first use", h.call(use(&a)))
	w.refusal("again", h.call(use(&a)), "was used before")
	w.refusal("in another tool host", other.call(use(&a)), "was used before")
	h.end()
	h = w.start(nil)
	h.give(w.records)
	w.refusal("after a restart", h.call(use(&a)), "was used before")

	b := w.action("change")
	w.vote(b, "human:bob")
	var race sync.WaitGroup
	made := make(chan bool, 2)
	for _, h := range []*toolhost{h, other} {
		race.Go(func() {
			h.give(w.records)
			made <- h.call(use(&b)).Fault == nil
		})
	}
	race.Wait()
	if one, two := <-made, <-made; one == two || w.reached() != 1 {
		t.Errorf("two at once: %v and %v; %d calls reached the server", one, two, w.reached())
	}
}

// A tool host that is killed after it used an approval up, and before it sent the call,
// leaves the approval used: nothing is sent twice. The control is that the server was not
// reached, and takes the call with another approval.
//
// proves R-G5
func TestAKillBeforeTheCallLeavesTheApprovalUsed(t *testing.T) {
	w := newWorld(t)
	a := w.action("change")
	w.vote(a, "human:bob")
	// What spend leaves behind, before anything is sent.
	g, err := newGate(t.Context(), w.gate, w.server, time.Now)
	w.must(err)
	for _, e := range w.records {
		w.must(g.records([][]byte{e}))
	}
	w.must(g.admit(t.Context(), use(&a)))
	h := w.start(nil)
	h.give(w.records)
	w.refusal("after the kill", h.call(use(&a)), "was used before")
	b := w.action("change")
	w.vote(b, "human:bob")
	h.give(w.records)
	w.admitted("another approval", h.call(use(&b)))
	// Where nothing was sent and the tool host lived, the approval stays good.
	w.must(g.restore(&a))
	w.admitted("an approval that was given back", h.call(use(&a)))
}

// A service that keeps back what operators decided last is found out by a tool host of the
// server that was told of it, and by what the starter knows. The control is the same call
// once the service tells.
//
// takeover system, service account: no approve
//
// proves R-B9
func TestDecisionsCannotBeKeptBack(t *testing.T) {
	w := newWorld(t)
	a, b := w.action("change"), w.action("change")
	w.vote(a, "human:carol")
	w.vote(b, "human:bob")
	before := slices.Clone(w.records)
	h := w.start(nil)
	h.give(before)
	w.decide("local:root", api.OperatorRecord{Verb: api.VerbPrincipalRemove, Principal: "human:bob"})
	told := w.start(nil)
	told.give(w.records)
	w.admitted("in the tool host that was told", told.call(use(&a)))
	w.refusal("in the other", h.call(use(&b)), "keeps back decisions of operators")
	again := w.start(nil)
	again.give(before)
	w.refusal("in a new one", again.call(use(&b)), "keeps back decisions of operators")
	h.give(w.records)
	w.refusal("the vote of the removed person", h.call(use(&b)), "is not signed by 1 people")
	c := w.action("change")
	w.vote(c, "human:carol")
	h.give(w.records)
	w.admitted("once it is told", h.call(use(&c)))

	least := w.start(func(s *record.ToolStart) {
		s.Gate.Kept = t.TempDir()
		s.Gate.Least = record.ToolMark{Number: uint64(len(w.records)), Digest: w.previous}
	})
	least.give(before)
	w.refusal("below what the starter knows", least.call(use(&b)), "keeps back decisions of operators")
}

// A server that is not the signed one is not started: the service cannot say that a tool
// needs no approval. The control is the signed one.
//
// proves R-B5
func TestAServerThatIsNotTheSignedOneIsNotStarted(t *testing.T) {
	for name, c := range map[string]struct {
		want   string
		change func(*record.ToolStart)
	}{
		"without the approval": {"has another server", func(s *record.ToolStart) {
			s.Server.Allow = slices.Clone(s.Server.Allow)
			s.Server.Allow[0].Approval = nil
		}},
		"with another address": {"has another server", func(s *record.ToolStart) {
			http := *s.Server.HTTP
			http.URL += "x"
			s.Server.HTTP = &http
		}},
		"of another revision":  {"catalog revision", func(s *record.ToolStart) { s.Gate.Revision = api.DigestOf([]byte("x")) }},
		"of other deploy keys": {"not in the trust root", func(s *record.ToolStart) { s.Gate.Trust = s.Gate.Operators }},
		"without a gate":       {"makes no call that people approve", func(s *record.ToolStart) { s.Gate = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a := w.action("change")
			w.vote(a, "human:bob")
			h := w.start(c.change)
			h.give(w.records)
			w.refusal(name, h.call(use(&a)), c.want)
			h.end()
			h = w.start(nil)
			h.give(w.records)
			w.admitted(name, h.call(use(&a)))
			if name == "without a gate" {
				return
			}
			free := &record.ToolUse{Tool: "query", Arguments: json.RawMessage(`{}`), Dispatch: "d-01"}
			w.admitted("a tool that needs no approval", h.call(free))
		})
	}
}

// What tool hosts keep that cannot be read refuses calls, and files of approvals go long
// after their expiry.
func TestWhatToolHostsKeepIsReadStrictly(t *testing.T) {
	w := newWorld(t)
	a := w.action("change")
	w.vote(a, "human:bob")
	for _, name := range []string{catalogMark, chainMark} {
		path := filepath.Join(w.gate.Kept, name)
		w.must(os.WriteFile(path, []byte(`{"number":1`), 0o600))
		h := w.start(nil)
		h.give(w.records)
		w.refusal(name, h.call(use(&a)), "is damaged")
		h.end()
		w.must(os.Remove(path))
	}
	h := w.start(nil)
	h.give(w.records)
	w.admitted("undamaged", h.call(use(&a)))
	count := func(now time.Time) int {
		_, err := newGate(t.Context(), w.gate, w.server, func() time.Time { return now })
		w.must(err)
		found, err := filepath.Glob(filepath.Join(w.gate.Kept, usedPrefix+"*"))
		w.must(err)
		return len(found)
	}
	if n, later := count(time.Now()), count(time.Now().Add(keepUsed+2*time.Hour)); n != 1 || later != 0 {
		t.Errorf("%d approvals are kept, %d long after", n, later)
	}
}
