package seal

import (
	"errors"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
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
		envelope, err := Sign(t.Context(), Operator, []byte(`{}`), by...)
		if err != nil {
			t.Fatal(err)
		}
		e, err := Open(envelope, Operator)
		if err != nil {
			t.Fatal(err)
		}
		_, err = o.Open(e)
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
