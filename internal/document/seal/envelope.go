package seal

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// Why an envelope is refused. Any other error of Verify means that the envelope
// is malformed.
var (
	ErrUnsigned   = errors.New("not signed")
	ErrUnknownKey = errors.New("signed only by keys that are not in the trust root")
	ErrThreshold  = errors.New("too few signatures")
	ErrSignature  = errors.New("signature does not match")
)

const (
	// MaxEnvelope is the largest envelope, in bytes.
	MaxEnvelope = 32 << 20
	// MaxSignatures is the largest number of signatures in an envelope.
	MaxSignatures = 64
)

// Sign returns a DSSE envelope, as canonical JSON, of payload with one
// signature per signer.
func Sign(ctx context.Context, t PayloadType, payload []byte, signers ...Signer) ([]byte, error) {
	adapted := make([]dsse.Signer, 0, len(signers))
	for _, s := range signers {
		adapted = append(adapted, dsseSigner{s})
	}
	es, err := dsse.NewEnvelopeSigner(adapted...)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", t, err)
	}
	env, err := es.SignPayload(ctx, string(t), payload)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", t, err)
	}
	return canon.Marshal(env)
}

type dsseSigner struct{ Signer }

func (s dsseSigner) KeyID() (string, error) { return string(s.Signer.KeyID()), nil }

// Verify returns the payload of envelope and the ids of the keys of root that
// signed it, sorted. Each key counts once; keys outside root are ignored. A
// signature that claims a key of root and does not match is always an error.
func Verify(envelope []byte, t PayloadType, root TrustRoot) ([]byte, []KeyID, error) {
	e, err := Open(envelope, t)
	if err != nil {
		return nil, nil, err
	}
	if err := root.Validate(); err != nil {
		return nil, nil, err
	}
	ids, err := VerifyAll([]*Envelope{e}, root)
	if err != nil {
		return nil, nil, err
	}
	return e.payload, ids, nil
}

// VerifyDetached is Verify for a known payload whose signatures are spread over
// several envelopes. Each must carry exactly this payload.
func VerifyDetached(payload []byte, envelopes [][]byte, t PayloadType, root TrustRoot) ([]KeyID, error) {
	if err := root.Validate(); err != nil {
		return nil, err
	}
	all := make([]*Envelope, 0, len(envelopes))
	for _, raw := range envelopes {
		e, err := Open(raw, t)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(e.payload, payload) {
			return nil, errOther
		}
		all = append(all, e)
	}
	return VerifyAll(all, root)
}

var errOther = errors.New("envelope: signs another document")

