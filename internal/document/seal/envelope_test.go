package seal

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

func newSigner(t testing.TB) Signer {
	t.Helper()
	s, err := NewEphemeral()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func sign(t *testing.T, pt PayloadType, payload string, signers ...Signer) []byte {
	t.Helper()
	b, err := Sign(t.Context(), pt, []byte(payload), signers...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// edit changes an envelope as an attacker would and encodes it again, well.
func edit(t *testing.T, envelope []byte, change func(*dsse.Envelope)) []byte {
	t.Helper()
	var e dsse.Envelope
	if err := json.Unmarshal(envelope, &e); err != nil {
		t.Fatal(err)
	}
	change(&e)
	b, err := canon.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// proves R-B5
func TestVerifyCountsDistinctKnownKeysAgainstTheThreshold(t *testing.T) {
	ann, bob, eve := newSigner(t), newSigner(t), newSigner(t)
	two := TrustRoot{V: 1, Threshold: 2, Keys: []Key{KeyOf(ann, "ann"), KeyOf(bob, "bob")}}
	one := RootOf(KeyOf(ann, "ann"))
	const doc = `{"v":1}`

	tests := []struct {
		name     string
		envelope []byte
		root     TrustRoot
		want     error
		signers  int
	}{
		{"both keys", sign(t, Revision, doc, ann, bob), two, nil, 2},
		{"one key where one is enough", sign(t, Revision, doc, ann), one, nil, 1},
		{"an unknown key beside a known one", sign(t, Revision, doc, eve, ann), one, nil, 1},
		{"one of two", sign(t, Revision, doc, ann), two, ErrThreshold, 0},
		{"the same key twice", sign(t, Revision, doc, ann, ann), two, ErrThreshold, 0},
		{"a known and an unknown key", sign(t, Revision, doc, ann, eve), two, ErrThreshold, 0},
		{"only an unknown key", sign(t, Revision, doc, eve), one, ErrUnknownKey, 0},
		{"signatures stripped", edit(t, sign(t, Revision, doc, ann), func(e *dsse.Envelope) { e.Signatures = []dsse.Signature{} }), one, ErrUnsigned, 0},
		{"unknown key under a known key's id", edit(t, sign(t, Revision, doc, eve), func(e *dsse.Envelope) { e.Signatures[0].KeyID = string(ann.KeyID()) }), one, ErrSignature, 0},
		{"payload replaced", edit(t, sign(t, Revision, doc, ann), func(e *dsse.Envelope) { e.Payload = base64.StdEncoding.EncodeToString([]byte(`{"v":2}`)) }), one, ErrSignature, 0},
		{"payload type replaced", edit(t, sign(t, Result, doc, ann), func(e *dsse.Envelope) { e.PayloadType = string(Revision) }), one, ErrSignature, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			payload, ids, err := Verify(tt.envelope, Revision, tt.root)
			if !errors.Is(err, tt.want) {
				t.Fatalf("err = %v, want %v", err, tt.want)
			}
			if err != nil {
				if payload != nil || ids != nil {
					t.Fatal("a refused envelope gave its payload")
				}
				return
			}
			if string(payload) != doc || len(ids) != tt.signers || !slices.IsSorted(ids) {
				t.Fatalf("payload %q, ids %v", payload, ids)
			}
		})
	}
}

func TestVerifyRefusesAnotherPayloadType(t *testing.T) {
	s := newSigner(t)
	_, _, err := Verify(sign(t, Result, "{}", s), Revision, RootOf(KeyOf(s, "")))
	if err == nil || !strings.Contains(err.Error(), "payload type") {
		t.Fatalf("err = %v", err)
	}
}

func TestSignaturesMaySpreadOverEnvelopesOfOnePayload(t *testing.T) {
	ann, bob := newSigner(t), newSigner(t)
	root := TrustRoot{V: 1, Threshold: 2, Keys: []Key{KeyOf(ann, ""), KeyOf(bob, "")}}
	a, b := sign(t, Revision, "{}", ann), sign(t, Revision, "{}", bob)
	if ids, err := VerifyDetached([]byte("{}"), [][]byte{a, b}, Revision, root); err != nil || len(ids) != 2 {
		t.Fatalf("ids %v, err %v", ids, err)
	}
	if _, err := VerifyDetached([]byte("{}"), [][]byte{a, a}, Revision, root); !errors.Is(err, ErrThreshold) {
		t.Fatalf("one envelope twice: err = %v, want %v", err, ErrThreshold)
	}
	other := sign(t, Revision, `{"v":2}`, bob)
	if _, err := VerifyDetached([]byte("{}"), [][]byte{a, other}, Revision, root); err == nil || errors.Is(err, ErrThreshold) {
		t.Fatalf("an envelope of another payload: err = %v", err)
	}
	if _, err := VerifyDetached([]byte("{}"), nil, Revision, root); !errors.Is(err, ErrUnsigned) {
		t.Fatalf("no envelope: err = %v, want %v", err, ErrUnsigned)
	}
}

func TestVerifyRefusesMalformedEnvelopes(t *testing.T) {
	s := newSigner(t)
	root := RootOf(KeyOf(s, ""))
	good := sign(t, Revision, "{}", s)
	if _, _, err := Verify(good, Revision, root); err != nil {
		t.Fatalf("positive control: %v", err)
	}
	sig := func(v string) func(*dsse.Envelope) { return func(e *dsse.Envelope) { e.Signatures[0].Sig = v } }
	bad := map[string][]byte{
		"empty":                nil,
		"not JSON":             []byte("signed, honest"),
		"white space":          append([]byte(" "), good...),
		"line feed":            append(slices.Clone(good), '\n'),
		"two values":           append(slices.Clone(good), good...),
		"unknown member":       []byte(strings.Replace(string(good), `{"payload"`, `{"kid":"x","payload"`, 1)),
		"member in other case": []byte(strings.Replace(string(good), `{"payload"`, `{"Payload":"e30=","payload"`, 1)),
		"duplicate member":     []byte(strings.Replace(string(good), `{"payload"`, `{"payload":"e30=","payload"`, 1)),
		"url alphabet":         edit(t, good, sig(base64.URLEncoding.EncodeToString([]byte(strings.Repeat("\xff", 64))))),
		"no padding":           edit(t, good, func(e *dsse.Envelope) { e.Payload = "e30" }),
		"stray bits":           edit(t, good, func(e *dsse.Envelope) { e.Payload = "e31=" }),
		"line break in base64": edit(t, good, func(e *dsse.Envelope) { e.Payload = "e3\n0=" }),
		"short signature":      edit(t, good, sig("AAAA")),
		"empty signature":      edit(t, good, sig("")),
		"key id missing":       edit(t, good, func(e *dsse.Envelope) { e.Signatures[0].KeyID = "" }),
		"key id in upper case": edit(t, good, func(e *dsse.Envelope) { e.Signatures[0].KeyID = strings.ToUpper(e.Signatures[0].KeyID) }),
		"65 signatures": edit(t, good, func(e *dsse.Envelope) {
			for range 64 {
				e.Signatures = append(e.Signatures, e.Signatures[0])
			}
		}),
	}
	for name, b := range bad {
		if _, _, err := Verify(b, Revision, root); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestVerifyRefusesATrustRootThatWouldAcceptAnything(t *testing.T) {
	s := newSigner(t)
	env := sign(t, Revision, "{}", s)
	for name, root := range map[string]TrustRoot{
		"zero":               {},
		"threshold 0":        {V: 1, Keys: []Key{KeyOf(s, "")}},
		"threshold below 0":  {V: 1, Keys: []Key{KeyOf(s, "")}, Threshold: -1},
		"threshold too high": {V: 1, Keys: []Key{KeyOf(s, "")}, Threshold: 2},
		"no keys":            {V: 1, Threshold: 1},
	} {
		if _, _, err := Verify(env, Revision, root); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestSignRefusesToMakeAnEnvelopeWithoutSigners(t *testing.T) {
	if _, err := Sign(t.Context(), Revision, []byte("{}")); err == nil {
		t.Fatal("made an unsigned envelope")
	}
}

// publicVerifier lets the public DSSE library check what this package signs.
type publicVerifier struct{ key ed25519.PublicKey }

func (v publicVerifier) KeyID() (string, error)   { return string(IDOf(v.key)), nil }
func (v publicVerifier) Public() crypto.PublicKey { return v.key }
func (v publicVerifier) Verify(_ context.Context, data, sig []byte) error {
	if !ed25519.Verify(v.key, data, sig) {
		return ErrSignature
	}
	return nil
}

func TestEnvelopesVerifyWithThePublicLibrary(t *testing.T) {
	s := newSigner(t)
	var env dsse.Envelope
	if err := json.Unmarshal(sign(t, Statement, "{}", s), &env); err != nil {
		t.Fatal(err)
	}
	v, err := dsse.NewEnvelopeVerifier(publicVerifier{s.Public()})
	if err != nil {
		t.Fatal(err)
	}
	if keys, err := v.Verify(t.Context(), &env); err != nil || len(keys) != 1 {
		t.Fatalf("keys %v, err %v", keys, err)
	}
}

// FuzzVerify feeds hostile envelopes: none may pass but the one that was
// signed, byte for byte.
func FuzzVerify(f *testing.F) {
	s, err := NewEphemeral()
	if err != nil {
		f.Fatal(err)
	}
	good, err := Sign(f.Context(), Revision, []byte(`{"v":1}`), s)
	if err != nil {
		f.Fatal(err)
	}
	root := RootOf(KeyOf(s, ""))
	f.Add(good)
	f.Add([]byte(`{"payload":"","payloadType":"application/vnd.bailiwick.revision.v1+json","signatures":[]}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, err := Verify(b, Revision, root)
		if (err == nil) != (string(b) == string(good)) {
			t.Fatalf("err = %v for %q", err, b)
		}
	})
}

// An open envelope verifies each signature once, for however many trust roots.
func TestSignaturesAreVerifiedOnceForAllRoots(t *testing.T) {
	k, other := newSigner(t), newSigner(t)
	raw, err := Sign(t.Context(), Manifest, []byte("{}"), k)
	if err != nil {
		t.Fatal(err)
	}
	e, err := Open(raw, Manifest)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if ids, err := VerifyAll([]*Envelope{e}, RootOf(KeyOf(k, ""))); err != nil || len(ids) != 1 {
			t.Fatal(ids, err)
		}
		e.signatures[0].raw[0] ^= 1 // not looked at again
	}
	if _, err := VerifyAll([]*Envelope{e}, RootOf(KeyOf(other, ""))); !errors.Is(err, ErrUnknownKey) {
		t.Error(err)
	}
	forged, err := Open(raw, Manifest)
	if err != nil {
		t.Fatal(err)
	}
	forged.signatures[0].raw[0] ^= 1
	for range 2 { // the control: what failed once keeps failing
		if _, err := VerifyAll([]*Envelope{forged}, RootOf(KeyOf(k, ""))); !errors.Is(err, ErrSignature) {
			t.Error(err)
		}
	}
}
