// Package seal signs documents and verifies signatures.
//
// It reads and creates ed25519 and ECDSA P-256 keys, wraps payloads in DSSE
// envelopes, verifies envelopes against a trust root with a threshold of distinct
// keys, passkeys (WebAuthn credentials) among them, and keeps the history of the
// service's key. It never interprets a signed document, reads the environment or prompts: a passphrase
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

// PayloadType is the type of a DSSE payload. It is part of the signed message, so
// a signature over one kind of document is not valid for another.
type PayloadType string

// The payload types.
const (
	Revision  PayloadType = "application/vnd.bailiwick.revision.v1+json"
	Manifest  PayloadType = "application/vnd.bailiwick.manifest.v1+json"
	Result    PayloadType = "application/vnd.bailiwick.result.v1+json"
	Statement PayloadType = "application/vnd.in-toto+json"
	Operator  PayloadType = "application/vnd.bailiwick.operator.v1+json"
	DeploySet PayloadType = "application/vnd.bailiwick.deploy-set.v1+json"
	Rotation  PayloadType = "application/vnd.bailiwick.rotation.v1+json"
	Login     PayloadType = "application/vnd.bailiwick.login.v1+json" // signed by a passkey, and never stored
)

// Signer signs with one key.
type Signer interface {
	KeyID() KeyID
	Public() []byte // as in Key.Public
	// Sign returns a signature in the format of the key's Algorithm.
	Sign(ctx context.Context, message []byte) ([]byte, error)
}

// memorySigner is a Signer with an ed25519 key in memory.
type memorySigner struct{ key ed25519.PrivateKey }

func (s memorySigner) Public() []byte { return s.key[ed25519.SeedSize:] }

func (s memorySigner) KeyID() KeyID { return IDOf(s.Public()) }

func (s memorySigner) Sign(ctx context.Context, message []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return ed25519.Sign(s.key, message), nil
}

// String keeps the key out of log lines that print the signer.
func (s memorySigner) String() string { return string(s.KeyID()) }

// GoString does the same for %#v.
func (s memorySigner) GoString() string { return string(s.KeyID()) }

// NewEphemeral returns an ed25519 signer whose key is never stored, such as a
// worker's.
func NewEphemeral() (Signer, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return memorySigner{key}, nil
}
