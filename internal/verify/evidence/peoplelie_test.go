package evidence

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

const (
	shipping = `{"id":"r1","source":{"name":"app"},"tasks":[{"id":"a","subagent":"code","env":["plain"],"capabilities":["tools"]},` +
		`{"id":"ship","approval":{"by":["human:bob","human:eve","human:ann"],"count":2,"show":["a"],"timeout":"1h"}}]}`
	shipped api.ApprovalID = "a-aaaaaaaaaaaa"
)

var end2 = record.RunEnd{State: "done", Done: 2}

// askOf makes the request about a task, with what it shows of dispatches.
func (s *story) askOf(task api.TaskID, shows ...*work) *api.TaskAction {
	a := &api.TaskAction{
		V: 1, ID: shipped, Run: "r1", Task: task, Principal: "local:ann", Plan: s.planOf("r1")[record.RefPlan], Shown: []api.ShownTask{},
		By: []api.Principal{"human:bob", "human:eve", "human:ann"}, Needs: 2, Expires: s.at.Add(time.Hour).Truncate(time.Second),
	}
	for _, w := range shows {
		shown, err := record.ShownTask(w.task, w.id, s.resultsAt[w.key()], &s.results[w.key()].Summary)
		s.must(err)
		a.Shown = append(a.Shown, shown)
	}
	return a
}

// document keeps an action, and returns the digest that people sign.
func (s *story) document(a *api.TaskAction) api.Digest {
	doc, err := canon.Marshal(a)
	s.must(err)
	return s.put(doc)
}

// askFor writes that a task waits, and the request.
func (s *story) askFor(a *api.TaskAction) api.Digest {
	d := s.document(a)
	s.step0(record.KindTaskWaiting, control(a.Task), record.TaskStep{Message: "for approval"})
	s.aboutPeople(record.KindApprovalRequest, a, d)
	return d
}

func (s *story) aboutPeople(kind record.Kind, a *api.TaskAction, d api.Digest) {
	s.write(record.Entry{
		Kind: kind, Run: "r1", Task: string(a.Task), Refs: map[string]api.Digest{record.RefAction: d},
		Detail: record.ApprovalRequest{Approval: string(a.ID), Needs: int64(a.Needs), Policies: []string{}},
	})
}

// approves is the votes of two people with a key each.
func (s *story) approves(d api.Digest) {
	s.vote(api.VerbApprove, "human:bob", shipped, d, s.operator)
	s.vote(api.VerbApprove, "human:eve", shipped, d, s.second)
}

// shipEnd ends task ship, and its run.
func (s *story) shipEnd(kind record.Kind, reason api.Reason) {
	s.step0(kind, control("ship"), record.TaskStep{Reason: string(reason)})
	out := end2
	if kind != record.KindTaskDone {
		out = record.RunEnd{State: "failed", Done: 1}
		if kind == record.KindTaskDenied {
			out.Denied = 1
		} else {
			out.Failed = 1
		}
	}
	s.settle("r1", out)
}

// ship is a run whose task ship is done: change has what people were asked otherwise, and
// votes what they decided.
func ship(row report.RowName, change func(s *story, a *api.TaskAction), votes func(s *story, d api.Digest)) tale {
	return tale{row, shipping, func(s *story, lie bool) {
		s.second = s.newKey()
		a := of("a", 1)
		s.carry(a, `{"risk":"low"}`)
		asked := s.askOf("ship", a)
		if lie && change != nil {
			change(s, asked)
		}
		d := s.askFor(asked)
		if lie && votes != nil {
			votes(s, d)
		} else {
			s.approves(d)
		}
		s.shipEnd(record.KindTaskDone, "")
	}}
}

