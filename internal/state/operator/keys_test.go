package operator

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
)

// nextSet is the record that puts a set of operator keys in force.
func (o *office) nextSet(threshold int, keys ...seal.Signer) api.OperatorRecord {
	o.t.Helper()
	now, err := o.registry.Keys(o.t.Context())
	if err != nil {
		o.t.Fatal(err)
	}
	root := seal.TrustRoot{V: 1, Threshold: threshold}
	for _, k := range keys {
		root.Keys = append(root.Keys, seal.KeyOf(k, ""))
	}
	text, err := canon.Marshal(root)
	if err != nil {
		o.t.Fatal(err)
	}
	return o.draft(api.VerbOperatorSet, func(r *api.OperatorRecord) {
		r.Set = &api.OperatorSet{Number: now.Set + 1, Previous: now.Digest, Root: text}
	})
}

func (o *office) addBy(rec api.OperatorRecord, keys ...seal.Signer) error {
	o.t.Helper()
	_, err := o.registry.Add(o.t.Context(), "local:ann", o.sign(rec, seal.Operator, keys...), nil)
	return err
}

func (o *office) mustBy(rec api.OperatorRecord, keys ...seal.Signer) {
	o.t.Helper()
	if err := o.addBy(rec, keys...); err != nil {
		o.t.Fatal(err)
	}
}

func (o *office) newcomer(name string) api.OperatorRecord {
	return o.draft(api.VerbPrincipalAdd, func(r *api.OperatorRecord) { r.Principal = api.Principal("agent:" + name) })
}

// A rotated key signs nothing more, its successor does, and what it signed before stays
// valid: across restarts, and in the log.
//
// proves R-B9
func TestARotatedOperatorKeySignsNothingMore(t *testing.T) {
	o := newOffice(t)
	first, second, third := o.operator, newSigner(t), newSigner(t)
	o.mustBy(o.newcomer("a"), first)
	if err := o.addBy(o.newcomer("b"), second); api.CodeOf(err) != api.CodeIntegrity {
		t.Fatalf("a key before it is added: %v", err)
	}
	o.mustBy(o.nextSet(1, second), first)
	check := func(when string) {
		t.Helper()
		err := o.addBy(o.newcomer("late"), first)
		if api.CodeOf(err) != api.CodeIntegrity || !strings.Contains(err.Error(), fmt.Sprintf("key %s is retired since set 2", first.KeyID())) {
			t.Errorf("%s: the retired key: %v", when, err)
		}
		if err := o.addBy(o.nextSet(1, first, second), first); api.CodeOf(err) != api.CodeIntegrity {
			t.Errorf("%s: the retired key adds itself: %v", when, err)
		}
		if err := o.addBy(o.nextSet(1, first, second), second); api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), "which set 2 retired") {
			t.Errorf("%s: the retired key is added again: %v", when, err)
		}
		if !o.registry.Known("agent:a") || o.registry.Known("agent:late") {
			t.Errorf("%s: the decisions differ", when)
		}
	}
	check("rotated")
	o.mustBy(o.newcomer("c"), second) // the control
	if err := o.restart(); err != nil {
		t.Fatal(err)
	}
	check("after a restart")
	o.mustBy(o.nextSet(2, second, third), second)
	if err := o.addBy(o.newcomer("d"), second); api.CodeOf(err) != api.CodeIntegrity || !strings.Contains(err.Error(), "too few signatures: 1 of 2") {
		t.Errorf("one of two: %v", err)
	}
	if err := o.addBy(o.nextSet(1, second), second); api.CodeOf(err) != api.CodeIntegrity {
		t.Errorf("one of two lowers the threshold: %v", err)
	}
	o.mustBy(o.newcomer("d"), second, third)
	o.mustBy(o.nextSet(1, third), second, third)
	// Each decision is shown with the keys of its time.
	for number, want := range map[uint64]struct {
		set  uint64
		keys int
	}{1: {1, 1}, 2: {1, 1}, 3: {2, 1}, 4: {2, 1}, 5: {3, 2}, 6: {3, 2}} {
		d, err := o.registry.Decision(t.Context(), number)
		if err != nil || d.Number != number || d.Record.Number != number || d.Set != want.set || len(d.Signatures) != want.keys || api.DigestOf(d.Payload) != d.Digest {
			t.Errorf("decision %d: %+v, %v", number, d, err)
		}
	}
	for _, number := range []uint64{0, 7} {
		if _, err := o.registry.Decision(t.Context(), number); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("decision %d: %v", number, err)
		}
	}
	keys, err := o.registry.Keys(t.Context())
	if err != nil || keys.Set != 4 || keys.Threshold != 1 || len(keys.Keys) != 3 {
		t.Fatalf("%+v, %v", keys, err)
	}
	for i, want := range []struct {
		id             seal.KeyID
		added, retired uint64
	}{{first.KeyID(), 0, 2}, {second.KeyID(), 2, 4}, {third.KeyID(), 3, 0}} {
		k := keys.Keys[i]
		got := func(c *api.OperatorKeyChange) uint64 {
			if c == nil {
				return 0
			}
			return c.Set
		}
		if k.ID != string(want.id) || got(k.Added) != want.added || got(k.Retired) != want.retired {
			t.Errorf("key %d is %+v, want %+v", i, k, want)
		}
	}
	if keys.Keys[0].Retired.Decision != 2 {
		t.Errorf("retired by decision %d", keys.Keys[0].Retired.Decision)
	}
	list, err := o.ledger.List(t.Context(), audit.Query{Kind: record.KindOperatorRecorded})
	if err != nil || len(list) != 6 {
		t.Fatalf("%d entries: %v", len(list), err)
	}
	line := list[3].Line().Text
	for _, want := range []string{"operator record 4: set 3 of the operator keys in force", string(second.KeyID()) + ", " + string(third.KeyID()) + ", 2 must sign, signed by " + string(second.KeyID())} {
		if !strings.Contains(line, want) {
			t.Errorf("%q does not say %q", line, want)
		}
	}
}

