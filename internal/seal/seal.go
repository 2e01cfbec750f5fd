// Package seal signs documents and says who signed them.
//
// It holds ed25519 and ECDSA P-256 keys, opens signers by URI, wraps payloads
// in DSSE envelopes, verifies envelopes against a trust root with a threshold
// of distinct keys, and keeps the history of the service's key. It never decides what a signed document means, never reads
// the environment, and never asks a person anything itself: a passphrase
// comes through a callback.
//
// It carries R-B5 (signatures with a threshold), R-B9 (the deploy key needs
// a passphrase), R-A9 (the service's keys) and the signing side of R-D2.
package seal

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
)

// PayloadType says what a DSSE payload is. It is part of what is signed, so a
// signature over one kind of document is worth nothing for another.
type PayloadType string

// The payload types.
const (
	Revision  PayloadType = "application/vnd.bailiwick.revision.v1+json"
	Manifest  PayloadType = "application/vnd.bailiwick.manifest.v1+json"
	Result    PayloadType = "application/vnd.bailiwick.result.v1+json"
	Statement PayloadType = "application/vnd.in-toto+json"
	Operator  PayloadType = "application/vnd.bailiwick.operator.v1+json"
	Rotation  PayloadType = "application/vnd.bailiwick.rotation.v1+json"
)

// Signer makes signatures with one key, wherever the key is.
type Signer interface {
	KeyID() KeyID
	Public() []byte // in the form that Key has it
	// Sign returns a signature in the form that the key's Algorithm names.
	Sign(ctx context.Context, message []byte) ([]byte, error)
}

// memorySigner is a Signer whose ed25519 key is in this process.
type memorySigner struct{ key ed25519.PrivateKey }

func (s memorySigner) Public() []byte { return s.key[ed25519.SeedSize:] }

func (s memorySigner) KeyID() KeyID { return IDOf(s.Public()) }

func (s memorySigner) Sign(ctx context.Context, message []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return ed25519.Sign(s.key, message), nil
}

// String keeps a key out of a log line that prints its signer.
func (s memorySigner) String() string { return string(s.KeyID()) }

// GoString does the same for %#v.
func (s memorySigner) GoString() string { return string(s.KeyID()) }

// NewEphemeral returns an ed25519 signer whose key exists in this process only and is
// gone with it, as a worker's is.
func NewEphemeral() (Signer, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return memorySigner{key}, nil
}