// contentTales are approvals over other content than the plan and its products give.
func contentTales() map[string]tale {
	other := api.DigestOf([]byte("other"))
	asked := func(change func(a *api.TaskAction)) tale {
		return ship(report.RowAuthorisation, func(_ *story, a *api.TaskAction) { change(a) }, nil)
	}
	// signed is votes over an action that the request does not name.
	signed := func(change func(a *api.TaskAction)) tale {
		return ship(report.RowAuthorisation, nil, func(s *story, _ api.Digest) {
			w := of("a", 1)
			w.attempt = 1
			a := s.askOf("ship", w)
			change(a)
			s.approves(s.document(a))
		})
	}
	out := map[string]tale{}
	for name, change := range map[string]func(a *api.TaskAction){
		"another patch":       func(a *api.TaskAction) { a.Shown[0].Patch = &api.Artifact{Digest: other, Size: 3} },
		"another output":      func(a *api.TaskAction) { a.Shown[0].Outputs = []api.Artifact{{Path: "out", Size: 1, Digest: other}} },
		"no output":           func(a *api.TaskAction) { a.Shown[0].Outputs = nil },
		"another result":      func(a *api.TaskAction) { a.Shown[0].Result = other },
		"another value":       func(a *api.TaskAction) { a.Shown[0].Value = other },
		"another text":        func(a *api.TaskAction) { a.Shown[0].Text = other },
		"another dispatch":    func(a *api.TaskAction) { a.Shown[0].Dispatch = "t-b1" },
		"nothing":             func(a *api.TaskAction) { a.Shown = []api.ShownTask{} },
		"another plan":        func(a *api.TaskAction) { a.Plan = other },
		"another run":         func(a *api.TaskAction) { a.Run = "r2" },
		"another task":        func(a *api.TaskAction) { a.Task = "a" },
		"another submitter":   func(a *api.TaskAction) { a.Principal = "local:zoe" },
		"fewer people":        func(a *api.TaskAction) { a.Needs = 1 },
		"other people":        func(a *api.TaskAction) { a.By = append(a.By, "human:mallory") },
		"a later expiry":      func(a *api.TaskAction) { a.Expires = a.Expires.Add(time.Hour) },
		"another approval id": func(a *api.TaskAction) { a.ID = "a-bbbbbbbbbbbb" },
	} {
		if name != "another task" && name != "another approval id" { // the entry names them too
			out["people are asked about "+name] = asked(change)
		}
		out["people signed "+name] = signed(change)
	}
	return out
}

