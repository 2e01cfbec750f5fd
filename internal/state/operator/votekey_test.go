package operator

import (
	"errors"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// keyOf is the public half of a key, of a principal.
func keyOf(k seal.Signer, name string, p api.Principal) seal.Key {
	out := seal.KeyOf(k, name)
	out.Principal = p
	return out
}

// vote submits the vote of who.
func (o *office) vote(who api.Principal, keys ...seal.Signer) error {
	o.t.Helper()
	rec := o.draft(api.VerbApprove, func(r *api.OperatorRecord) {
		r.Principal, r.Approval, r.Content = who, "a-aaaaaaaaaaaa", api.DigestOf([]byte("action"))
	})
	_, err := o.registry.Vote(o.t.Context(), who, o.sign(rec, seal.Operator, keys...), func(*store.Tx, *api.OperatorRecord, api.Vote, []api.Vote) error { return nil })
	return err
}

// set puts a set of operator keys in force, signed by keys.
func (o *office) set(root seal.TrustRoot, keys ...seal.Signer) error {
	o.t.Helper()
	text, err := canon.Marshal(root)
	if err != nil {
		o.t.Fatal(err)
	}
	now, err := o.registry.Keys(o.t.Context())
	if err != nil {
		o.t.Fatal(err)
	}
	rec := o.draft(api.VerbOperatorSet, func(r *api.OperatorRecord) {
		r.Set = &api.OperatorSet{Number: now.Set + 1, Previous: now.Digest, Root: text}
	})
	_, err = o.registry.Add(o.t.Context(), "local:ann", o.sign(rec, seal.Operator, keys...), nil)
	return err
}

// A service whose keys have no principals takes no vote, and says what to run. Once they
// have, it takes votes under keys of their voters and no others, and a restart verifies
// them. Earlier votes are withdrawn.
//
// proves R-P1
func TestAVoteNeedsAKeyOfItsVoter(t *testing.T) {
	o := newOffice(t)
	bobs, next := newSigner(t), newSigner(t)
	for _, p := range []api.Principal{"human:bob", "human:eve"} {
		o.must(api.VerbPrincipalAdd, func(r *api.OperatorRecord) { r.Principal = p })
	}
	o.root(o.operator, bobs)
	refused := func(err error, words ...string) {
		t.Helper()
		for _, w := range words {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%v, want %q", err, w)
			}
		}
	}
	refused(o.vote("human:bob", bobs), "have no principals", "bailiwick operators assign")
	refused(o.registry.CanVote("human:bob"), "have no principals")
	// A vote that an earlier version recorded.
	rec := o.draft(api.VerbApprove, func(r *api.OperatorRecord) {
		r.Principal, r.Approval, r.Content = "human:eve", "a-aaaaaaaaaaaa", api.DigestOf([]byte("action"))
	})
	if _, err := o.registry.add(t.Context(), "human:eve", o.sign(rec, seal.Operator, bobs), nil, func(*store.Tx, verified) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if n := len(o.registry.Votes("a-aaaaaaaaaaaa", api.DigestOf([]byte("action")))); n != 1 {
		t.Fatalf("control: %d votes from before", n)
	}
	ours := []seal.Key{keyOf(o.operator, "", "local:ann"), keyOf(bobs, "", "human:bob")}
	refused(o.set(seal.RootOf(ours[0], seal.KeyOf(bobs, "")), o.operator), "has no principal")
	if err := o.set(seal.RootOf(ours...), o.operator); err != nil {
		t.Fatal(err)
	}
	if n := len(o.registry.Votes("a-aaaaaaaaaaaa", api.DigestOf([]byte("action")))); n != 0 {
		t.Errorf("%d votes from before count", n)
	}
	refused(o.vote("human:eve", bobs), "no operator key belongs to human:eve", "--principal human:eve")
	refused(o.vote("human:bob", o.operator), "belongs to local:ann, not to human:bob", "of your own")
	refused(o.vote("human:bob", bobs, o.operator), "belongs to local:ann, not to human:bob")
	refused(o.set(seal.RootOf(ours[0], keyOf(bobs, "", "human:eve")), o.operator), "belongs to human:bob and to no one else")
	if err := o.vote("human:bob", bobs); err != nil {
		t.Errorf("the own key: %v", err)
	}
	if err := o.set(seal.RootOf(ours[0], keyOf(next, "", "human:eve")), o.operator); err != nil {
		t.Errorf("a key of another person: %v", err)
	}
	if err := o.vote("human:eve", next); err != nil {
		t.Errorf("the other's own key: %v", err)
	}
	if err := o.restart(); err != nil {
		t.Fatal(err)
	}
	if n := len(o.registry.Votes("a-aaaaaaaaaaaa", api.DigestOf([]byte("action")))); n != 2 {
		t.Errorf("%d votes after a restart, want 2", n)
	}
	keys, err := o.registry.Keys(t.Context())
	if err != nil || keys.Keys[1].Principal != "human:bob" || keys.Keys[2].Principal != "human:eve" {
		t.Errorf("%+v: %v", keys.Keys, err)
	}
}

// A person who is removed under one of the names human:NAME and local:NAME takes back the
// vote under the other, also after a restart. Control: a person with a similar name.
//
// proves R-P1
func TestRemovingAPersonWithdrawsItsVoteUnderEitherName(t *testing.T) {
	o := newOffice(t)
	bobs := newSigner(t)
	o.replaceRoot(seal.RootOf(keyOf(o.operator, "", "local:ann"), keyOf(bobs, "", "human:bob")))
	if err := o.restart(); err != nil {
		t.Fatal(err)
	}
	for _, p := range []api.Principal{"human:bob", "human:eve"} {
		o.must(api.VerbPrincipalAdd, func(r *api.OperatorRecord) { r.Principal = p })
	}
	if err := o.vote("local:bob", bobs); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		gone api.Principal
		want int
	}{{"human:eve", 1}, {"human:bob", 0}} {
		if c.gone == "human:bob" { // whose key has to be retired first
			if err := o.set(seal.RootOf(keyOf(o.operator, "", "local:ann")), o.operator); err != nil {
				t.Fatal(err)
			}
			if n := len(o.registry.Votes("a-aaaaaaaaaaaa", api.DigestOf([]byte("action")))); n != 1 {
				t.Fatalf("%d votes after the key was retired, want 1", n)
			}
		}
		o.must(api.VerbPrincipalRemove, func(r *api.OperatorRecord) { r.Principal = c.gone })
		for range 2 {
			if n := len(o.registry.Votes("a-aaaaaaaaaaaa", api.DigestOf([]byte("action")))); n != c.want {
				t.Errorf("%s removed: %d votes, want %d", c.gone, n, c.want)
			}
			if err := o.restart(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A pending decision is complete once enough people signed it, not enough keys. A pending vote
// takes a key of its voter. Controls: two people, and the voter.
//
// proves R-P1
func TestPendingDecisionsCountPeople(t *testing.T) {
	o := newOffice(t)
	second, bobs := newSigner(t), newSigner(t)
	o.replaceRoot(seal.TrustRoot{V: 1, Threshold: 2, Keys: []seal.Key{keyOf(o.operator, "", "local:ann"), keyOf(second, "", "human:ann"), keyOf(bobs, "", "human:bob")}})
	tier := api.Stateful
	by := func(l api.PendingDecision, k seal.Signer) (*Signed, error) {
		return o.registry.Pending.Sign(t.Context(), l.ID, api.PendingSignature{Envelope: o.sign(l.Record, seal.Operator, k)})
	}
	l := o.submit("local:ann", tier)
	for i, k := range []seal.Signer{o.operator, second} {
		if s, err := by(l, k); s != nil || err != nil {
			t.Errorf("key %d of one person: %v, %v", i, s, err)
		}
	}
	if s, err := by(l, bobs); s == nil || err != nil {
		t.Errorf("a second person: %v, %v", s, err)
	}
	vote, err := o.registry.Pending.Put(t.Context(), "local:ann", api.OperatorRecord{Verb: api.VerbApprove, Principal: "local:ann", Approval: "a-aaaaaaaaaaaa", Content: api.DigestOf(nil)}, nil)
	if err != nil || vote.Threshold != 1 {
		t.Fatalf("%+v: %v", vote, err)
	}
	if s, err := by(vote, bobs); s != nil || err == nil || !strings.Contains(err.Error(), "not to local:ann") {
		t.Errorf("another person's key: %v, %v", s, err)
	}
	s, err := by(vote, second)
	if s == nil || err != nil {
		t.Errorf("the voter's key: %v, %v", s, err)
	}
}

// A person whose operator key is in force is not removed: the key would still sign
// everything. Once it is retired, the person is. Control: a person without a key.
//
// proves R-B9
func TestAPersonWithAnOperatorKeyIsNotRemoved(t *testing.T) {
	o := newOffice(t)
	bobs := newSigner(t)
	for _, p := range []api.Principal{"human:bob", "human:eve"} {
		o.must(api.VerbPrincipalAdd, func(r *api.OperatorRecord) { r.Principal = p })
	}
	anns := keyOf(o.operator, "", "local:ann")
	if err := o.set(seal.RootOf(anns, keyOf(bobs, "", "human:bob")), o.operator); err != nil {
		t.Fatal(err)
	}
	remove := func(p api.Principal) error {
		return o.addBy(o.draft(api.VerbPrincipalRemove, func(r *api.OperatorRecord) { r.Principal = p }), o.operator)
	}
	if err := remove("human:eve"); err != nil {
		t.Fatalf("control: %v", err)
	}
	refused := func(hint string) {
		t.Helper()
		err := remove("human:bob")
		e, ok := errors.AsType[*api.Error](err)
		if !ok || e.Code != api.CodeConflict || !strings.Contains(e.Error(), "has the operator key "+string(bobs.KeyID())) || !strings.Contains(e.Hint, hint) || !o.registry.Known("human:bob") {
			t.Errorf("%v, want %q", err, hint)
		}
	}
	refused("first run: bailiwick operators retire " + string(bobs.KeyID()))
	if err := o.addBy(o.newcomer("late"), bobs); err != nil {
		t.Errorf("control: the key signs: %v", err)
	}
	if err := o.set(seal.RootOf(anns), o.operator); err != nil {
		t.Fatal(err)
	}
	if err := remove("human:bob"); err != nil || o.registry.Known("human:bob") {
		t.Errorf("after its key was retired: %v", err)
	}
	if err := o.addBy(o.newcomer("later"), bobs); err == nil {
		t.Error("the retired key of a removed person signs")
	}
}

// In the session of a person only that person's keys sign: a vote, and a decision that needs
// two people. The controls: each signs in the own session, and without a session any key
// of the set signs.
//
// takeover system, page: no approve
//
// proves R-P1
func TestAPersonSignsInAnOwnSession(t *testing.T) {
	o := newOffice(t)
	bobs := newSigner(t)
	o.replaceRoot(seal.TrustRoot{V: 1, Keys: []seal.Key{keyOf(o.operator, "ann", "human:ann"), keyOf(bobs, "bob", "local:bob")}, Threshold: 2})
	sign := func(l api.PendingDecision, k seal.Signer, person api.Principal) error {
		t.Helper()
		envelope, err := seal.Sign(t.Context(), seal.Operator, l.Payload, k)
		if err != nil {
			t.Fatal(err)
		}
		_, err = o.registry.Pending.SignAs(t.Context(), l.ID, api.PendingSignature{Envelope: envelope}, person)
		return err
	}
	l := o.submit("local:dev", api.Stateful)
	for person, k := range map[api.Principal]seal.Signer{"human:ann": bobs, "human:bob": o.operator, "human:eve": bobs} {
		if err := sign(l, k, person); err == nil || !strings.Contains(err.Error(), "this is the session of "+string(person)) {
			t.Errorf("another person's key in the session of %s: %v", person, err)
		}
	}
	if now, err := o.registry.Pending.Get(t.Context(), l.ID); err != nil || len(now.Signed) != 0 {
		t.Errorf("refused signatures are kept: %+v, %v", now.Signed, err)
	}
	for person, k := range map[api.Principal]seal.Signer{"human:ann": o.operator, "human:bob": bobs} { // local:bob is that person
		if err := sign(l, k, person); err != nil {
			t.Errorf("in the own session of %s: %v", person, err)
		}
	}
	if err := sign(o.submit("local:dev", api.Reversible), bobs, ""); err != nil {
		t.Errorf("without a session: %v", err)
	}
}
