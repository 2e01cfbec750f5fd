package evidence

import (
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
)

// seededKey is a key that is the same in every run of the tests.
type seededKey struct{ key ed25519.PrivateKey }

func seededSigner(n uint64) seededKey {
	seed := make([]byte, ed25519.SeedSize)
	binary.BigEndian.PutUint64(seed, n)
	return seededKey{ed25519.NewKeyFromSeed(seed)}
}

func (k seededKey) Public() []byte    { return k.key[ed25519.SeedSize:] }
func (k seededKey) KeyID() seal.KeyID { return seal.IDOf(k.Public()) }
func (k seededKey) Sign(_ context.Context, message []byte) ([]byte, error) {
	return ed25519.Sign(k.key, message), nil
}

// seeded is a story that is the same in every run of the tests.
func seeded(t testing.TB) *story {
	n := uint64(0)
	return storyWith(t, func() seal.Signer { n++; return seededSigner(n) })
}

// mutantSubjects are bundles of every kind of story.
func mutantSubjects(t testing.TB) (list []*subject) {
	t.Helper()
	add := func(name string, s *story, cases ...bundle.Case) {
		for _, c := range cases {
			list = append(list, newSubject(t, name, s, c))
		}
	}
	s := seeded(t)
	add("several ends", s, endings(s)...)
	for name, build := range map[string]func(s *story) []bundle.Case{
		"rules between": rulesBetween, "operator keys": keyChanges, "questions": questions, "cancels": everyCancel, "no result": noResult, "steering": steering, "models": models, "tool calls": toolCalls, "tainted run": taintedRun, "reuse": reuse, "scheduled run": honestSlot, "budgets": budgets, "uncounted": uncounted, "writes": approvedWrites, "four eyes": fourEyes,
	} {
		s := seeded(t)
		add(name, s, build(s)...)
	}
	all := tales()
	maps.Copy(all, growTales())
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s := seeded(t)
		s.submit(all[name].plan, "", 0)
		all[name].tell(s, false)
		add(name, s, bundle.Case{Run: api.RunID(s.entries[len(s.entries)-1].Run)})
	}
	slices.SortStableFunc(list, func(a, b *subject) int { return strings.Compare(a.name, b.name) })
	return list
}

// rulesBetween is work between catalog revisions, records of operators, stops and
// rotations of the service's key.
func rulesBetween(s *story) []bundle.Case {
	s.whole("d-00")
	s.publish("local:ann", "local:bob")
	s.consent("local:bob", api.Irreversible)
	s.decide(api.OperatorRecord{Verb: api.VerbPrincipalAdd, Principal: "agent:one", Reason: "a new agent"})
	token := api.TokenRecord{ID: "t-aaaaaaaaaaaa", Hash: api.DigestOf([]byte("secret")), ExpiresAt: s.at.Add(1000)}
	s.decide(api.OperatorRecord{Verb: api.VerbTokenCreate, Principal: "agent:one", Token: &token})
	s.write(record.Entry{Kind: record.KindStopEngaged, Principal: "local:op", Detail: record.StopEngaged{Stop: "s-1", Scope: "principal", Name: "local:eve", Reason: "strange"}})
	s.decide(api.OperatorRecord{Verb: api.VerbStopLift, Stop: "s-1"})
	s.rotate()
	d := s.whole("d-02")
	s.write(s.beside(record.KindDispatchPinned, d, record.Access{Operation: "dispatch.pin"}))
	s.publish("local:ann")
	w := &work{id: "d-03"}
	s.admit(w)
	s.start(w)
	s.write(record.Entry{Kind: record.KindStopEngaged, Principal: "local:op", Detail: record.StopEngaged{Stop: "s-2", Scope: "all"}})
	s.finish(w, api.EventCancelled, "")
	return []bundle.Case{{Dispatch: "d-00"}, {Dispatch: "d-02"}, {Dispatch: "d-03"}}
}

// questions are answers by option, in words and by the operator, and questions
// that are not answered.
func questions(s *story) []bundle.Case {
	ask := func(id api.DispatchID) *work {
		w := &work{id: id}
		s.admit(w)
		s.start(w)
		s.finish(w, api.EventNeedsInput, "")
		return w
	}
	w := ask("d-01")
	s.editEntry = func(_ uint64, e *record.Entry) {
		if e.Kind == record.KindDispatchAnswered {
			e.Principal, e.Policies = "local:op", []string{"operator"}
		}
	}
	next := &work{id: w.id, attempt: 2, answer: "the second", option: 2}
	s.admit(next)
	s.editEntry = nil
	s.start(next)
	s.finish(next, api.EventFinished, "")
	w = ask("d-02")
	e := s.about(record.KindDispatchFailed, w, record.DispatchEnd{Reason: "timeout", Files: 1, Message: "no answer"})
	s.closing(w, e, api.EventFailed, api.ReasonTimeout, "")
	w = ask("d-03")
	s.request(w, "local:ann", "owner")
	e = s.about(record.KindDispatchCancelled, w, record.DispatchEnd{By: "local:ann", Files: 1})
	s.closing(w, e, api.EventCancelled, "", "local:ann")
	s.submit(plannedAs("", "a"), "", 0)
	a := of("a", 1)
	s.fire(a, 1)
	s.asks(a)
	s.act(record.KindTaskAnswered, "local:ann", "a", record.RunAction{Option: 1})
	a = s.resumes(a, 2)
	a.option = 1
	s.admit(a)
	s.start(a)
	s.done(a, 1)
	s.settle("r1", record.RunEnd{State: "done", Done: 1})
	return []bundle.Case{{Dispatch: "d-01"}, {Dispatch: "d-02"}, {Dispatch: "d-03"}, {Run: "r1"}}
}