// VerifyAll is Verify for one payload whose signatures are spread over several
// open envelopes. The caller has validated root.
func VerifyAll(envelopes []*Envelope, root TrustRoot) ([]KeyID, error) {
	known, foreign := map[KeyID]bool{}, 0
	for _, e := range envelopes {
		if !bytes.Equal(e.payload, envelopes[0].payload) {
			return nil, errOther
		}
		n, err := e.count(root, known)
		if err != nil {
			return nil, err
		}
		foreign += n
	}
	ids := make([]KeyID, 0, len(known))
	for id := range known {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	switch {
	case len(ids) >= root.Threshold:
		return ids, nil
	case len(ids) > 0:
		return ids, fmt.Errorf("%w: %d of %d", ErrThreshold, len(ids), root.Threshold)
	case foreign > 0:
		return nil, ErrUnknownKey
	}
	return nil, ErrUnsigned
}

// VerifyOne returns the payload of an envelope that carries exactly one
// signature, by the key that find returns for its id.
func VerifyOne(envelope []byte, t PayloadType, find func(KeyID) (Key, error)) ([]byte, error) {
	e, err := Open(envelope, t)
	if err != nil {
		return nil, err
	}
	return e.One(find)
}

// Payload returns the unverified payload of a well-formed envelope. Callers may
// only show it or verify it.
func Payload(envelope []byte, t PayloadType) ([]byte, error) {
	e, err := Open(envelope, t)
	if err != nil {
		return nil, err
	}
	return e.payload, nil
}

// Signers returns the key ids that an envelope claims.
func Signers(envelope []byte, t PayloadType) ([]KeyID, error) {
	e, err := Open(envelope, t)
	if err != nil {
		return nil, err
	}
	return e.Signers(), nil
}

// Envelope is a well-formed envelope. It verifies each of its signatures at most
// once, so that what it costs follows from its size. It is not safe for concurrent
// use.
type Envelope struct {
	payload    []byte
	message    []byte // what is signed; nil until the first signature is verified
	t          PayloadType
	signatures []signature
}

type signature struct {
	by      KeyID
	raw     []byte
	checked bool
	err     error
}

// Payload returns the unverified payload. Callers may only show it or verify it.
func (e *Envelope) Payload() []byte { return e.payload }

// Signatures returns how many signatures there are, verified or not.
func (e *Envelope) Signatures() int { return len(e.signatures) }

// Signers returns the key ids that e claims.
func (e *Envelope) Signers() []KeyID {
	ids := make([]KeyID, 0, len(e.signatures))
	for _, s := range e.signatures {
		ids = append(ids, s.by)
	}
	return ids
}

// One returns the payload if e carries exactly one signature, by the key that find
// returns for its id.
func (e *Envelope) One(find func(KeyID) (Key, error)) ([]byte, error) {
	if len(e.signatures) != 1 {
		return nil, fmt.Errorf("%w: %d signatures, want one", ErrUnsigned, len(e.signatures))
	}
	k, err := find(e.signatures[0].by)
	if err != nil {
		return nil, err
	}
	root := RootOf(k)
	if err := root.Validate(); err != nil {
		return nil, err
	}
	known := map[KeyID]bool{}
	if foreign, err := e.count(root, known); err != nil || foreign > 0 || len(known) != 1 {
		if err == nil {
			err = ErrUnknownKey
		}
		return nil, err
	}
	return e.payload, nil
}

// count adds the keys of root whose signatures match to known, and returns how
// many signatures are by other keys.
func (e *Envelope) count(root TrustRoot, known map[KeyID]bool) (foreign int, err error) {
	for i := range e.signatures {
		s := &e.signatures[i]
		key, ok := root.find(s.by)
		if !ok {
			foreign++
			continue
		}
		if err := e.check(s, key); err != nil {
			return 0, fmt.Errorf("envelope: key %s: %w", s.by, err)
		}
		known[s.by] = true
	}
	return foreign, nil
}

// check verifies a signature by the key that it claims. The id of a key follows
// from its bytes, so the result holds for every trust root.
func (e *Envelope) check(s *signature, key Key) error {
	if !s.checked {
		if e.message == nil {
			e.message = dsse.PAE(string(e.t), e.payload)
		}
		s.checked, s.err = true, key.Verify(e.message, s.raw)
	}
	return s.err
}

// Open reads an envelope without verifying its signatures.
func Open(envelope []byte, t PayloadType) (*Envelope, error) {
	if len(envelope) > MaxEnvelope {
		return nil, fmt.Errorf("envelope: larger than %d bytes", MaxEnvelope)
	}
	env, ok := parseCanonical(envelope)
	if !ok {
		env = dsse.Envelope{}
		if err := canon.DecodeExact(envelope, &env); err != nil {
			return nil, fmt.Errorf("envelope: %w", err)
		}
	}
	if env.PayloadType != string(t) {
		return nil, fmt.Errorf("envelope: payload type %.120q, want %s", env.PayloadType, t)
	}
	if len(env.Signatures) > MaxSignatures {
		return nil, fmt.Errorf("envelope: %d signatures, want at most %d", len(env.Signatures), MaxSignatures)
	}
	payload, err := decodeBase64(env.Payload)
	if err != nil {
		return nil, fmt.Errorf("envelope: payload: %w", err)
	}
	e := &Envelope{payload: payload, t: t}
	for i, s := range env.Signatures {
		if !keyIDPattern.MatchString(s.KeyID) {
			return nil, fmt.Errorf("envelope: signature %d: key id %.80q is malformed", i+1, s.KeyID)
		}
		if KeyID(s.KeyID).Algorithm() == Passkey && t != Operator {
			return nil, fmt.Errorf("envelope: signature %d: key %s is a passkey, which signs operator records only", i+1, s.KeyID)
		}
		raw, err := decodeBase64(s.Sig)
		if err != nil {
			return nil, fmt.Errorf("envelope: signature %d: %w", i+1, err)
		}
		if err := checkSignature(KeyID(s.KeyID).Algorithm(), raw); err != nil {
			return nil, fmt.Errorf("envelope: signature %d: %w", i+1, err)
		}
		e.signatures = append(e.signatures, signature{by: KeyID(s.KeyID), raw: raw})
	}
	return e, nil
}

// decodeBase64 accepts one encoding of each value: standard alphabet, padded, no
// line breaks, no stray bits.
func decodeBase64(s string) ([]byte, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	// The strict decoder skips line breaks.
	if err != nil || strings.ContainsAny(s, "\r\n") {
		return nil, errors.New("not canonical base64")
	}
	return b, nil
}
