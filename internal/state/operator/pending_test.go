package operator

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/softkey"
)

// touch adds a passkey to the operators' keys, beside the key of the office.
func (o *office) touch(threshold int) *softkey.Authenticator {
	o.t.Helper()
	return o.touchWith(false, threshold)
}

// touchWith is touch with a passkey of EdDSA, if ed is true.
func (o *office) touchWith(ed bool, threshold int) *softkey.Authenticator {
	o.t.Helper()
	a, err := softkey.New(ed)
	if err != nil {
		o.t.Fatal(err)
	}
	k, err := a.Key("ann")
	if err != nil {
		o.t.Fatal(err)
	}
	o.replaceRoot(seal.TrustRoot{V: 1, Keys: []seal.Key{seal.KeyOf(o.operator, "file"), k}, Threshold: threshold})
	return a
}

// submit submits a ceiling for an account.
func (o *office) submit(p api.Principal, tier api.Tier) api.PendingDecision {
	o.t.Helper()
	l, err := o.registry.Pending.Put(o.t.Context(), "local:op", api.OperatorRecord{Verb: api.VerbCeilingSet, Principal: p, Ceiling: &tier}, nil)
	if err != nil {
		o.t.Fatal(err)
	}
	return l
}

// assert signs a pending decision with a passkey.
func (o *office) assert(a *softkey.Authenticator, l api.PendingDecision) (*Signed, error) {
	o.t.Helper()
	assertion, err := a.Assert([32]byte(l.Challenge))
	if err != nil {
		o.t.Fatal(err)
	}
	by := api.Assertion(assertion)
	return o.registry.Pending.Sign(o.t.Context(), l.ID, api.PendingSignature{Assertion: &by})
}

// record records a signed record and settles it, as the server does.
func (o *office) record(l api.PendingDecision, s *Signed) (api.PendingDecision, error) {
	o.t.Helper()
	receipt, err := o.registry.Add(o.t.Context(), "local:op", s.Envelope, s.Content)
	return o.registry.Pending.Settle(o.t.Context(), l.ID, receipt, err)
}

// proves R-B9
func TestAPasskeySignsPendingDecisions(t *testing.T) {
	o := newOffice(t)
	a := o.touch(1)
	l := o.submit("local:ann", api.Stateful)
	if l.State != api.PendingOpen || len(l.Passkeys) != 1 || l.Record.Nonce == "" || l.Record.Number != 1 {
		t.Fatalf("%+v", l)
	}
	signed, err := o.assert(a, l)
	if err != nil || signed == nil {
		t.Fatal(signed, err)
	}
	l, err = o.record(l, signed)
	if err != nil || l.State != api.PendingRecorded || l.Receipt == nil || o.registry.Consent("local:ann") != api.Stateful {
		t.Fatal(l, err)
	}
	if _, err := o.assert(a, l); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("twice: %v", err)
	}
	// The chain verifies again, when nothing is pending any more.
	if err := o.restart(); err != nil || o.registry.Consent("local:ann") != api.Stateful {
		t.Fatal(err)
	}
	if list, err := o.registry.Pending.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
}

