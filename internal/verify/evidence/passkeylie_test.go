package evidence

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/softkey"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// byTouch is the number of the record that a passkey signs in these tests: a ceiling and
// the vote of another person come before it.
const byTouch = 3

// untilTouched writes a run up to the second of two votes. It returns that one, submitted, and
// its payload. finishTouched writes the rest.
func untilTouched(t testing.TB, change func(r *api.OperatorRecord)) (*story, api.OperatorRecord, []byte) {
	t.Helper()
	s := newStory(t)
	s.second = s.newKey()
	s.submit(shipping, "", 0)
	a := of("a", 1)
	s.carry(a, `{"risk":"low"}`)
	d := s.askFor(s.askOf("ship", a))
	s.vote(api.VerbApprove, "human:bob", shipped, d, s.operator)
	rec := api.OperatorRecord{Verb: api.VerbApprove, Principal: "human:eve", Approval: shipped, Content: d, Nonce: strings.Repeat("5e", 16)}
	if change != nil {
		change(&rec)
	}
	return s, rec, s.pending(&rec)
}

// pending completes a record, as the service does when it is submitted, and returns its payload.
func (s *story) pending(rec *api.OperatorRecord) []byte {
	rec.V, rec.Service, rec.Number, rec.Previous, rec.At = 1, string(s.first.KeyID()), uint64(len(s.records)+1), s.recordHead, s.at
	payload, err := canon.Marshal(rec)
	s.must(err)
	return payload
}

// recordSigned puts a record in force that has these signatures, right or wrong: the log
// names the record and the keys, and is signed as any other.
func (s *story) recordSigned(rec api.OperatorRecord, payload []byte, signatures map[seal.KeyID][]byte) {
	envelope, err := seal.Assemble(seal.Operator, payload, signatures)
	s.must(err)
	s.records, s.recordHead = append(s.records, s.put(envelope)), api.DigestOf(payload)
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(signatures)) {
		ids = append(ids, string(id))
	}
	s.write(record.Entry{
		Kind: record.KindOperatorRecorded, Principal: "local:op", Refs: map[string]api.Digest{record.RefRecord: s.recordHead}, Detail: record.DecisionOf(&rec, ids),
	})
}

// finishTouched ends the run. It returns the bundle, and a trust file whose operators are two
// keys of files and a passkey.
func finishTouched(s *story, k seal.Key) (*bundle.Bundle, Trust) {
	s.shipEnd(record.KindTaskDone, "")
	trust := s.trust()
	k.Principal = "human:eve"
	trust.Operators.Keys = append(trust.Operators.Keys, k)
	return s.bundle(bundle.Case{Run: "r1"}), trust
}

// wantRefused fails the test unless exactly the row of authorisation fails, for record n,
// with one of these reasons. Thus no refusal is one of the log, whose proofs hold.
func wantRefused(t *testing.T, name string, r report.Report, of string, reasons ...string) {
	t.Helper()
	for _, row := range r.Rows {
		if (row.Status == report.Fail) != (row.Row == report.RowAuthorisation) {
			t.Errorf("%s: %s is %s: %s", name, row.Row, row.Status, row.Why)
		}
	}
	why := r.Row(report.RowAuthorisation).Why
	_, reason, found := strings.Cut(why, of)
	if !found || !slices.ContainsFunc(reasons, func(want string) bool { return strings.Contains(reason, want) }) {
		t.Errorf("%s: the row says %q, want %q and one of %q", name, why, of, reasons)
	}
}

// encoded returns the signature in an envelope.
func (s *story) encoded(a seal.Assertion) []byte {
	raw, err := canon.Marshal(a)
	s.must(err)
	return raw
}

// A service that records a vote whose assertion lies, in a log that is consistent, is found
// offline: the verifier refuses that decision, for that reason. The cases are those that
// go-webauthn is asked about. Controls: the honest ones among them verify.
//
// proves R-B9, R-A7
func TestEachLieOfAPasskeyIsFoundOffline(t *testing.T) {
	for _, ed := range []bool{false, true} {
		for _, c := range softkey.Cases() {
			if c.ES256 && ed {
				continue
			}
			s, rec, payload := untilTouched(t, nil)
			m, err := c.Make(ed, dsse.PAE(string(seal.Operator), payload))
			s.must(err)
			s.recordSigned(rec, payload, map[seal.KeyID][]byte{m.Key.ID: s.encoded(m.Assertion)})
			b, trust := finishTouched(s, m.Key)
			r := Verify(reread(t, b), trust, Options{})
			if c.Want != "" {
				wantRefused(t, c.Name, r, "operator record 3: ", c.Want)
			} else if !r.Good(report.ClaimNone) {
				t.Errorf("%s:\n%s", c.Name, r.Text())
			}
		}
	}
}

