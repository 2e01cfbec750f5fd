package seal

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
)

// ecdsaSigner is a Signer with an ECDSA P-256 key in memory.
type ecdsaSigner struct {
	key    *ecdsa.PrivateKey
	public []byte
}

func newECDSASigner(key *ecdsa.PrivateKey) (Signer, error) {
	if key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("ECDSA key on curve %s, want P-256", key.Curve.Params().Name)
	}
	public, err := key.PublicKey.Bytes()
	if err != nil {
		return nil, errors.New("ECDSA key whose public half is not a point of P-256")
	}
	return ecdsaSigner{key, public}, nil
}

func (s ecdsaSigner) Public() []byte { return s.public }

func (s ecdsaSigner) KeyID() KeyID { return IDOf(s.public) }

func (s ecdsaSigner) Sign(ctx context.Context, message []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(message)
	signature, err := ecdsa.SignASN1(rand.Reader, s.key, sum[:])
	if err != nil {
		return nil, fmt.Errorf("sign with key %s: %w", s.KeyID(), err)
	}
	return lowS(signature)
}

// String keeps the key out of log lines that print the signer.
func (s ecdsaSigner) String() string { return string(s.KeyID()) }

// GoString does the same for %#v.
func (s ecdsaSigner) GoString() string { return string(s.KeyID()) }

func generate(a Algorithm) (crypto.Signer, error) {
	switch a {
	case "", Ed25519:
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	case ECDSAP256:
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case Passkey: // authenticators create these
	}
	return nil, fmt.Errorf("algorithm %q: want %s or %s", a, Ed25519, ECDSAP256)
}

// signerOf returns the Signer that signs with key.
func signerOf(key any) (Signer, error) {
	switch key := key.(type) {
	case ed25519.PrivateKey:
		return memorySigner{key}, nil
	case *ecdsa.PrivateKey:
		return newECDSASigner(key)
	}
	return nil, fmt.Errorf("key of type %T, want ed25519 or ECDSA P-256", key)
}