// voterTales are approvals by the wrong people, or too few of them.
func voterTales() map[string]tale {
	type ballot struct {
		who api.Principal
		key func(s *story) seal.Signer
	}
	bobs, eves := func(s *story) seal.Signer { return s.operator }, func(s *story) seal.Signer { return s.second }
	key := func(p api.Principal) func(s *story) seal.Signer {
		return func(s *story) seal.Signer { return s.keyOf(p) }
	}
	by := func(list ...ballot) tale {
		return ship(report.RowAuthorisation, nil, func(s *story, d api.Digest) {
			for _, b := range list {
				s.vote(api.VerbApprove, b.who, shipped, d, b.key(s))
			}
		})
	}
	return map[string]tale{
		"nobody approves":                                                by(),
		"one person approves":                                            by(ballot{"human:bob", bobs}),
		"who submitted the run approves":                                 by(ballot{"human:bob", bobs}, ballot{"human:ann", key("human:ann")}),
		"an AI approves":                                                 by(ballot{"human:bob", bobs}, ballot{"agent:claude", key("ci:claude")}),
		"a program approves":                                             by(ballot{"human:bob", bobs}, ballot{"ci:nightly", key("ci:nightly")}),
		"a stranger approves":                                            by(ballot{"human:bob", bobs}, ballot{"human:mallory", key("human:mallory")}),
		"a person approves twice, with two keys":                         by(ballot{"human:bob", bobs}, ballot{"human:bob", key("human:bob")}),
		"a person approves as two, with two keys":                        by(ballot{"human:bob", bobs}, ballot{"local:bob", key("human:bob")}),
		"two people approve with one key":                                by(ballot{"human:bob", bobs}, ballot{"human:eve", bobs}),
		"a person approves with the key of who submitted":                by(ballot{"human:bob", bobs}, ballot{"human:eve", key("human:ann")}),
		"a person approves with the key of who submitted, as an account": by(ballot{"human:bob", bobs}, ballot{"human:eve", key("local:ann")}),
		"two people exchange their keys":                                 by(ballot{"human:bob", eves}, ballot{"human:eve", bobs}),
		"a person approves with the key of a program":                    by(ballot{"human:bob", bobs}, ballot{"human:eve", key("ci:nightly")}),
		"a person who was removed after the vote": ship(report.RowAuthorisation, nil, func(s *story, d api.Digest) {
			s.vote(api.VerbApprove, "human:bob", shipped, d, s.operator)
			s.decide(api.OperatorRecord{Verb: api.VerbPrincipalRemove, Principal: "human:bob"})
			s.vote(api.VerbApprove, "human:eve", shipped, d, s.second)
		}),
		"a person denies, and two approve": ship(report.RowAuthorisation, nil, func(s *story, d api.Digest) {
			s.vote(api.VerbDeny, "human:eve", shipped, d, s.operator)
			s.approves(d)
		}),
		"people approve before they are asked": {report.RowAuthorisation, shipping, func(s *story, lie bool) {
			s.second = s.newKey()
			a := of("a", 1)
			s.carry(a, "")
			asked := s.askOf("ship", a)
			asked.Expires = asked.Expires.Add(10 * time.Second)
			if lie {
				s.approves(s.document(asked))
			}
			if d := s.askFor(asked); !lie {
				s.approves(d)
			}
			s.shipEnd(record.KindTaskDone, "")
		}},
		"people approve after the task is done": {report.RowAuthorisation, shipping, func(s *story, lie bool) {
			s.second = s.newKey()
			a := of("a", 1)
			s.carry(a, "")
			d := s.askFor(s.askOf("ship", a))
			if !lie {
				s.approves(d)
			}
			s.step0(record.KindTaskDone, control("ship"), record.TaskStep{})
			if lie {
				s.approves(d)
			}
			s.settle("r1", end2)
		}},
	}
}