// What a passkey signed for one record is found out in another one: with another nonce, at
// another number, about something else. Controls: the same record with its own signature.
//
// proves R-B9, R-A7
func TestAPasskeySignsOneRecord(t *testing.T) {
	for name, l := range map[string]struct {
		of, words string
		change    func(r *api.OperatorRecord) // before it is signed
		forge     func(r *api.OperatorRecord) // afterwards
		write     func(s *story, a *softkey.Authenticator, k seal.Key, rec api.OperatorRecord, payload, raw []byte)
	}{
		"honest": {},
		"with the key of a file": {write: func(s *story, _ *softkey.Authenticator, k seal.Key, rec api.OperatorRecord, payload, raw []byte) {
			file, err := s.second.Sign(s.t.Context(), dsse.PAE(string(seal.Operator), payload))
			s.must(err)
			s.recordSigned(rec, payload, map[seal.KeyID][]byte{k.ID: raw, s.second.KeyID(): file})
		}},
		"a counter that rises": {write: func(s *story, a *softkey.Authenticator, k seal.Key, rec api.OperatorRecord, payload, raw []byte) {
			s.recordSigned(rec, payload, map[seal.KeyID][]byte{k.ID: raw})
			s.touchAgain(a, k)
		}},

		"an old nonce":     {words: "another challenge", forge: func(r *api.OperatorRecord) { r.Nonce = strings.Repeat("01", 16) }},
		"another approval": {words: "another challenge", forge: func(r *api.OperatorRecord) { r.Verb = api.VerbDeny }},
		"another person":   {words: "another challenge", forge: func(r *api.OperatorRecord) { r.Principal = "human:ann" }},
		"another reason":   {words: "another challenge", forge: func(r *api.OperatorRecord) { r.Reason = "as said" }},
		"no nonce":         {words: "not submitted first", change: func(r *api.OperatorRecord) { r.Nonce = "" }},
		"a record once more": {of: "operator record 4", words: "is not the one that the log names", write: func(s *story, _ *softkey.Authenticator, k seal.Key, rec api.OperatorRecord, payload, raw []byte) {
			s.recordSigned(rec, payload, map[seal.KeyID][]byte{k.ID: raw})
			stranger, err := s.newKey().Sign(s.t.Context(), nil) // makes it another envelope: readers refuse one that is named twice
			s.must(err)
			rec.Number++
			s.recordSigned(rec, payload, map[seal.KeyID][]byte{k.ID: raw, s.newKey().KeyID(): stranger})
		}},
		"a counter that does not rise": {of: "operator record 4", words: "counter did not rise", write: func(s *story, a *softkey.Authenticator, k seal.Key, rec api.OperatorRecord, payload, raw []byte) {
			s.recordSigned(rec, payload, map[seal.KeyID][]byte{k.ID: raw})
			a.Stuck = true
			s.touchAgain(a, k)
		}},
		"another passkey": {words: "not in the trust root", write: func(s *story, a *softkey.Authenticator, _ seal.Key, rec api.OperatorRecord, payload, _ []byte) {
			twin, err := softkey.New(false)
			s.must(err)
			other, err := twin.Key("eve")
			s.must(err)
			s.recordSigned(rec, payload, map[seal.KeyID][]byte{other.ID: s.touch(twin, other, payload)})
		}},
		"a flipped bit beside a signature that suffices": {words: "signature does not match", write: func(s *story, _ *softkey.Authenticator, k seal.Key, rec api.OperatorRecord, payload, raw []byte) {
			file, err := s.second.Sign(s.t.Context(), dsse.PAE(string(seal.Operator), payload))
			s.must(err)
			a, err := seal.ParseAssertion(raw)
			s.must(err)
			a.AuthenticatorData[36] ^= 1
			s.recordSigned(rec, payload, map[seal.KeyID][]byte{k.ID: s.encoded(a), s.second.KeyID(): file})
		}},
	} {
		s, rec, payload := untilTouched(t, l.change)
		a, err := softkey.New(false)
		s.must(err)
		k, err := a.Key("eve")
		s.must(err)
		raw := s.touch(a, k, payload)
		if l.forge != nil {
			l.forge(&rec)
			payload = s.pending(&rec)
		}
		if l.write != nil {
			l.write(s, a, k, rec, payload, raw)
		} else {
			s.recordSigned(rec, payload, map[seal.KeyID][]byte{k.ID: raw})
		}
		b, trust := finishTouched(s, k)
		r := Verify(reread(t, b), trust, Options{})
		if l.of == "" {
			l.of = "operator record 3: "
		}
		if l.words != "" {
			wantRefused(t, name, r, l.of, l.words)
		} else if !r.Good(report.ClaimNone) {
			t.Errorf("%s:\n%s", name, r.Text())
		}
	}
}