// A record is signed only where and while it is pending: its nonce is of the service.
//
// takeover system, MCP program; a person's account; page: no approve
//
// proves R-B9
func TestAPasskeySignsNothingElse(t *testing.T) {
	o := newOffice(t)
	a := o.touch(1)
	tier := api.Stateful
	rec := o.draft(api.VerbCeilingSet, func(r *api.OperatorRecord) { r.Principal, r.Ceiling = "local:ann", &tier })
	for name, c := range map[string]struct {
		nonce string
		want  string
	}{"no nonce": {"", "has no nonce"}, "a nonce of its own": {strings.Repeat("0", 32), "is not pending"}} {
		r := rec
		r.Nonce = c.nonce
		envelope, err := a.Sign(seal.Operator, encode(t, r))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.registry.Add(t.Context(), "local:op", envelope, nil); api.CodeOf(err) != api.CodeIntegrity || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	old := o.submit("local:ann", api.Stateful)
	other := o.submit("local:bob", api.Stateful)

	// What was signed for one record is no signature of another.
	assertion, err := a.Assert([32]byte(other.Challenge))
	if err != nil {
		t.Fatal(err)
	}
	by := api.Assertion(assertion)
	if _, err := o.registry.Pending.Sign(t.Context(), old.ID, api.PendingSignature{Assertion: &by}); err == nil || !strings.Contains(err.Error(), "another challenge") {
		t.Errorf("another record: %v", err)
	}
	// The control, and what another record precedes.
	signed, err := o.assert(a, other)
	if err != nil {
		t.Fatal(err)
	}
	late, err := o.assert(a, old)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.record(other, signed); err != nil {
		t.Fatal(err)
	}
	if _, err := o.assert(a, old); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("a stale record: %v", err)
	}
	if _, err := o.record(old, late); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("an old nonce: %v", err)
	}
	// An expired one.
	third := o.submit("local:ann", api.Stateful)
	signed, err = o.assert(a, third)
	if err != nil {
		t.Fatal(err)
	}
	o.now = o.now.Add(api.OperatorRecordMaxAge + time.Second)
	if _, err := o.record(third, signed); err == nil {
		t.Error("an expired record is recorded")
	}
	if _, err := o.assert(a, third); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("an expired record: %v", err)
	}
}

// The service takes no assertion with a flipped bit, and the record waits for the right one.
// Control: that one.
//
// proves R-B9
func TestEveryFlippedBitOfAPasskeyIsRefused(t *testing.T) {
	for _, ed := range []bool{false, true} {
		o := newOffice(t)
		a := o.touchWith(ed, 1)
		l := o.submit("local:ann", api.Stateful)
		assertion, err := a.Assert([32]byte(l.Challenge))
		if err != nil {
			t.Fatal(err)
		}
		flips, honest := 0, api.Assertion(assertion)
		for name, part := range map[string]*[]byte{
			"authenticator data": &assertion.AuthenticatorData, "client data": &assertion.ClientDataJSON, "credential": &assertion.Credential, "signature": &assertion.Signature,
		} {
			original := *part
			for i := range 8 * len(original) {
				*part = bytes.Clone(original)
				(*part)[i/8] ^= 1 << (i % 8)
				by := api.Assertion(assertion)
				if signed, err := o.registry.Pending.Sign(t.Context(), l.ID, api.PendingSignature{Assertion: &by}); signed != nil || api.CodeOf(err) != api.CodeIntegrity {
					t.Errorf("bit %d of the %s: %v", i, name, err)
				}
				flips++
			}
			*part = original
		}
		if l, err = o.registry.Pending.Get(t.Context(), l.ID); err != nil || l.State != api.PendingOpen || len(l.Signed) > 0 {
			t.Fatalf("after %d flipped bits: %+v, %v", flips, l, err)
		}
		signed, err := o.registry.Pending.Sign(t.Context(), l.ID, api.PendingSignature{Assertion: &honest})
		if err != nil || signed == nil {
			t.Fatal(signed, err)
		}
		if _, err := o.record(l, signed); err != nil || o.registry.Consent("local:ann") != api.Stateful {
			t.Error(err)
		}
	}
}

// k of n signatures come one after the other, of passkeys and of files.
func TestAPendingDecisionTakesSeveralSignatures(t *testing.T) {
	o := newOffice(t)
	a := o.touch(2)
	l := o.submit("local:ann", api.Irreversible)
	if signed, err := o.assert(a, l); err != nil || signed != nil {
		t.Fatalf("one of two: %v, %v", signed, err)
	}
	l, err := o.registry.Pending.Get(t.Context(), l.ID)
	if err != nil || len(l.Signed) != 1 || l.Threshold != 2 {
		t.Fatalf("%+v, %v", l, err)
	}
	if signed, err := o.assert(a, l); err != nil || signed != nil {
		t.Fatalf("the same passkey twice: %v, %v", signed, err)
	}
	envelope := o.sign(l.Record, seal.Operator, o.operator)
	signed, err := o.registry.Pending.Sign(t.Context(), l.ID, api.PendingSignature{Envelope: envelope})
	if err != nil || signed == nil {
		t.Fatal(signed, err)
	}
	if _, err := o.record(l, signed); err != nil || o.registry.Consent("local:ann") != api.Irreversible {
		t.Error(err)
	}
}