// timeTales are approvals that expired, and decisions that were not theirs.
func timeTales() map[string]tale {
	late := func(votes func(s *story, d api.Digest)) tale { return ship(report.RowAuthorisation, nil, votes) }
	ended := func(row report.RowName, kind record.Kind, reason api.Reason, honest, lied func(s *story, a *api.TaskAction, d api.Digest)) tale {
		return tale{row, shipping, func(s *story, lie bool) {
			s.second = s.newKey()
			a := of("a", 1)
			s.carry(a, "")
			asked := s.askOf("ship", a)
			d := s.askFor(asked)
			if lie {
				lied(s, asked, d)
			} else {
				honest(s, asked, d)
			}
			s.shipEnd(kind, reason)
		}}
	}
	expire := func(s *story, a *api.TaskAction, d api.Digest) {
		s.at = a.Expires.Add(time.Second)
		s.aboutPeople(record.KindApprovalExpired, a, d)
	}
	nothing := func(*story, *api.TaskAction, api.Digest) {}
	deny := func(s *story, _ *api.TaskAction, d api.Digest) {
		s.vote(api.VerbDeny, "human:bob", shipped, d, s.operator)
	}
	approve := func(s *story, _ *api.TaskAction, d api.Digest) { s.approves(d) }
	return map[string]tale{
		"people approve after it expired": late(func(s *story, d api.Digest) {
			s.at = s.at.Add(2 * time.Hour)
			s.approves(d)
		}),
		"votes that are recorded after it expired": late(func(s *story, d api.Digest) {
			signed := s.at
			s.editEntry = func(_ uint64, e *record.Entry) {
				if e.Kind == record.KindOperatorRecorded {
					e.At = e.At.Add(2 * time.Hour)
				}
			}
			s.approves(d)
			s.editEntry, s.at = nil, signed.Add(3*time.Hour)
		}),
		"an expired one is used": ended(report.RowCompleteness, record.KindTaskDone, "", approve, func(s *story, a *api.TaskAction, d api.Digest) {
			expire(s, a, d)
			s.at = a.Expires.Add(-time.Minute) // a clock that is set back
			s.approves(d)
		}),
		"one that has votes enough, and expired before": ended(report.RowAuthorisation, record.KindTaskFailed, api.ReasonTimeout, expire, func(s *story, a *api.TaskAction, d api.Digest) {
			s.approves(d)
			expire(s, a, d)
		}),
		"a task fails for time before it expires": ended(report.RowCompleteness, record.KindTaskFailed, api.ReasonTimeout, expire, nothing),
		"one expires before its time": ended(report.RowAuthorisation, record.KindTaskFailed, api.ReasonTimeout, expire, func(s *story, a *api.TaskAction, d api.Digest) {
			s.aboutPeople(record.KindApprovalExpired, a, d)
		}),
		"a denied one is used":                     ended(report.RowAuthorisation, record.KindTaskDone, "", approve, deny),
		"a task is denied, but nobody denied it":   ended(report.RowAuthorisation, record.KindTaskDenied, api.ReasonDenied, deny, nothing),
		"a task is denied, but people approved it": ended(report.RowAuthorisation, record.KindTaskDenied, api.ReasonDenied, deny, approve),
		"a task is denied by who submitted the run": ended(report.RowAuthorisation, record.KindTaskDenied, api.ReasonDenied, deny, func(s *story, _ *api.TaskAction, d api.Digest) {
			s.vote(api.VerbDeny, "human:ann", shipped, d, s.operator)
		}),
		"a task is done, but no approval was requested": {report.RowCompleteness, shipping, func(s *story, lie bool) {
			s.second = s.newKey()
			a := of("a", 1)
			s.carry(a, "")
			if lie {
				s.step0(record.KindTaskWaiting, control("ship"), record.TaskStep{})
			} else {
				s.approves(s.askFor(s.askOf("ship", a)))
			}
			s.shipEnd(record.KindTaskDone, "")
		}},
		"people are asked twice": ended(report.RowCompleteness, record.KindTaskDone, "", approve, func(s *story, a *api.TaskAction, d api.Digest) {
			s.aboutPeople(record.KindApprovalRequest, a, d)
			s.approves(d)
		}),
	}
}

// humanTales are people who vote in a quorum, and those who see a patch before its fix.
func humanTales() map[string]tale {
	const mixed = `{"id":"r1","source":{"name":"app"},"tasks":[{"id":"a","subagent":"code","env":["plain"],"capabilities":["tools"]},` +
		`{"id":"q","env":["plain"],"capabilities":["tools"],"quorum":{"of":["code","human:bob"],"approve":2},"depends_on":["a"]}]}`
	poll := func(row report.RowName, lied func(s *story, d api.Digest)) tale {
		return tale{row, mixed, func(s *story, lie bool) {
			a := of("a", 1)
			s.carry(a, "")
			s.sprout(control("q"), 0, plan.Growth{Cause: plan.CauseQuorum, Task: "q"}, 2, 4)
			asked := s.askOf("q.vote2", a)
			asked.By, asked.Needs, asked.Expires = []api.Principal{"human:bob"}, 1, s.at.Add(23*time.Hour)
			d := s.askFor(asked)
			s.carry(child("q.vote1", 2, ""), `{"verdict":"approve"}`)
			if lie {
				lied(s, d)
			} else {
				s.vote(api.VerbApprove, "human:bob", shipped, d, s.operator)
			}
			s.step0(record.KindTaskDone, control("q.vote2"), record.TaskStep{})
			s.step0(record.KindTaskDone, control("q"), record.TaskStep{})
			s.settle("r1", record.RunEnd{State: "done", Done: 4})
		}}
	}
	return map[string]tale{
		"a voter approves without a vote": poll(report.RowAuthorisation, func(*story, api.Digest) {}),
		"a voter denies, and it counts":   poll(report.RowAuthorisation, func(s *story, d api.Digest) { s.vote(api.VerbDeny, "human:bob", shipped, d, s.operator) }),
		"who submitted the run votes":     poll(report.RowAuthorisation, func(s *story, d api.Digest) { s.vote(api.VerbApprove, "human:ann", shipped, d, s.operator) }),
		"people are shown a patch without its fix": {
			report.RowAuthorisation, strings.Replace(shipping, `"capabilities":["tools"]}`, `"capabilities":["tools"],"gate":{"verify":"code","fix":"code"}}`, 1), func(s *story, lie bool) {
				s.second = s.newKey()
				a := of("a", 1)
				s.until(a, "")
				s.sprout(a, 1, plan.Growth{Cause: plan.CauseGate, Task: "a", Round: 1}, 1, 3)
				g := s.check(1, 2, a, red)
				s.sprout(a, 1, plan.Growth{Cause: plan.CauseGate, Task: "a", Round: 2}, 2, 5)
				f := s.fix(3, a, g)
				s.check(2, 4, f, green)
				s.step(record.KindTaskDone, a, 1, record.TaskStep{})
				shows := []*work{a, f}
				if lie {
					shows = shows[:1]
				}
				s.approves(s.askFor(s.askOf("ship", shows...)))
				s.step0(record.KindTaskDone, control("ship"), record.TaskStep{})
				s.settle("r1", record.RunEnd{State: "done", Done: 5})
			},
		},
	}
}

