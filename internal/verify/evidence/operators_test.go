package evidence

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// decideBy is decide with these keys.
func (s *story) decideBy(rec api.OperatorRecord, keys ...seal.Signer) {
	rec.V, rec.Service, rec.Number, rec.Previous, rec.At = 1, string(s.first.KeyID()), uint64(len(s.records)+1), s.recordHead, s.at
	doc, err := canon.Marshal(rec)
	s.must(err)
	envelope, err := seal.Sign(context.Background(), seal.Operator, doc, keys...)
	s.must(err)
	s.records, s.recordHead = append(s.records, s.put(envelope)), api.DigestOf(doc)
	var ids []string
	for _, k := range keys {
		ids = append(ids, string(k.KeyID()))
	}
	slices.Sort(ids)
	s.write(record.Entry{
		Kind: record.KindOperatorRecorded, Principal: "local:op", Refs: map[string]api.Digest{record.RefRecord: s.recordHead}, Detail: record.DecisionOf(&rec, ids),
	})
}

// consentBy is consent with these keys.
func (s *story) consentBy(p api.Principal, t api.Tier, keys ...seal.Signer) {
	s.decideBy(api.OperatorRecord{Verb: api.VerbCeilingSet, Principal: p, Ceiling: &t}, keys...)
}

// nextSet is the set of operator keys that follows the one in force.
func (s *story) nextSet(threshold int, keys ...seal.Signer) *api.OperatorSet {
	if s.operatorSet == nil {
		operators, err := seal.NewOperators(*s.trust().Operators)
		s.must(err)
		s.operatorSet = operators
	}
	root := seal.TrustRoot{V: 1, Threshold: threshold}
	for _, k := range keys {
		root.Keys = append(root.Keys, s.owned(k, ""))
	}
	doc, err := canon.Marshal(root)
	s.must(err)
	return &api.OperatorSet{Number: s.operatorSet.Number() + 1, Previous: s.operatorSet.Digest(), Root: doc}
}

// replaceKeys puts a set of operator keys in force, signed by keys.
func (s *story) replaceKeys(set *api.OperatorSet, keys ...seal.Signer) {
	s.decideBy(api.OperatorRecord{Verb: api.VerbOperatorSet, Set: set}, keys...)
	_ = s.operatorSet.Follow(set) // a lie may be no set that follows
}

// keyChanges is work between changes of the operator keys: the second key replaces the
// first, then a third is added and two must sign.
func keyChanges(s *story) []bundle.Case {
	second, third := s.newKey(), s.newKey()
	s.whole("d-00")
	s.replaceKeys(s.nextSet(1, second), s.operator)
	s.consentBy("local:bob", api.Stateful, second)
	s.whole("d-01")
	s.replaceKeys(s.nextSet(2, second, third), second)
	s.consentBy("local:eve", api.Stateful, second, third)
	s.whole("d-02")
	return []bundle.Case{{Dispatch: "d-00"}, {Dispatch: "d-01"}, {Dispatch: "d-02"}}
}

