package evidence

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// releasing is a plan whose second task starts from the first one's patch. Both have the
// same subagent, which writes.
const releasing = `{"id":"r1","source":{"name":"app"},"tasks":[{"id":"a","subagent":"code","env":["plain"],"capabilities":["tools"]},` +
	`{"id":"b","subagent":"code","env":["plain"],"capabilities":["tools"],"needs":{"in":{"from":"a","patch":true}},"retry":{"attempts":2,"on":["agent"]}}]}`

// guarded publishes a catalog where people approve what tasks of local:ann write.
func (s *story) guarded(rule *api.WriteRule) {
	s.second = s.newKey()
	s.editCatalog = func(docs map[api.Ref]any) {
		code := docs["subagent/code"].(api.Subagent) //nolint:forcetypeassert // publish made it
		code.Effect = api.EffectWrite
		docs["subagent/code"] = code
		g := docs["grant/g0"].(api.Grant) //nolint:forcetypeassert // likewise
		g.Writes = rule
		docs["grant/g0"] = g
	}
	s.publish("local:ann")
	s.at = s.at.Add(time.Hour) // the revision before counts for record.RevisionGrace
}

func twoOfThree() *api.WriteRule {
	return &api.WriteRule{By: []api.Principal{"human:ann", "human:bob", "human:eve"}, Count: 2, Timeout: api.Duration(time.Hour)}
}

// writer is the dispatch of task b, which starts from the patch of task a.
func writer(attempt int, fence uint64, a *work) *work {
	w := of("b", fence)
	w.id = api.DispatchID("t-b" + string(rune('0'+attempt)))
	w.needs = []record.Need{{Name: "in", Task: "a", Dispatch: a.id, Kind: record.NeedPatch, Digest: api.DigestOf([]byte("patch of " + a.key())), Size: 3}}
	return w
}

// askToWrite makes the request about what an attempt is to write.
func (s *story) askToWrite(id api.ApprovalID, w *work, rule *api.WriteRule, shows ...*work) *api.TaskAction {
	input := w.input
	if input == "" {
		input = "{}"
	}
	a := &api.TaskAction{
		V: 1, ID: id, Run: "r1", Task: w.task, Principal: "local:ann", Plan: s.planOf("r1")[record.RefPlan], Shown: []api.ShownTask{},
		By: rule.By, Needs: rule.Needs(), Expires: s.at.Add(time.Hour).Truncate(time.Second),
		Write: &api.WriteAction{
			Dispatch: w.id, Subagent: "code", Tier: api.Reversible, Target: "local", Revision: s.revisionDigest, Envs: []api.Name{"plain"},
			Capabilities: []api.Name{"tools"}, Source: &api.PinnedSource{Name: "app", Commit: commitA1}, Input: []byte(input),
		},
	}
	for _, n := range w.needs {
		a.Write.Needs = append(a.Write.Needs, api.WriteNeed(n))
	}
	for _, x := range shows {
		shown, err := record.ShownTask(x.task, x.id, s.resultsAt[x.key()], &s.results[x.key()].Summary)
		s.must(err)
		a.Shown = append(a.Shown, shown)
	}
	return a
}

const commitA1 = "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1"

// waitsToWrite starts an attempt, which waits for people.
func (s *story) waitsToWrite(w *work, attempt int) {
	s.step(record.KindTaskStarted, w, attempt, record.TaskStart{Fence: int64(w.fence)}) //nolint:gosec // G115: small
	s.step(record.KindTaskWaiting, w, attempt, record.TaskStep{Approval: true, Message: "for approval"})
}

// asked writes the request.
func (s *story) asked(a *api.TaskAction) api.Digest {
	d := s.document(a)
	s.aboutPeople(record.KindApprovalRequest, a, d)
	return d
}

// twoApprove is the votes of two people with a key each.
func (s *story) twoApprove(id api.ApprovalID, d api.Digest) {
	s.vote(api.VerbApprove, "human:bob", id, d, s.operator)
	s.vote(api.VerbApprove, "human:eve", id, d, s.second)
}

// prepare writes task a, approved, and the wait of task b.
func (s *story) prepare() (a, b *work) {
	a = of("a", 1)
	s.waitsToWrite(a, 1)
	s.twoApprove("a-firstfirst22", s.asked(s.askToWrite("a-firstfirst22", a, twoOfThree())))
	a.fence = 2
	s.carry(a, "")
	b = writer(1, 3, a)
	s.waitsToWrite(b, 1)
	return a, b
}

// release carries task b out, and ends the run.
func (s *story) release(b *work) {
	b.fence++
	s.carry(b, "")
	s.settle("r1", record.RunEnd{State: "done", Done: 2})
}