// Each run with an approval is written with one lie, which needs the service key, and
// without: the first fails, and in the row for it, the second in none.
//
// proves R-A7, R-O9
func TestEachLieAboutAnApprovalIsFound(t *testing.T) {
	all := map[string]tale{}
	for _, some := range []map[string]tale{contentTales(), voterTales(), timeTales(), humanTales()} {
		maps.Copy(all, some)
	}
	for name, x := range all {
		t.Run(name, func(t *testing.T) {
			if r := verifyRun(t, x, false); r.Failed() || r.Row(x.row).Status != report.Pass {
				t.Errorf("without the lie:\n%s", r.Text())
			}
			if r := verifyRun(t, x, true); r.Row(x.row).Status != report.Fail {
				t.Errorf("with the lie:\n%s", r.Text())
			}
		})
	}
}

// A bundle from which a part of an approval is taken fails. Control: all of it passes.
//
// proves R-A7, R-O9
func TestAnApprovalCannotBeLeftOut(t *testing.T) {
	for name, take := range map[string]func(s *story, b *bundle.Bundle){
		"": func(*story, *bundle.Bundle) {},
		"the request": func(s *story, b *bundle.Bundle) {
			withhold(s, b, func(e *record.Entry) bool { return e.Kind == record.KindApprovalRequest })
		},
		"the votes": func(s *story, b *bundle.Bundle) {
			withhold(s, b, func(e *record.Entry) bool {
				return e.Kind == record.KindOperatorRecorded && e.At.After(s.entries[5].At)
			})
			b.Case.Records = b.Case.Records[:1]
		},
		"the signatures of the votes": func(_ *story, b *bundle.Bundle) { b.Case.Records = b.Case.Records[:1] },
		"one signature":               func(_ *story, b *bundle.Bundle) { delete(b.Documents, b.Case.Records[2]) },
		"what people signed": func(s *story, b *bundle.Bundle) {
			i := slices.IndexFunc(s.entries, func(e record.Entry) bool { return e.Kind == record.KindApprovalRequest })
			delete(b.Documents, s.entries[i].Refs[record.RefAction])
		},
		"the dispatch that was shown": func(s *story, b *bundle.Bundle) { withhold(s, b, ofDispatch("t-a1")) },
	} {
		s := newStory(t)
		s.submit(shipping, "", 0)
		ship("", nil, nil).tell(s, false)
		b := s.bundle(bundle.Case{Run: "r1"})
		take(s, b)
		if r := Verify(reread(t, b), s.trust(), Options{}); r.Failed() != (name != "") {
			t.Errorf("without %s:\n%s", name, r.Text())
		}
	}
}
