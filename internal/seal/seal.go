// Package seal signs documents and says who signed them.
//
// It holds ed25519 keys, opens signers by URI, wraps payloads in DSSE
// envelopes and verifies envelopes against a trust root with a threshold of
// distinct keys. It never decides what a signed document means, never reads
// the environment, and never asks a person anything itself: a passphrase
// comes through a callback.
//
// It carries R-B5 (signatures with a threshold), R-B9 (the deploy key needs
// a passphrase), R-A9 (the service's key) and the signing side of R-D2.
package seal

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
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
)

// KeyID names a public key: "ed25519:" and the first 32 hexadecimal digits of
// the SHA-256 of its 32 raw bytes.
type KeyID string

var keyIDPattern = regexp.MustCompile(`^ed25519:[0-9a-f]{32}$`)

// IDOf returns the id of a public key.
func IDOf(public ed25519.PublicKey) KeyID {
	sum := sha256.Sum256(public)
	return KeyID("ed25519:" + hex.EncodeToString(sum[:])[:32])
}

// UnmarshalText accepts only the canonical spelling.
func (id *KeyID) UnmarshalText(b []byte) error {
	if !keyIDPattern.Match(b) {
		return fmt.Errorf("key id %.80q: want ed25519: and 32 lower-case hexadecimal digits", b)
	}
	*id = KeyID(b)
	return nil
}

// Signer makes ed25519 signatures with one key, wherever the key is.
type Signer interface {
	KeyID() KeyID
	Public() ed25519.PublicKey
	Sign(ctx context.Context, message []byte) ([]byte, error)
}

// memorySigner is a Signer whose key is in this process.
type memorySigner struct{ key ed25519.PrivateKey }

func (s memorySigner) Public() ed25519.PublicKey {
	return ed25519.PublicKey(s.key[ed25519.SeedSize:])
}

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

// NewEphemeral returns a signer whose key exists in this process only and is
// gone with it, as a worker's is.
func NewEphemeral() (Signer, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return memorySigner{key}, nil
}