// written is a run whose task b was approved: change has what people were asked
// otherwise, and votes what they decided.
func written(change func(s *story, a *api.TaskAction), votes func(s *story, d api.Digest)) writeTale {
	return writeTale{report.RowAuthorisation, func(s *story, lie bool) {
		a, b := s.prepare()
		asked := s.askToWrite(shipped, b, twoOfThree(), a)
		if lie && change != nil {
			change(s, asked)
		}
		d := s.asked(asked)
		if lie && votes != nil {
			votes(s, d)
		} else {
			s.twoApprove(shipped, d)
		}
		s.release(b)
	}}
}

// approvedWrites is a run whose tasks people approved before they wrote, and its first
// dispatch alone.
func approvedWrites(s *story) []bundle.Case {
	s.guarded(twoOfThree())
	s.submit(releasing, "", 0)
	a, b := s.prepare()
	s.twoApprove(shipped, s.asked(s.askToWrite(shipped, b, twoOfThree(), a)))
	s.release(b)
	return []bundle.Case{{Run: "r1"}, {Dispatch: a.id}}
}

// writeTale is a run of the plan releasing where a rule is in force.
type writeTale struct {
	row  report.RowName
	tell func(s *story, lie bool)
}

func verifyWrites(t *testing.T, x writeTale, lie bool) report.Report {
	t.Helper()
	s := newStory(t)
	s.guarded(twoOfThree())
	s.submit(releasing, "", 0)
	x.tell(s, lie)
	return Verify(reread(t, s.bundle(bundle.Case{Run: "r1"})), s.trust(), Options{})
}

func writeContentTales() map[string]writeTale {
	other := api.DigestOf([]byte("other"))
	out := map[string]writeTale{}
	for name, change := range map[string]func(a *api.TaskAction){
		"another input":    func(a *api.TaskAction) { a.Write.Input = []byte(`{"do":"other"}`) },
		"another subagent": func(a *api.TaskAction) { a.Write.Subagent = "other" },
		"a lower tier":     func(a *api.TaskAction) { a.Write.Tier = api.Observe },
		"another target":   func(a *api.TaskAction) { a.Write.Target = "far" },
		"another revision": func(a *api.TaskAction) { a.Write.Revision = other },
		"fewer envs":       func(a *api.TaskAction) { a.Write.Envs = nil },
		"fewer tools":      func(a *api.TaskAction) { a.Write.Capabilities = nil },
		"another commit":   func(a *api.TaskAction) { a.Write.Source.Commit = "b2" },
		"no source":        func(a *api.TaskAction) { a.Write.Source = nil },
		"another patch":    func(a *api.TaskAction) { a.Write.Needs[0].Digest = other },
		"no need":          func(a *api.TaskAction) { a.Write.Needs, a.Shown = nil, []api.ShownTask{} },
		"a taint": func(a *api.TaskAction) {
			a.Write.Taint = &api.Taint{Dispatch: "t-a1", Attempt: 1, Call: 1, Tool: "web"}
		},
		"another dispatch":  func(a *api.TaskAction) { a.Write.Dispatch = "t-b2" },
		"nothing written":   func(a *api.TaskAction) { a.Write = nil },
		"another product":   func(a *api.TaskAction) { a.Shown[0].Result = other },
		"no product":        func(a *api.TaskAction) { a.Shown = []api.ShownTask{} },
		"another plan":      func(a *api.TaskAction) { a.Plan = other },
		"another submitter": func(a *api.TaskAction) { a.Principal = "local:zoe" },
		"fewer people":      func(a *api.TaskAction) { a.Needs = 1 },
		"other people":      func(a *api.TaskAction) { a.By = append(slices.Clone(a.By), "human:mallory") },
		"a later expiry":    func(a *api.TaskAction) { a.Expires = a.Expires.Add(time.Hour) },
	} {
		out["people are asked about "+name] = written(func(_ *story, a *api.TaskAction) { change(a) }, nil)
		out["people signed "+name] = written(nil, func(s *story, _ api.Digest) {
			first := of("a", 2)
			first.attempt = 1
			a := s.askToWrite(shipped, writer(1, 3, first), twoOfThree(), first)
			change(a)
			s.twoApprove(shipped, s.document(a))
		})
	}
	return out
}