// closing ends a question without an answer.
func (s *story) closing(w *work, e record.Entry, outcome api.Event, reason api.Reason, by string) {
	maps.Copy(e.Refs, s.after(record.KindDispatchNeedsInput)[0].Refs)
	s.write(e)
	s.attest(w, outcome, reason, by)
}

// everyCancel has cancels while queued, running and waiting, of runs, tasks and
// dispatches, by owner, operator and service.
func everyCancel(s *story) []bundle.Case {
	w := &work{id: "d-01"}
	s.admit(w)
	s.request(w, "local:op", "operator")
	s.lose(w, record.KindDispatchCancelled, record.DispatchEnd{By: "local:op", Partial: false})
	w = &work{id: "d-02"}
	s.admit(w)
	s.start(w)
	s.recovered(w, "running")
	s.request(w, "local:ann", "owner")
	s.request(w, "local:op", "operator")
	s.finish(w, api.EventFinished, "") // too late
	s.submit(plannedAs(`,"limits":{"wall":"10m"}`, "a", "b", "c", `d ,"depends_on":["a"]`), "", 0)
	a, b := of("a", 1), of("b", 2)
	s.fire(a, 1)
	s.fire(b, 1)
	s.asks(b)
	s.act(record.KindRunCancelled, "local:op", "", record.RunAction{Why: whyCancelled})
	for _, id := range []api.TaskID{"d", "c"} {
		s.step(record.KindTaskCancelled, &work{run: "r1", task: id}, 0, record.TaskStep{By: "local:op", Message: whyCancelled})
	}
	s.request(a, "local:op", "operator")
	s.request(b, "local:op", "operator")
	e := s.about(record.KindDispatchCancelled, b, record.DispatchEnd{By: "local:op", Files: 1})
	s.closing(b, e, api.EventCancelled, "", "local:op")
	s.step(record.KindTaskCancelled, b, 1, record.TaskStep{By: "local:op", Message: whyCancelled})
	s.finish(a, api.EventCancelled, "")
	s.step(record.KindTaskCancelled, a, 1, record.TaskStep{By: "local:op", Message: whyCancelled})
	s.settle("r1", record.RunEnd{State: "cancelled", Cancelled: 4})
	return []bundle.Case{{Dispatch: "d-01"}, {Dispatch: "d-02"}, {Run: "r1"}, {Dispatch: "t-b1"}}
}

// noResult are dispatches and tasks without a worker's result.
func noResult(s *story) []bundle.Case {
	w := &work{id: "d-01"}
	s.admit(w)
	s.start(w)
	s.recovered(w, "dead")
	s.refuse(w, 1)
	s.lose(w, record.KindDispatchFailed, record.DispatchEnd{Reason: "lost", Message: "the worker died"})
	s.write(s.beside(record.KindAccessDenied, w, record.Access{Operation: "dispatch.read", Reasons: []string{"no"}}))
	s.submit(plannedAs("", "a", `b ,"depends_on":["a"]`, "c"), "", 0)
	a := of("a", 1)
	s.step(record.KindTaskStarted, a, 1, record.TaskStart{Fence: 1})
	s.step(record.KindTaskFailed, a, 1, record.TaskStep{Reason: "context", Message: "the product of a need is missing"})
	s.step(record.KindTaskSkipped, &work{run: "r1", task: "b"}, 0, record.TaskStep{Cause: "a"})
	c := of("c", 2)
	s.step(record.KindTaskStarted, c, 1, record.TaskStart{Fence: 2})
	tier := api.Reversible
	s.write(record.Entry{
		Kind: record.KindDispatchDenied, Principal: "local:ann", Action: "dispatch", Resource: "code", Run: "r1", Task: "c", Dispatch: c.id, Tier: &tier, Role: "transform",
		Policies: []string{"consent"}, Detail: record.DispatchRequest{Subagent: "code", Target: "local", Reasons: []string{"no consent"}},
	})
	s.step(record.KindTaskDenied, c, 1, record.TaskStep{Reason: "denied", Message: "no consent"})
	s.settle("r1", record.RunEnd{State: "failed", Failed: 1, Denied: 1, Skipped: 1})
	return []bundle.Case{{Dispatch: "d-01"}, {Run: "r1"}}
}

// steering is a run with parameters, a denial before it, pauses and unpins.
func steering(s *story) []bundle.Case {
	s.write(record.Entry{Kind: record.KindRunDenied, Principal: "local:eve", Action: "run.submit", Resource: "local:eve", Run: "r1", Detail: record.RunRequest{Queue: "default", Tasks: 1, Reasons: []string{"no"}}})
	s.editEntry = func(_ uint64, e *record.Entry) {
		if d, ok := e.Detail.(record.RunRequest); ok {
			d.Parameters, d.Template = []string{"n=1"}, string(api.DigestOf([]byte("template")))
			e.Detail, e.Token = d, "t-aaaaaaaaaaaa"
		}
	}
	s.submit(plannedAs(`,"queue":"slow"`, `a ,"locks":["db",{"shared":"k"}]`), "", 0)
	s.editEntry = nil
	s.act(record.KindRunPaused, "local:op", "", record.RunAction{})
	s.act(record.KindRunResumed, "local:ann", "", record.RunAction{})
	a := of("a", 1)
	s.step(record.KindTaskStarted, a, 1, record.TaskStart{Fence: 1, Locks: []string{"db"}, Shared: []string{"k"}})
	s.admit(a)
	s.start(a)
	s.write(s.beside(record.KindDispatchUnpinned, a, record.Access{Operation: "dispatch.pin"}))
	s.done(a, 1)
	s.settle("r1", record.RunEnd{State: "done", Done: 1})
	return []bundle.Case{{Run: "r1"}, {Dispatch: "t-a1"}}
}