// A set of operator keys that does not follow the one in force is refused and changes
// nothing. Control: the same set as it ought to be.
//
// proves R-B9
func TestOnlyTheNextSetOfOperatorKeysIsAccepted(t *testing.T) {
	type change func(s *api.OperatorSet)
	for name, c := range map[string]struct {
		words  string
		change change
	}{
		"as it ought to be":  {"", func(*api.OperatorSet) {}},
		"a number too high":  {"set 3 does not follow set 1", func(s *api.OperatorSet) { s.Number = 3 }},
		"another set before": {"follows another set 1", func(s *api.OperatorSet) { s.Previous = api.DigestOf([]byte("other")) }},
		"no keys":            {"0 keys", func(s *api.OperatorSet) { s.Root = []byte(`{"keys":[],"threshold":1,"v":1}`) }},
		"no threshold": {"threshold 0", func(s *api.OperatorSet) {
			s.Root = []byte(strings.Replace(string(s.Root), `"threshold":1`, `"threshold":0`, 1))
		}},
		"a threshold of more": {"threshold 9", func(s *api.OperatorSet) {
			s.Root = []byte(strings.Replace(string(s.Root), `"threshold":1`, `"threshold":9`, 1))
		}},
		"another format":    {"format 2", func(s *api.OperatorSet) { s.Root = []byte(strings.Replace(string(s.Root), `"v":1`, `"v":2`, 1)) }},
		"an unknown member": {"unknown field", func(s *api.OperatorSet) { s.Root = []byte(strings.Replace(string(s.Root), `"v":1`, `"v":1,"w":1`, 1)) }},
		"a duplicate key": {"duplicate", func(s *api.OperatorSet) {
			from, to := strings.Index(string(s.Root), "[")+1, strings.Index(string(s.Root), "]")
			keys := string(s.Root[from:to])
			s.Root = []byte(string(s.Root[:to]) + "," + keys + string(s.Root[to:]))
		}},
		"the id of another key": {"does not match its public key", func(s *api.OperatorSet) {
			at := strings.Index(string(s.Root), "ed25519:") + len("ed25519:")
			other := byte('0')
			if s.Root[at] == other {
				other = '1'
			}
			s.Root[at] = other
		}},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOffice(t)
			second := newSigner(t)
			rec := o.nextSet(1, second)
			c.change(rec.Set)
			err := o.addBy(rec, o.operator)
			want, signer := uint64(1), o.operator
			if c.words == "" {
				want, signer = 2, second
				if err != nil {
					t.Errorf("positive control: %v", err)
				}
			} else if err == nil || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%v, want a refusal that says %q", err, c.words)
			}
			for range 2 {
				if keys, err := o.registry.Keys(t.Context()); err != nil || keys.Set != want {
					t.Errorf("set %d is in force, want %d: %v", keys.Set, want, err)
				}
				if err := o.restart(); err != nil {
					t.Fatal(err)
				}
			}
			o.mustBy(o.newcomer("a"), signer)
		})
	}
	o := newOffice(t)
	if err := o.addBy(o.nextSet(1, o.operator), o.operator); api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), "has the keys and the threshold of set 1") {
		t.Errorf("the same set: %v", err)
	}
}