func writeVoterTales() map[string]writeTale {
	type ballot struct {
		who api.Principal
		key func(s *story) seal.Signer
	}
	bobs := func(s *story) seal.Signer { return s.operator }
	key := func(p api.Principal) func(s *story) seal.Signer {
		return func(s *story) seal.Signer { return s.keyOf(p) }
	}
	by := func(list ...ballot) writeTale {
		return written(nil, func(s *story, d api.Digest) {
			for _, b := range list {
				s.vote(api.VerbApprove, b.who, shipped, d, b.key(s))
			}
		})
	}
	return map[string]writeTale{
		"nobody approves":                                 by(),
		"one person approves":                             by(ballot{"human:bob", bobs}),
		"who submitted the run approves":                  by(ballot{"human:bob", bobs}, ballot{"human:ann", key("human:ann")}),
		"an AI approves":                                  by(ballot{"human:bob", bobs}, ballot{"agent:claude", key("ci:claude")}),
		"a stranger approves":                             by(ballot{"human:bob", bobs}, ballot{"human:mallory", key("human:mallory")}),
		"a person approves twice, with two keys":          by(ballot{"human:bob", bobs}, ballot{"human:bob", key("human:bob")}),
		"two people approve with one key":                 by(ballot{"human:bob", bobs}, ballot{"human:eve", bobs}),
		"a person approves with the key of who submitted": by(ballot{"human:bob", bobs}, ballot{"human:eve", key("local:ann")}),
		"a person denies, and two approve": written(nil, func(s *story, d api.Digest) {
			s.vote(api.VerbDeny, "human:eve", shipped, d, s.operator)
			s.twoApprove(shipped, d)
		}),
	}
}

func writeFlowTales() map[string]writeTale {
	end := func(s *story, kind record.Kind, b *work, reason api.Reason) {
		s.step(kind, b, 1, record.TaskStep{Reason: string(reason)})
		out := record.RunEnd{State: "failed", Done: 1, Denied: 1}
		if kind == record.KindTaskFailed {
			out = record.RunEnd{State: "failed", Done: 1, Failed: 1}
		}
		s.settle("r1", out)
	}
	// ended is a task that people did not let write: lied is what they decided.
	ended := func(row report.RowName, kind record.Kind, reason api.Reason, honest, lied func(s *story, a *api.TaskAction, d api.Digest)) writeTale {
		return writeTale{row, func(s *story, lie bool) {
			a, b := s.prepare()
			asked := s.askToWrite(shipped, b, twoOfThree(), a)
			d := s.asked(asked)
			if lie {
				lied(s, asked, d)
			} else {
				honest(s, asked, d)
			}
			end(s, kind, b, reason)
		}}
	}
	expire := func(s *story, a *api.TaskAction, d api.Digest) {
		s.at = a.Expires.Add(time.Second)
		s.aboutPeople(record.KindApprovalExpired, a, d)
	}
	deny := func(s *story, _ *api.TaskAction, d api.Digest) {
		s.vote(api.VerbDeny, "human:bob", shipped, d, s.operator)
	}
	nothing := func(*story, *api.TaskAction, api.Digest) {}
	approve := func(s *story, _ *api.TaskAction, d api.Digest) { s.twoApprove(shipped, d) }
	return map[string]writeTale{
		"a task starts at once": {report.RowAuthorisation, func(s *story, lie bool) {
			a := of("a", 1)
			if !lie {
				s.waitsToWrite(a, 1)
				s.twoApprove("a-firstfirst22", s.asked(s.askToWrite("a-firstfirst22", a, twoOfThree())))
				a.fence = 2
			}
			s.carry(a, "")
			b := writer(1, 3, a)
			s.waitsToWrite(b, 1)
			s.twoApprove(shipped, s.asked(s.askToWrite(shipped, b, twoOfThree(), a)))
			s.release(b)
		}},
		"a task waits, and nobody is asked": {report.RowAuthorisation, func(s *story, lie bool) {
			a, b := s.prepare()
			if !lie {
				s.twoApprove(shipped, s.asked(s.askToWrite(shipped, b, twoOfThree(), a)))
			}
			s.release(b)
		}},
		"people approve after the dispatch was admitted": {report.RowAuthorisation, func(s *story, lie bool) {
			a, b := s.prepare()
			d := s.asked(s.askToWrite(shipped, b, twoOfThree(), a))
			if !lie {
				s.twoApprove(shipped, d)
			}
			b.fence++
			s.fire(b, 1)
			if lie {
				s.twoApprove(shipped, d)
			}
			s.done(b, 1)
			s.settle("r1", record.RunEnd{State: "done", Done: 2})
		}},
		"a retry is not approved again": {report.RowAuthorisation, func(s *story, lie bool) {
			a, b := s.prepare()
			s.twoApprove(shipped, s.asked(s.askToWrite(shipped, b, twoOfThree(), a)))
			b.fence++
			s.fire(b, 1)
			s.lose(b, record.KindDispatchFailed, record.DispatchEnd{Reason: string(api.ReasonAgent)})
			s.step(record.KindTaskWaiting, b, 1, record.TaskStep{Reason: string(api.ReasonAgent), Until: s.at.Format(time.RFC3339Nano)})
			again := writer(2, 5, a)
			if !lie {
				s.waitsToWrite(again, 2)
				s.twoApprove("a-again2again2", s.asked(s.askToWrite("a-again2again2", again, twoOfThree(), a)))
				again.fence++
			}
			s.fire(again, 2)
			s.done(again, 2)
			s.settle("r1", record.RunEnd{State: "done", Done: 2})
		}},
		"a retry has the approval of the attempt before": {report.RowCompleteness, func(s *story, lie bool) {
			a, b := s.prepare()
			d := s.asked(s.askToWrite(shipped, b, twoOfThree(), a))
			s.twoApprove(shipped, d)
			if lie {
				b = writer(2, 3, a) // which people did not see
			}
			s.release(b)
		}},
		"an expired one is used": {report.RowAuthorisation, func(s *story, lie bool) {
			a, b := s.prepare()
			asked := s.askToWrite(shipped, b, twoOfThree(), a)
			d := s.asked(asked)
			if lie {
				expire(s, asked, d)
				s.at = asked.Expires.Add(-time.Minute) // a clock that is set back
			}
			s.twoApprove(shipped, d)
			s.release(b)
		}},
		"people approve after it expired": written(nil, func(s *story, d api.Digest) {
			s.at = s.at.Add(2 * time.Hour)
			s.twoApprove(shipped, d)
		}),
		"it fails for time before it expires":  ended(report.RowCompleteness, record.KindTaskFailed, api.ReasonTimeout, expire, nothing),
		"it expires before its time":           ended(report.RowAuthorisation, record.KindTaskFailed, api.ReasonTimeout, expire, func(s *story, a *api.TaskAction, d api.Digest) { s.aboutPeople(record.KindApprovalExpired, a, d) }),
		"it is denied, but nobody denied it":   ended(report.RowAuthorisation, record.KindTaskDenied, api.ReasonDenied, deny, nothing),
		"it is denied, but people approved it": ended(report.RowAuthorisation, record.KindTaskDenied, api.ReasonDenied, deny, approve),
		"it is denied by who submitted it": ended(report.RowAuthorisation, record.KindTaskDenied, api.ReasonDenied, deny, func(s *story, _ *api.TaskAction, d api.Digest) {
			s.vote(api.VerbDeny, "human:ann", shipped, d, s.operator)
		}),
		"a denied one is used":                     written(nil, func(s *story, d api.Digest) { s.vote(api.VerbDeny, "human:bob", shipped, d, s.operator) }),
		"people are shown a dispatch out of order": written(func(_ *story, a *api.TaskAction) { a.Shown[0].Task = "b" }, nil),
	}
}

