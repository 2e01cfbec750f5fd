package seal

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// setAfter is the set of operator keys that follows the one in force.
func setAfter(t testing.TB, o *Operators, threshold int, keys ...Signer) *api.OperatorSet {
	t.Helper()
	root := TrustRoot{V: 1, Threshold: threshold}
	for _, k := range keys {
		root.Keys = append(root.Keys, KeyOf(k, ""))
	}
	text, err := canon.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	return &api.OperatorSet{Number: o.Number() + 1, Previous: o.Digest(), Root: text}
}

// payloadOf completes a record, and returns its payload.
func payloadOf(t testing.TB, rec api.OperatorRecord) []byte {
	t.Helper()
	rec.V, rec.Service, rec.Number, rec.At = 1, "ed25519:"+strings.Repeat("0", 32), 1, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	doc, err := canon.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// ownedBy is a set of one key for each principal, in their order.
func ownedBy(t testing.TB, threshold int, owners ...api.Principal) (TrustRoot, []Signer) {
	t.Helper()
	root, signers := TrustRoot{V: 1, Threshold: threshold}, []Signer{}
	for _, p := range owners {
		k, err := NewEphemeral()
		if err != nil {
			t.Fatal(err)
		}
		key := KeyOf(k, "")
		key.Principal = p
		root.Keys, signers = append(root.Keys, key), append(signers, k)
	}
	return root, signers
}

// follow puts root in force after o.
func follow(t testing.TB, o *Operators, root TrustRoot) error {
	t.Helper()
	text, err := canon.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	return o.Follow(&api.OperatorSet{Number: o.Number() + 1, Previous: o.Digest(), Root: text})
}

// A vote counts only under keys of its voter. The threshold counts people for the other
// decisions, and no keys. Controls: the own key, another kind of record, and a set from
// before keys had principals.
//
// takeover both modes, backup: no approve
// takeover both modes, one operator key: until approve
//
// proves R-P1
func TestAVoteTakesTheVotersOwnKey(t *testing.T) {
	root, by := ownedBy(t, 2, "human:ann", "human:bob", "local:root", "human:bob", "ci:nightly")
	owned, err := NewOperators(root)
	if err != nil {
		t.Fatal(err)
	}
	root.Keys = slices.Clone(root.Keys)
	for i := range root.Keys {
		root.Keys[i].Principal = ""
	}
	before, err := NewOperators(TrustRoot{V: 1, Keys: root.Keys, Threshold: 1})
	if err != nil {
		t.Fatal(err)
	}
	const ann, bob, submitter, bob2, program = 0, 1, 2, 3, 4
	vote := api.OperatorRecord{Verb: api.VerbApprove, Principal: "human:bob", Approval: "a-aaaaaaaaaaaa", Content: api.DigestOf(nil)}
	account, denial, ceiling, tier := vote, vote, api.OperatorRecord{Verb: api.VerbCeilingSet, Principal: "human:bob"}, api.Stateful
	account.Principal, denial.Verb, ceiling.Ceiling = "local:bob", api.VerbDeny, &tier
	program1 := vote
	program1.Principal = "ci:nightly"
	for name, c := range map[string]struct {
		o    *Operators
		rec  api.OperatorRecord
		by   []int
		want error
	}{
		"the own key":                      {owned, vote, []int{bob}, nil},
		"another own key":                  {owned, vote, []int{bob2}, nil},
		"both own keys":                    {owned, vote, []int{bob, bob2}, nil},
		"the own key, as an account":       {owned, account, []int{bob}, nil},
		"another person's key":             {owned, vote, []int{ann}, ErrOwner},
		"the submitter's key":              {owned, vote, []int{submitter}, ErrOwner},
		"the own and the submitter's key":  {owned, vote, []int{bob, submitter}, ErrOwner},
		"a program's key":                  {owned, vote, []int{program}, ErrOwner},
		"a denial with another's key":      {owned, denial, []int{ann}, ErrOwner},
		"no key of the set":                {owned, vote, nil, ErrUnsigned},
		"any key, before":                  {before, vote, []int{ann}, nil},
		"a ceiling by two people":          {owned, ceiling, []int{ann, bob}, nil},
		"a ceiling by one with two keys":   {owned, ceiling, []int{bob, bob2}, ErrThreshold},
		"a ceiling by one":                 {owned, ceiling, []int{ann}, ErrThreshold},
		"a ceiling by one and a program":   {owned, ceiling, []int{ann, program}, nil},
		"a program's vote, with its key":   {owned, program1, []int{program}, nil}, // policy refuses it
		"a program's vote, with a human's": {owned, program1, []int{ann}, ErrOwner},
	} {
		signers := []Signer{}
		for _, i := range c.by {
			signers = append(signers, by[i])
		}
		if len(signers) == 0 {
			stranger, err := NewEphemeral()
			if err != nil {
				t.Fatal(err)
			}
			signers, c.want = []Signer{stranger}, ErrUnknownKey
		}
		envelope, err := Sign(t.Context(), Operator, payloadOf(t, c.rec), signers...)
		if err != nil {
			t.Fatal(err)
		}
		e, err := Open(envelope, Operator)
		if err != nil {
			t.Fatal(err)
		}
		var got api.OperatorRecord
		if _, err := c.o.Open(e, canon.DecodeExact, &got); !errors.Is(err, c.want) || (c.want == nil) != (err == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// A key belongs to one principal for good. Controls: sets that keep it.
//
// proves R-P1
func TestAKeyNeverChangesItsPrincipal(t *testing.T) {
	root, _ := ownedBy(t, 1, "human:ann", "human:bob")
	with := func(change func(r *TrustRoot)) TrustRoot {
		r := TrustRoot{V: 1, Threshold: 1, Keys: slices.Clone(root.Keys)}
		change(&r)
		return r
	}
	eve, _ := ownedBy(t, 1, "human:eve")
	for name, c := range map[string]struct {
		next TrustRoot
		want string
	}{
		"another name":         {with(func(r *TrustRoot) { r.Keys[1].Name = "bob's laptop" }), ""},
		"a further key":        {with(func(r *TrustRoot) { r.Keys = append(r.Keys, eve.Keys...) }), ""},
		"moved":                {with(func(r *TrustRoot) { r.Keys[1].Principal = "human:eve" }), "belongs to human:bob and to no one else"},
		"moved to the account": {with(func(r *TrustRoot) { r.Keys[1].Principal = "local:bob" }), "belongs to human:bob and to no one else"},
		"exchanged":            {with(func(r *TrustRoot) { r.Keys[0].Principal, r.Keys[1].Principal = "human:bob", "human:ann" }), "and to no one else"},
		"one without":          {with(func(r *TrustRoot) { r.Keys[1].Principal = "" }), "has no principal"},
		"all without":          {with(func(r *TrustRoot) { r.Keys[0].Principal, r.Keys[1].Principal = "", "" }), "has no principal"},
		"an AI's":              {with(func(r *TrustRoot) { r.Keys = append(r.Keys, eve.Keys[0]); r.Keys[2].Principal = "agent:claude" }), "an AI has no operator key"},
		"more to sign than people": {with(func(r *TrustRoot) {
			r.Keys = append(r.Keys, eve.Keys[0])
			r.Keys[2].Principal, r.Threshold = "human:bob", 3
		}), "threshold 3"},
	} {
		o, err := NewOperators(root)
		if err != nil {
			t.Fatal(err)
		}
		if err := follow(t, o, c.next); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	// Retired and added again, for another: the key does not come back.
	o, err := NewOperators(root)
	if err == nil {
		err = follow(t, o, with(func(r *TrustRoot) { r.Keys = r.Keys[:1] }))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := follow(t, o, with(func(r *TrustRoot) { r.Keys[1].Principal = "human:eve" })); err == nil || !strings.Contains(err.Error(), "retired") {
		t.Errorf("a retired key of another: %v", err)
	}
	// A set from before keys had principals gets them at once, or not.
	bare := with(func(r *TrustRoot) { r.Keys[0].Principal, r.Keys[1].Principal = "", "" })
	for name, c := range map[string]struct {
		next TrustRoot
		ok   bool
	}{"all": {root, true}, "some": {with(func(r *TrustRoot) { r.Keys[1].Principal = "" }), false}} {
		o, err := NewOperators(bare)
		if err != nil {
			t.Fatal(err)
		}
		if err := follow(t, o, c.next); (err == nil) != c.ok || o.Assigned() != c.ok {
			t.Errorf("%s: %v, assigned %v", name, err, o.Assigned())
		}
	}
}

// Each record is verified by the set in force at its place in the chain. What a key signed
// while it was in force is no concern of later sets. Control: each key verifies in its time.
//
// proves R-B9
func TestEachSetOfOperatorKeysVerifiesInItsTime(t *testing.T) {
	signers := make([]Signer, 3)
	for i := range signers {
		k, err := NewEphemeral()
		if err != nil {
			t.Fatal(err)
		}
		signers[i] = k
	}
	a, b, c := signers[0], signers[1], signers[2]
	open := func(o *Operators, by ...Signer) error {
		t.Helper()
		envelope, err := Sign(t.Context(), Operator, payloadOf(t, api.OperatorRecord{Verb: api.VerbPrincipalAdd, Principal: "human:new"}), by...)
		if err != nil {
			t.Fatal(err)
		}
		e, err := Open(envelope, Operator)
		if err != nil {
			t.Fatal(err)
		}
		_, err = o.Open(e, canon.DecodeExact, &api.OperatorRecord{})
		return err
	}
	first, err := NewOperators(RootOf(KeyOf(a, "")))
	if err != nil {
		t.Fatal(err)
	}
	now := first.Clone()
	for _, s := range []func() *api.OperatorSet{
		func() *api.OperatorSet { return setAfter(t, now, 1, b) },
		func() *api.OperatorSet { return setAfter(t, now, 2, b, c) },
	} {
		if err := now.Follow(s()); err != nil {
			t.Fatal(err)
		}
	}
	for name, is := range map[string]struct {
		o    *Operators
		by   []Signer
		want error
	}{
		"first: its key":          {first, []Signer{a}, nil},
		"first: a later key":      {first, []Signer{b}, ErrUnknownKey},
		"third: both keys":        {now, []Signer{b, c}, nil},
		"third: one key":          {now, []Signer{b}, ErrThreshold},
		"third: one key, retired": {now, []Signer{b, a}, ErrThreshold},
		"third: the retired key":  {now, []Signer{a}, ErrUnknownKey},
	} {
		if err := open(is.o, is.by...); !errors.Is(err, is.want) || (is.want == nil) != (err == nil) {
			t.Errorf("%s: %v, want %v", name, err, is.want)
		}
	}
	if err := open(now, a); err == nil || !strings.Contains(err.Error(), "is retired since set 2") {
		t.Errorf("the refusal of the retired key is %v", err)
	}
	if first.Number() != 1 || now.Number() != 3 || !now.Root().Has(c.KeyID()) || now.Root().Has(a.KeyID()) || first.Digest() == now.Digest() {
		t.Errorf("sets %d and %d", first.Number(), now.Number())
	}
	// A refused set changes nothing.
	before := *now
	for name, s := range map[string]*api.OperatorSet{
		"a retired key":  setAfter(t, now, 1, a, c),
		"the same set":   setAfter(t, now, 2, b, c),
		"too few keys":   setAfter(t, now, 2, c),
		"an earlier set": {Number: 3, Previous: now.Digest(), Root: setAfter(t, now, 1, c).Root},
		"another before": {Number: 4, Previous: first.Digest(), Root: setAfter(t, now, 1, c).Root},
		"no set":         {Number: 4, Previous: now.Digest(), Root: []byte(`[]`)},
	} {
		if err := now.Follow(s); err == nil || now.Number() != before.number || now.Digest() != before.digest || len(now.retired) != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := now.Follow(setAfter(t, now, 1, c)); err != nil {
		t.Errorf("positive control: %v", err)
	}
	// A retired key does not come back under another id.
	now.gone[string(a.Public())] = 2
	delete(now.retired, a.KeyID())
	if err := now.Follow(setAfter(t, now, 1, a, c)); err == nil || !strings.Contains(err.Error(), "which set 2 retired") {
		t.Errorf("the bytes of a retired key: %v", err)
	}
	if _, err := NewOperators(TrustRoot{}); err == nil {
		t.Error("a chain begins with no keys")
	}
}

func FuzzFollow(f *testing.F) {
	f.Add([]byte(`{"keys":[],"threshold":1,"v":1}`))
	f.Fuzz(func(t *testing.T, root []byte) {
		k, err := NewEphemeral()
		if err != nil {
			t.Fatal(err)
		}
		o, err := NewOperators(RootOf(KeyOf(k, "")))
		if err != nil {
			t.Fatal(err)
		}
		if err := o.Follow(&api.OperatorSet{Number: 2, Previous: o.Digest(), Root: root}); err == nil {
			if err := o.Root().Validate(); err != nil {
				t.Errorf("%q is in force: %v", root, err)
			}
		}
	})
}