// Once a set follows it, operators.json is set 1 and cannot change: a service refuses to
// start with another, and a running one takes no decision. Controls: the file as it was,
// and a key that is added before any set follows.
//
// proves R-B9
func TestOperatorsFileIsTheFirstSetOfTheChain(t *testing.T) {
	o := newOffice(t)
	first, second := o.operator, newSigner(t)
	o.mustBy(o.newcomer("a"), first)
	o.root(first, second)
	o.mustBy(o.newcomer("b"), second) // as long as no set follows, a person may add to the file
	o.mustBy(o.nextSet(1, second), first)
	good, err := os.ReadFile(o.rootPath())
	if err != nil {
		t.Fatal(err)
	}
	for name, keys := range map[string][]seal.Signer{"one key less": {first}, "one key more": {first, second, newSigner(t)}, "the set in force": {second}, "another order": {second, first}} {
		o.root(keys...)
		if err := o.addBy(o.newcomer("c"), second); api.CodeOf(err) != api.CodeIntegrity || !strings.Contains(err.Error(), "is not set 1 of the operator keys") {
			t.Errorf("%s: a decision: %v", name, err)
		}
		if _, err := o.registry.Keys(t.Context()); api.CodeOf(err) != api.CodeIntegrity {
			t.Errorf("%s: the keys: %v", name, err)
		}
		if err := o.restart(); api.CodeOf(err) != api.CodeIntegrity || !strings.Contains(err.Error(), o.rootPath()+" is not set 1 of the operator keys") || !strings.Contains(err.Error(), "record 3, which put set 2 in force") {
			t.Errorf("%s: a start: %v", name, err)
		}
		if err := os.Remove(o.rootPath()); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(o.rootPath(), good, 0o644); err != nil { //nolint:gosec // G306: public keys
			t.Fatal(err)
		}
		if err := o.restart(); err != nil {
			t.Fatalf("%s: positive control: %v", name, err)
		}
		if err := o.addBy(o.newcomer(strings.ReplaceAll(name, " ", "-")), second); err != nil {
			t.Errorf("%s: positive control: %v", name, err)
		}
	}
}

// What an attacker writes into the state while the service is stopped changes no operator
// key. Control: nothing is written.
//
// proves R-B9
func TestATamperedChainOfOperatorKeysRefusesTheStart(t *testing.T) {
	for name, c := range map[string]struct {
		words  string
		tamper func(o *office, old, now seal.Signer)
	}{
		"nothing":         {"", func(o *office, _, _ seal.Signer) { o.write() }},
		"the set removed": {"record 2 is missing", func(o *office, _, _ seal.Signer) { o.write("DELETE FROM operator_record WHERE number = 2") }},
		"the set and all behind it removed": {"record 2 is missing: log entry #1", func(o *office, _, _ seal.Signer) {
			o.write("DELETE FROM operator_record WHERE number >= 2")
		}},
		"a decision of the retired key in place of the newest": {"is retired since set 2", func(o *office, old, _ seal.Signer) {
			bad := o.resigned(3, old)
			o.write(fmt.Sprintf("UPDATE operator_record SET envelope = %s WHERE number = 3", quoted(bad)))
		}},
		"another set in place of the set": {"record 2 differs from the one recorded", func(o *office, old, now seal.Signer) {
			bad := o.otherSet(2, old, old, now)
			o.write(fmt.Sprintf("UPDATE operator_record SET envelope = %s WHERE number = 2", quoted(bad)), "DELETE FROM operator_record WHERE number = 3")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOffice(t)
			old, now := o.operator, newSigner(t)
			o.mustBy(o.newcomer("a"), old)
			o.mustBy(o.nextSet(1, now), old)
			o.mustBy(o.newcomer("b"), now)
			c.tamper(o, old, now)
			err := o.restart()
			if c.words == "" {
				if err != nil {
					t.Errorf("positive control: %v", err)
				}
				return
			}
			if api.CodeOf(err) != api.CodeIntegrity || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%v, want a refusal that says %q", err, c.words)
			}
		})
	}
}

// recordOf decodes a stored record.
func (o *office) recordOf(number uint64) (rec api.OperatorRecord) {
	o.t.Helper()
	payload, err := seal.Payload(o.stored(number), seal.Operator)
	if err == nil {
		err = canon.DecodeExact(payload, &rec)
	}
	if err != nil {
		o.t.Fatal(err)
	}
	return rec
}

// resigned is a stored record, signed by another key.
func (o *office) resigned(number uint64, key seal.Signer) []byte {
	return o.sign(o.recordOf(number), seal.Operator, key)
}

// otherSet is a stored set with other keys, signed.
func (o *office) otherSet(number uint64, by seal.Signer, keys ...seal.Signer) []byte {
	o.t.Helper()
	rec := o.recordOf(number)
	root := seal.TrustRoot{V: 1, Threshold: 1}
	for _, k := range keys {
		root.Keys = append(root.Keys, seal.KeyOf(k, ""))
	}
	text, err := canon.Marshal(root)
	if err != nil {
		o.t.Fatal(err)
	}
	rec.Set = &api.OperatorSet{Number: rec.Set.Number, Previous: rec.Set.Previous, Root: text}
	return o.sign(rec, seal.Operator, by)
}