// Each run whose tasks write is told with one lie, which needs the service key, and
// without: the first fails, and in the row for it, the second in none.
//
// proves R-A7, R-O12
func TestEachLieAboutAWriteIsFound(t *testing.T) {
	all := map[string]writeTale{}
	for _, some := range []map[string]writeTale{writeContentTales(), writeVoterTales(), writeFlowTales()} {
		maps.Copy(all, some)
	}
	for name, x := range all {
		t.Run(name, func(t *testing.T) {
			if r := verifyWrites(t, x, false); r.Failed() || r.Row(x.row).Status != report.Pass {
				t.Errorf("without the lie:\n%s", r.Text())
			}
			if r := verifyWrites(t, x, true); r.Row(x.row).Status != report.Fail {
				t.Errorf("with the lie:\n%s", r.Text())
			}
		})
	}
}

// A dispatch of no run that writes where people have to approve is refused. Control: one
// before the rule.
//
// proves R-A7, R-O12
func TestADispatchOfNoRunMayNotWriteUnapproved(t *testing.T) {
	for _, lie := range []bool{false, true} {
		s := newStory(t)
		s.guarded(twoOfThree())
		if !lie {
			s = newStory(t)
			s.guarded(nil)
		}
		w := s.whole("d-01")
		r := Verify(reread(t, s.bundle(bundle.Case{Dispatch: w.id})), s.trust(), Options{})
		if r.Failed() != lie || lie && r.Row(report.RowAuthorisation).Status != report.Fail {
			t.Errorf("lie %v:\n%s", lie, r.Text())
		}
	}
}
