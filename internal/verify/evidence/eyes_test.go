package evidence

import (
	"bytes"
	"encoding/json"
	"html"
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

// fourEyes is a run that two people approve, each with an own key. One of them has another
// key since the request.
func fourEyes(s *story) []bundle.Case {
	s.second = s.newKey()
	next := s.heldBy("human:eve")
	s.submit(shipping, "", 0)
	a := of("a", 1)
	s.carry(a, `{"risk":"low"}`)
	d := s.askFor(s.askOf("ship", a))
	s.vote(api.VerbApprove, "human:bob", shipped, d, s.operator)
	s.replaceKeys(s.nextSet(1, s.operator, next), s.operator)
	s.vote(api.VerbApprove, "human:eve", shipped, d, next)
	s.shipEnd(record.KindTaskDone, "")
	return []bundle.Case{{Run: "r1"}}
}

// reassigned is the set in force with other principals, by the ids of its keys.
func (s *story) reassigned(owners map[seal.KeyID]api.Principal) *api.OperatorSet {
	set := s.nextSet(1)
	root := s.operatorSet.Root()
	next := seal.TrustRoot{V: 1, Threshold: root.Threshold}
	for _, k := range root.Keys {
		if p, ok := owners[k.ID]; ok {
			k.Principal = p
		}
		next.Keys = append(next.Keys, k)
	}
	var err error
	set.Root, err = canon.Marshal(next)
	s.must(err)
	return set
}

// assignKeys gives the keys of a set that has no principals theirs.
func (s *story) assignKeys() {
	owners := map[seal.KeyID]api.Principal{s.operator.KeyID(): "human:bob"}
	if s.second != nil {
		owners[s.second.KeyID()] = "human:eve"
	}
	s.replaceKeys(s.reassigned(owners), s.operator)
}

// eyes are runs with an approval of two people. before is told before people are asked,
// votes between the request and the end.
type eyes struct {
	honest  bool
	words   string // of the failure
	earlier bool   // the keys of set 1 have no principals
	rules   int64  // of the run; 0: today's, or earlier ones; -1: none
	// assigned puts set 2, which has principals, in force before the run is submitted.
	assigned bool
	votes    func(s *story, d api.Digest)
}

func (x eyes) report(t *testing.T) report.Report {
	t.Helper()
	s := newStory(t)
	s.second, s.earlier5 = s.newKey(), x.earlier
	if x.assigned {
		s.assignKeys()
	}
	if x.rules != 0 {
		s.editEntry = func(_ uint64, e *record.Entry) {
			if d, ok := e.Detail.(record.RunRequest); ok {
				d.Rules = max(0, x.rules)
				e.Detail = d
			}
		}
	}
	s.submit(shipping, "", 0)
	s.editEntry = nil
	a := of("a", 1)
	s.carry(a, "")
	x.votes(s, s.askFor(s.askOf("ship", a)))
	s.shipEnd(record.KindTaskDone, "")
	return Verify(reread(t, s.bundle(bundle.Case{Run: "r1"})), s.trust(), Options{})
}

// A service that has its own key, and records a vote under a key of another principal than its
// voter, is refused offline, however the set of keys changed between votes. Old bundles keep
// their rule: keys had no principals. Controls: the honest ones among them.
//
// proves R-P1, R-A7
func TestAVoteUnderAnothersKeyIsFoundOffline(t *testing.T) {
	approve := func(s *story, who api.Principal, d api.Digest, k seal.Signer) {
		s.vote(api.VerbApprove, who, shipped, d, k)
	}
	assign := func(s *story, bob, eve api.Principal) {
		s.replaceKeys(s.reassigned(map[seal.KeyID]api.Principal{s.operator.KeyID(): bob, s.second.KeyID(): eve}), s.operator)
	}
	withKey := func(s *story, p api.Principal) seal.Signer {
		k := s.heldBy(p)
		s.replaceKeys(s.nextSet(1, s.operator, s.second, k), s.operator)
		return k
	}
	for name, x := range map[string]eyes{
		"two people with own keys": {honest: true, votes: func(s *story, d api.Digest) { s.approves(d) }},
		"accounts of two people":   {honest: true, votes: func(s *story, d api.Digest) { s.approves(d) }},
		"a key replaced by another of its person between the votes": {honest: true, votes: func(s *story, d api.Digest) {
			approve(s, "human:bob", d, s.operator)
			next := s.heldBy("human:eve")
			s.replaceKeys(s.nextSet(1, s.operator, next), s.operator)
			approve(s, "human:eve", d, next)
		}},
		"the voter's key replaced after the vote": {honest: true, votes: func(s *story, d api.Digest) {
			approve(s, "human:bob", d, s.operator)
			next := s.heldBy("human:bob")
			s.replaceKeys(s.nextSet(1, next, s.second), s.operator)
			approve(s, "human:eve", d, s.second)
		}},
		"a further key of a person": {honest: true, votes: func(s *story, d api.Digest) {
			approve(s, "human:bob", d, withKey(s, "human:bob"))
			approve(s, "human:eve", d, s.second)
		}},
		"before keys had principals": {honest: true, earlier: true, votes: func(s *story, d api.Digest) { s.approves(d) }},
		"before, with each other's key": {honest: true, earlier: true, votes: func(s *story, d api.Digest) {
			approve(s, "human:bob", d, s.second)
			approve(s, "human:eve", d, s.operator)
		}},
		"votes after the keys got principals": {honest: true, earlier: true, votes: func(s *story, d api.Digest) {
			assign(s, "human:bob", "human:eve")
			s.approves(d)
		}},

		"a key of the submitter": {words: "belongs to human:ann, not to human:eve", votes: func(s *story, d api.Digest) {
			approve(s, "human:bob", d, s.operator)
			approve(s, "human:eve", d, s.keyOf("human:ann"))
		}},
		"a key of the submitter, added under another name": {words: "belongs to human:ann2, not to human:eve", votes: func(s *story, d api.Digest) {
			approve(s, "human:bob", d, s.operator)
			approve(s, "human:eve", d, withKey(s, "human:ann2"))
		}},
		"one key for both": {words: "belongs to human:bob, not to human:eve", votes: func(s *story, d api.Digest) {
			approve(s, "human:bob", d, s.operator)
			approve(s, "human:eve", d, s.operator)
		}},
		"one person with two keys": {words: "not approved by 2 humans", votes: func(s *story, d api.Digest) {
			approve(s, "human:bob", d, s.operator)
			approve(s, "local:bob", d, withKey(s, "human:bob"))
		}},
		"a key that moves to the next voter": {words: "belongs to human:bob and to no one else", votes: func(s *story, d api.Digest) {
			approve(s, "human:bob", d, s.operator)
			assign(s, "human:eve", "human:eve")
			approve(s, "human:eve", d, s.operator)
		}},
		"a key that loses its principal": {words: "has no principal", votes: func(s *story, d api.Digest) {
			assign(s, "", "")
			s.approves(d)
		}},
		"a voter's own key beside another's": {words: "belongs to human:bob, not to human:eve", votes: func(s *story, d api.Digest) {
			approve(s, "human:bob", d, s.operator)
			s.decideBy(api.OperatorRecord{Verb: api.VerbApprove, Principal: "human:eve", Approval: shipped, Content: d}, s.operator, s.second)
		}},
		"keys without principals today": {words: "not approved by 2 humans", earlier: true, rules: 5, votes: func(s *story, d api.Digest) { s.approves(d) }},
		"the earlier rules, and keys of today": {words: "belongs to human:eve, not to human:bob", rules: 4, votes: func(s *story, d api.Digest) {
			approve(s, "human:bob", d, s.second)
			approve(s, "human:eve", d, s.operator)
		}},
		"the earlier rules, and own keys":                                  {words: "claims rules 4, which are older than principals of keys, but the keys have principals since set 1", rules: 4, votes: func(s *story, d api.Digest) { s.approves(d) }},
		"no rules, and own keys":                                           {words: "claims rules 0", rules: -1, votes: func(s *story, d api.Digest) { s.approves(d) }},
		"submitted after the keys got principals, under the earlier rules": {words: "but the keys have principals since set 2", earlier: true, assigned: true, votes: func(s *story, d api.Digest) { s.approves(d) }},
		"submitted after the keys got principals":                          {honest: true, earlier: true, assigned: true, rules: 5, votes: func(s *story, d api.Digest) { s.approves(d) }},
		"one vote from before the keys got principals": {words: "not approved by 2 humans", earlier: true, votes: func(s *story, d api.Digest) {
			approve(s, "human:bob", d, s.second)
			assign(s, "human:bob", "human:eve")
			approve(s, "human:eve", d, s.second)
		}},
	} {
		r := x.report(t)
		old := strings.Contains(r.Text(), "4 (claimed): votes count under keys without principals")
		switch row := r.Row(report.RowAuthorisation); {
		case old != (x.rules == 4 || x.earlier && x.rules == 0):
			t.Errorf("%s: says that the run has older rules: %t\n%s", name, old, r.Text())
		case x.honest && !r.Good(report.ClaimNone):
			t.Errorf("%s:\n%s", name, r.Text())
		case !x.honest && (row.Status != report.Fail || !strings.Contains(row.Why, x.words)):
			t.Errorf("%s: %s: %s, want a failure that says %q", name, row.Status, row.Why, x.words)
		}
	}
}

// The voters of a quorum vote under own keys too: one key does not make two of them.
// Control: each with an own key.
//
// proves R-P1, R-O9
func TestAQuorumTakesAKeyOfEachVoter(t *testing.T) {
	const two = `{"id":"r1","source":{"name":"app"},"tasks":[{"id":"a","subagent":"code","env":["plain"],"capabilities":["tools"]},` +
		`{"id":"q","quorum":{"of":["human:bob","human:eve"],"approve":2},"depends_on":["a"]}]}`
	for _, lie := range []bool{false, true} {
		s := newStory(t)
		s.second = s.newKey()
		quorumOfTwo(s, two, lie)
		r := Verify(reread(t, s.bundle(bundle.Case{Run: "r1"})), s.trust(), Options{})
		if r.Failed() != lie || lie && !strings.Contains(r.Row(report.RowAuthorisation).Why, "belongs to human:bob, not to human:eve") {
			t.Errorf("lie %v:\n%s", lie, r.Text())
		}
	}
}

// quorumOfTwo is a quorum whose voters are bob and eve; in the lie eve has no key of her own.
func quorumOfTwo(s *story, doc string, lie bool) {
	s.submit(doc, "", 0)
	a := of("a", 1)
	s.carry(a, "")
	s.sprout(control("q"), 0, plan.Growth{Cause: plan.CauseQuorum, Task: "q"}, 2, 4)
	eves := s.second
	if lie {
		eves = s.operator
	}
	for i, v := range []struct {
		task api.TaskID
		id   api.ApprovalID
		who  api.Principal
		key  seal.Signer
	}{{"q.vote1", shipped, "human:bob", s.operator}, {"q.vote2", "a-bbbbbbbbbbbb", "human:eve", eves}} {
		asked := s.askOf(v.task, a)
		asked.ID, asked.By, asked.Needs, asked.Expires = v.id, []api.Principal{v.who}, 1, s.at.Add(23*time.Hour)
		s.vote(api.VerbApprove, v.who, v.id, s.askFor(asked), v.key)
		s.step0(record.KindTaskDone, control(v.task), record.TaskStep{})
		if i == 1 {
			s.step0(record.KindTaskDone, control("q"), record.TaskStep{})
		}
	}
	s.settle("r1", record.RunEnd{State: "done", Done: 4})
}

// A report names who signed each decision: the voters, those who changed the keys and who
// published the catalog, and the service's keys, in text, JSON and HTML. It names the calls
// that needed no approval apart from approved ones.
//
// proves R-P1, R-A7
func TestAReportNamesWhoDecided(t *testing.T) {
	s := newStory(t)
	s.rotate()
	fourEyes(s)
	r := Verify(reread(t, s.bundle(bundle.Case{Run: "r1"})), s.trust(), Options{})
	tools := newStory(t)
	cases := toolCalls(tools)
	called := Verify(reread(t, tools.bundle(cases[0])), tools.trust(), Options{})
	for _, x := range []struct {
		r    report.Report
		want []string
	}{
		{r, []string{
			"human:bob approved task ship of run r1, approval " + string(shipped) + ", signed with key " + string(s.operator.KeyID()) + ` named "operator" of human:bob`,
			"human:eve approved task ship of run r1", " of human:eve",
			"catalog revision 1 in force, signed with key " + string(s.deploy.KeyID()) + ` named "deploy"`,
			"set 2 of their keys in force: 1 person of 2 keys must sign, signed with key " + string(s.operator.KeyID()),
			"the ceiling of local:ann to reversible, signed with key " + string(s.operator.KeyID()) + ` named "operator" of human:bob`,
			"the service's key is replaced by key " + string(s.service.KeyID()) + ", signed with key " + string(s.first.KeyID()),
		}},
		{called, []string{
			"called warehouse/query in dispatch d-01 attempt 1 without an approval: allowed by ",
			"called warehouse/apply in dispatch d-01 attempt 1 with approval a-aaaaaaaaaaaa",
		}},
	} {
		if !x.r.Good(report.ClaimNone) {
			t.Fatal(x.r.Text())
		}
		doc, err := x.r.JSON()
		s.must(err)
		var back report.Report
		s.must(json.Unmarshal(doc, &back))
		var page bytes.Buffer
		s.must(x.r.HTML(&page))
		for name, text := range map[string]string{"text": x.r.Text(), "JSON": back.Text(), "HTML": html.UnescapeString(page.String())} {
			for _, want := range x.want {
				if !strings.Contains(text, want) {
					t.Errorf("%s lacks %q:\n%s", name, want, text)
				}
			}
		}
	}
}