// The verifier follows the sets of operator keys from the trust file: what a key signed
// while it was in force verifies, and each lie about the chain fails the row of
// authorisation. Control: the same story without the lie.
//
// takeover both modes, one deploy key; one operator key: no rewrite the log, forge evidence
// takeover system, MCP program; a person's account: no forge evidence
//
// proves R-A7, R-B9
func TestChangesOfTheOperatorKeysAreVerified(t *testing.T) {
	type keys struct{ first, second, third, stranger seal.Signer }
	s := newStory(t)
	for _, c := range keyChanges(s) {
		r := Verify(reread(t, s.bundle(c)), s.trust(), Options{})
		if !r.Good(report.ClaimNone) {
			t.Errorf("honest %s:\n%s", c.Dispatch, r.Text())
		}
		if text := r.Text(); strings.Contains(text, "set 2 of their keys") != (c.Dispatch != "d-00") || strings.Contains(text, "set 3 of their keys in force: 2 people of 2 keys must sign") != (c.Dispatch == "d-02") {
			t.Errorf("%s: the report says\n%s", c.Dispatch, text)
		}
	}
	for name, l := range map[string]struct {
		words  string
		tell   func(s *story, k keys) // after set 2, of the second key
		bundle func(s *story, b *bundle.Bundle)
		trust  func(t *Trust, k keys)
	}{
		"nothing": {},
		"two of two keys": {tell: func(s *story, k keys) {
			s.replaceKeys(s.nextSet(2, k.second, k.third), k.second)
			s.consentBy("local:bob", api.Stateful, k.second, k.third)
		}},
		"by the second key": {tell: func(s *story, k keys) { s.consentBy("local:bob", api.Stateful, k.second) }},

		"a record by a retired key": {words: "is retired since set 2", tell: func(s *story, k keys) { s.consentBy("local:bob", api.Stateful, k.first) }},
		"a record by a key not yet in force": {words: "not in the trust root", tell: func(s *story, k keys) {
			s.consentBy("local:bob", api.Stateful, k.third)
			s.replaceKeys(s.nextSet(1, k.second, k.third), k.second)
		}},
		"a set by a retired key":         {words: "is retired since set 2", tell: func(s *story, k keys) { s.replaceKeys(s.nextSet(1, k.first, k.third), k.first) }},
		"a set by the keys that it adds": {words: "not in the trust root", tell: func(s *story, k keys) { s.replaceKeys(s.nextSet(1, k.second, k.stranger), k.stranger) }},
		"a set by too few": {words: "too few signatures: 1 of 2", tell: func(s *story, k keys) {
			s.replaceKeys(s.nextSet(2, k.second, k.third), k.second)
			s.replaceKeys(s.nextSet(1, k.second), k.second)
		}},
		"a record by too few": {words: "too few signatures: 1 of 2", tell: func(s *story, k keys) {
			s.replaceKeys(s.nextSet(2, k.second, k.third), k.second)
			s.consentBy("local:bob", api.Stateful, k.second)
		}},
		"a set with a retired key": {words: "which set 2 retired", tell: func(s *story, k keys) { s.replaceKeys(s.nextSet(1, k.second, k.first), k.second) }},
		"a set over another set": {words: "follows another set 2", tell: func(s *story, k keys) {
			set := s.nextSet(1, k.third)
			set.Previous = api.DigestOf([]byte("other"))
			s.replaceKeys(set, k.second)
		}},
		"a set number left out": {words: "set 4 does not follow set 2", tell: func(s *story, k keys) { set := s.nextSet(1, k.third); set.Number = 4; s.replaceKeys(set, k.second) }},
		"the same set again":    {words: "has the keys and the threshold of set 2", tell: func(s *story, k keys) { s.replaceKeys(s.nextSet(1, k.second), k.second) }},
		"a set that is no set":  {words: "threshold 2", tell: func(s *story, k keys) { s.replaceKeys(s.nextSet(2, k.third), k.second) }},

		"the record of a set left out": {words: "operator record", bundle: func(_ *story, b *bundle.Bundle) {
			delete(b.Documents, b.Case.Records[1])
			b.Case.Records = slices.Delete(b.Case.Records, 1, 2)
		}},
		"the entry of a set left out": {words: "the rules then in force are unknown", bundle: func(s *story, b *bundle.Bundle) {
			i := slices.IndexFunc(b.Entries, func(e bundle.Entry) bool {
				d, _ := s.entries[e.Seq].Detail.(record.OperatorDecision)
				return d.Set == 2
			})
			b.Entries = slices.Delete(slices.Clone(b.Entries), i, i+1)
			reprove(s, b)
		}},
		"two sets in another order": {words: "operator record 2", tell: func(s *story, k keys) { s.replaceKeys(s.nextSet(1, k.second, k.third), k.second) }, bundle: func(_ *story, b *bundle.Bundle) {
			b.Case.Records[1], b.Case.Records[2] = b.Case.Records[2], b.Case.Records[1]
		}},
		"another operators.json": {words: "follows another set 1", trust: func(t *Trust, k keys) {
			other := seal.RootOf(t.Operators.Keys[0], seal.Key{ID: k.stranger.KeyID(), Public: k.stranger.Public(), Principal: "human:mallory"})
			t.Operators = &other
		}},
		"an entry that names other keys": {words: "detail.operators", tell: func(s *story, k keys) {
			s.editEntry = func(_ uint64, e *record.Entry) {
				if d, ok := e.Detail.(record.OperatorDecision); ok {
					d.Operators = []string{string(k.first.KeyID())}
					e.Detail = d
				}
			}
			s.replaceKeys(s.nextSet(1, k.second, k.third), k.second)
			s.editEntry = nil
		}},
		"an entry that names another threshold": {words: "detail.threshold", tell: func(s *story, k keys) {
			s.editEntry = func(_ uint64, e *record.Entry) {
				if d, ok := e.Detail.(record.OperatorDecision); ok {
					d.Threshold = 2
					e.Detail = d
				}
			}
			s.replaceKeys(s.nextSet(1, k.second, k.third), k.second)
			s.editEntry = nil
		}},
	} {
		s := newStory(t)
		k := keys{s.operator, s.newKey(), s.newKey(), s.newKey()}
		s.replaceKeys(s.nextSet(1, k.second), k.first)
		if l.tell != nil {
			l.tell(s, k)
		}
		s.whole("d-01")
		b, trust := s.bundle(bundle.Case{Dispatch: "d-01"}), s.trust()
		if l.bundle != nil {
			l.bundle(s, b)
		}
		if l.trust != nil {
			l.trust(&trust, k)
		}
		r := Verify(reread(t, b), trust, Options{})
		switch row := r.Row(report.RowAuthorisation); {
		case l.words == "" && !r.Good(report.ClaimNone):
			t.Errorf("%s:\n%s", name, r.Text())
		case l.words != "" && (row.Status != report.Fail || !strings.Contains(row.Why, l.words)):
			t.Errorf("%s: %s: %s, want a failure that says %q", name, row.Status, row.Why, l.words)
		}
	}
}