// A touch proves presence, not reading: what cannot be taken back needs another key.
// proves R-B9
func TestOnePasskeyAloneSignsNothingIrreversible(t *testing.T) {
	o := newOffice(t)
	a := o.touch(1)
	l := o.submit("local:ann", api.Irreversible)
	signed, err := o.assert(a, l)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.record(l, signed); err == nil || !strings.Contains(err.Error(), "one passkey alone") {
		t.Errorf("%v", err)
	}
	if o.registry.Consent("local:ann") != api.Observe {
		t.Error("it is in force")
	}
	o.ceiling("local:ann", api.Irreversible) // the control: with the key of a file
	if o.registry.Consent("local:ann") != api.Irreversible {
		t.Error("the control")
	}
}

// A counter that does not rise refuses the record, and the next start.
// proves R-B9
func TestACopiedAuthenticatorIsRefused(t *testing.T) {
	o := newOffice(t)
	a := o.touch(1)
	sign := func() error {
		l := o.submit("local:ann", api.Stateful)
		signed, err := o.assert(a, l)
		if err != nil {
			return err
		}
		_, err = o.record(l, signed)
		return err
	}
	for range 2 {
		if err := sign(); err != nil {
			t.Fatal(err)
		}
	}
	a.Count = 0
	if err := sign(); api.CodeOf(err) != api.CodeIntegrity || !strings.Contains(err.Error(), "counter did not rise") {
		t.Errorf("%v", err)
	}
	if err := o.restart(); err != nil {
		t.Fatal(err)
	}
	a.Count = 1
	if err := sign(); err == nil || !strings.Contains(err.Error(), "counter did not rise") {
		t.Errorf("after a restart: %v", err)
	}
	if err := sign(); err != nil {
		t.Errorf("the control: %v", err)
	}
}

// Submitting refuses what could never come into force, and floods.
func TestPendingDecisionsAreBounded(t *testing.T) {
	o := newOffice(t)
	o.touch(1)
	tier := api.Stateful
	for name, rec := range map[string]api.OperatorRecord{
		"an unknown principal": {Verb: api.VerbCeilingSet, Principal: "agent:nobody", Ceiling: &tier},
		"a number":             {Verb: api.VerbCeilingSet, Principal: "local:ann", Ceiling: &tier, Number: 1},
		"a nonce":              {Verb: api.VerbCeilingSet, Principal: "local:ann", Ceiling: &tier, Nonce: strings.Repeat("0", 32)},
		"no verb":              {Principal: "local:ann"},
		"a long reason":        {Verb: api.VerbCeilingSet, Principal: "local:ann", Ceiling: &tier, Reason: strings.Repeat("x", api.MaxReason+1)},
	} {
		if _, err := o.registry.Pending.Put(t.Context(), "local:op", rec, nil); api.CodeOf(err) != api.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	for range maxPending {
		o.submit("local:ann", tier)
	}
	if _, err := o.registry.Pending.Put(t.Context(), "local:op", api.OperatorRecord{Verb: api.VerbCeilingSet, Principal: "local:ann", Ceiling: &tier}, nil); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("one too many: %v", err)
	}
	o.now = o.now.Add(api.OperatorRecordMaxAge)
	o.submit("local:ann", tier)
}

func encode(t *testing.T, rec api.OperatorRecord) []byte {
	t.Helper()
	payload, err := canon.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	return payload
}
