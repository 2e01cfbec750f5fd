package seal

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/bailiwick-dev/bailiwick/internal/canon"
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
	payload, err := Payload(envelope, t)
	if err != nil {
		return nil, nil, err
	}
	ids, err := VerifyDetached(payload, [][]byte{envelope}, t, root)
	if err != nil {
		return nil, nil, err
	}
	return payload, ids, nil
}

// VerifyDetached is Verify for a known payload whose signatures are spread over
// several envelopes. Each must carry exactly this payload.
func VerifyDetached(payload []byte, envelopes [][]byte, t PayloadType, root TrustRoot) ([]KeyID, error) {
	if err := root.Validate(); err != nil {
		return nil, err
	}
	known, foreign := map[KeyID]bool{}, 0
	for _, raw := range envelopes {
		env, body, err := decode(raw, t)
		if err != nil {
			return nil, err
		}
		if string(body) != string(payload) {
			return nil, errors.New("envelope: signs another document")
		}
		n, err := env.count(body, root, known)
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
// signature, by the key that find returns for its id. It parses the envelope
// once.
func VerifyOne(envelope []byte, t PayloadType, find func(KeyID) (Key, error)) ([]byte, error) {
	env, payload, err := decode(envelope, t)
	if err != nil {
		return nil, err
	}
	if len(env.Signatures) != 1 {
		return nil, fmt.Errorf("%w: %d signatures, want one", ErrUnsigned, len(env.Signatures))
	}
	k, err := find(KeyID(env.Signatures[0].KeyID))
	if err != nil {
		return nil, err
	}
	root := RootOf(k)
	if err := root.Validate(); err != nil {
		return nil, err
	}
	known := map[KeyID]bool{}
	if foreign, err := env.count(payload, root, known); err != nil || foreign > 0 || len(known) != 1 {
		if err == nil {
			err = ErrUnknownKey
		}
		return nil, err
	}
	return payload, nil
}

// Payload returns the unverified payload of a well-formed envelope. Callers may
// only show it or verify it.
func Payload(envelope []byte, t PayloadType) ([]byte, error) {
	_, body, err := decode(envelope, t)
	return body, err
}

// Signers returns the key ids that an envelope claims.
func Signers(envelope []byte, t PayloadType) ([]KeyID, error) {
	env, _, err := decode(envelope, t)
	if err != nil {
		return nil, err
	}
	ids := make([]KeyID, 0, len(env.Signatures))
	for _, s := range env.Signatures {
		ids = append(ids, KeyID(s.KeyID))
	}
	return ids, nil
}

// checked is a well-formed envelope.
type checked struct {
	dsse.Envelope
	raw [][]byte // the decoded signatures
}

// count adds the keys of root whose signatures match to known, and returns how
// many signatures are by other keys.
func (env *checked) count(payload []byte, root TrustRoot, known map[KeyID]bool) (foreign int, err error) {
	message := dsse.PAE(env.PayloadType, payload)
	for i, s := range env.Signatures {
		key, ok := root.find(KeyID(s.KeyID))
		if !ok {
			foreign++
			continue
		}
		if err := key.Verify(message, env.raw[i]); err != nil {
			return 0, fmt.Errorf("envelope: key %s: %w", s.KeyID, err)
		}
		known[KeyID(s.KeyID)] = true
	}
	return foreign, nil
}

func decode(envelope []byte, t PayloadType) (*checked, []byte, error) {
	if len(envelope) > MaxEnvelope {
		return nil, nil, fmt.Errorf("envelope: larger than %d bytes", MaxEnvelope)
	}
	env := &checked{}
	var ok bool
	if env.Envelope, ok = parseCanonical(envelope); !ok {
		env.Envelope = dsse.Envelope{}
		if err := canon.DecodeExact(envelope, &env.Envelope); err != nil {
			return nil, nil, fmt.Errorf("envelope: %w", err)
		}
	}
	if env.PayloadType != string(t) {
		return nil, nil, fmt.Errorf("envelope: payload type %.120q, want %s", env.PayloadType, t)
	}
	if len(env.Signatures) > MaxSignatures {
		return nil, nil, fmt.Errorf("envelope: %d signatures, want at most %d", len(env.Signatures), MaxSignatures)
	}
	payload, err := decodeBase64(env.Payload)
	if err != nil {
		return nil, nil, fmt.Errorf("envelope: payload: %w", err)
	}
	for i, s := range env.Signatures {
		if !keyIDPattern.MatchString(s.KeyID) {
			return nil, nil, fmt.Errorf("envelope: signature %d: key id %.80q is malformed", i+1, s.KeyID)
		}
		raw, err := decodeBase64(s.Sig)
		if err != nil {
			return nil, nil, fmt.Errorf("envelope: signature %d: %w", i+1, err)
		}
		if err := checkSignature(KeyID(s.KeyID).Algorithm(), raw); err != nil {
			return nil, nil, fmt.Errorf("envelope: signature %d: %w", i+1, err)
		}
		env.raw = append(env.raw, raw)
	}
	return env, payload, nil
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
