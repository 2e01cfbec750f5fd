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

// Why an envelope is not accepted. Every other error of Verify means that
// the envelope is malformed.
var (
	ErrUnsigned   = errors.New("not signed")
	ErrUnknownKey = errors.New("signed only by keys that the trust root does not know")
	ErrThreshold  = errors.New("too few signatures")
	ErrSignature  = errors.New("signature does not match")
)

const (
	// MaxEnvelope is how large an envelope may be.
	MaxEnvelope = 32 << 20
	// MaxSignatures is how many signatures an envelope may carry.
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
// signed it, sorted. Each key counts once; keys that root does not know are
// ignored. A signature that claims a known key and does not match is an
// error, whatever else the envelope carries.
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

// VerifyDetached is Verify for a payload that is known and whose signatures
// are spread over several envelopes. Each must carry exactly this payload.
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

// Payload returns the payload of a well-formed envelope without looking at
// its signatures. Nothing may be done with it but show it or verify it.
func Payload(envelope []byte, t PayloadType) ([]byte, error) {
	_, body, err := decode(envelope, t)
	return body, err
}

// Signers returns the key ids that an envelope claims, known or not.
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

// checked is an envelope whose form is known to be right.
type checked struct {
	dsse.Envelope
	raw [][]byte // the decoded signatures
}

// count puts the known keys whose signatures match into known, and returns
// how many signatures are by others.
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
	if env.Envelope, ok = spelt(envelope); !ok {
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

// decodeBase64 accepts one spelling of every value: standard alphabet, padded,
// no line breaks, no stray bits.
func decodeBase64(s string) ([]byte, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	// The strict decoder takes one spelling but for line breaks, which it skips.
	if err != nil || strings.ContainsAny(s, "\r\n") {
		return nil, errors.New("not canonical base64")
	}
	return b, nil
}