// touch returns the signature of a passkey over a payload.
func (s *story) touch(a *softkey.Authenticator, k seal.Key, payload []byte) []byte {
	assertion, err := a.Assert(seal.Challenge(seal.Operator, payload))
	s.must(err)
	raw, err := assertion.Normal(k)
	s.must(err)
	return raw
}

// touchAgain records a ceiling that a passkey signs.
func (s *story) touchAgain(a *softkey.Authenticator, k seal.Key) {
	tier := api.Stateful
	rec := api.OperatorRecord{Verb: api.VerbCeilingSet, Principal: "local:bob", Ceiling: &tier, Nonce: strings.Repeat("07", 16)}
	payload := s.pending(&rec)
	s.recordSigned(rec, payload, map[seal.KeyID][]byte{k.ID: s.touch(a, k, payload)})
}

// Every bit of the four parts of an assertion in an exported bundle counts, and one bit of
// every byte of its encoding in the envelope. The log names the record and not its
// signatures, so a bundle with another signature has the same log, entries and proofs, and
// nothing but the signature can be what is refused. No flipped bit gives an equal assertion:
// the encoding has one spelling, and of ECDSA only the low S. Control: the bundle without a
// flipped bit.
//
// proves R-B9, R-A7
func TestEveryFlippedBitOfAPasskeyIsFoundOffline(t *testing.T) {
	for name, ed := range map[string]bool{"ES256": false, "EdDSA": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flipEveryBit(t, ed)
		})
	}
}

func flipEveryBit(t *testing.T, ed bool) {
	s, rec, payload := untilTouched(t, nil)
	a, err := softkey.New(ed)
	s.must(err)
	k, err := a.Key("eve")
	s.must(err)
	raw := s.touch(a, k, payload)
	s.recordSigned(rec, payload, map[seal.KeyID][]byte{k.ID: raw})
	honest, trust := finishTouched(s, k)
	if r := Verify(reread(t, honest), trust, Options{}); !r.Good(report.ClaimNone) {
		t.Fatalf("the control:\n%s", r.Text())
	}
	with := func(raw []byte) report.Report {
		envelope, err := seal.Assemble(seal.Operator, payload, map[seal.KeyID][]byte{k.ID: raw})
		s.must(err)
		b := *honest
		b.Documents, b.Case.Records = maps.Clone(b.Documents), slices.Clone(b.Case.Records)
		delete(b.Documents, b.Case.Records[byTouch-1])
		b.Case.Records[byTouch-1] = api.DigestOf(envelope)
		b.Documents[b.Case.Records[byTouch-1]] = envelope
		return Verify(reread(t, &b), trust, Options{})
	}
	of, flips := "operator record 3: envelope: ", 0
	const mismatch = "signature does not match"
	for _, part := range []struct {
		name    string
		of      func(*seal.Assertion) *[]byte
		reasons []string
	}{
		{"authenticator data", func(a *seal.Assertion) *[]byte { return &a.AuthenticatorData }, []string{"assertion: authenticator data: ", mismatch}},
		{"client data", func(a *seal.Assertion) *[]byte { return &a.ClientDataJSON }, []string{"assertion: client data: ", mismatch}},
		{"credential", func(a *seal.Assertion) *[]byte { return &a.Credential }, []string{"of another credential"}},
		{"signature", func(a *seal.Assertion) *[]byte { return &a.Signature }, []string{mismatch, "not an ECDSA signature", "high S"}},
	} {
		assertion, err := seal.ParseAssertion(raw)
		s.must(err)
		bits := part.of(&assertion)
		for i := 0; i < 8*len(*bits); i += 2**every - 1 { // odd, so that each bit of a byte is tried in some
			*bits = bytes.Clone(*bits)
			(*bits)[i/8] ^= 1 << (i % 8)
			wantRefused(t, part.name, with(s.encoded(assertion)), of, part.reasons...)
			(*bits)[i/8] ^= 1 << (i % 8)
			flips++
		}
	}
	for i := range len(raw) / *every {
		encoding := bytes.Clone(raw)
		encoding[i**every] ^= 1 << (i % 8)
		wantRefused(t, "encoding", with(encoding), of, "assertion: ")
	}
	t.Logf("%d bits and %d bytes of the encoding, each refused", flips, len(raw) / *every)
}
