package seal

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Algorithm is a signature algorithm. It precedes the colon in a key's id.
type Algorithm string

const (
	// Ed25519 keys are 32 bytes, signatures 64, over the message itself.
	Ed25519 Algorithm = "ed25519"
	// ECDSAP256 keys are uncompressed points of P-256, 65 bytes. Signatures are
	// over the SHA-256 of the message, ASN.1 in DER, with the low S.
	ECDSAP256 Algorithm = "ecdsa-p256"
	// Passkey keys are WebAuthn credentials. Their signatures are Assertions, whose
	// challenge is the SHA-256 of the message. They sign operator records only.
	Passkey Algorithm = "passkey"
)

// sizeP256 is the length of a public ECDSAP256 key.
const sizeP256 = 65

// KeyID names a public key: its algorithm, a colon, and the first 32
// hexadecimal digits of the SHA-256 of its bytes, or of all of a passkey.
type KeyID string

var keyIDPattern = regexp.MustCompile(`^(ed25519|ecdsa-p256|passkey):[0-9a-f]{32}$`)

// IDOf returns the id of a public key, whose length tells its algorithm. Bytes of
// any other length get an id that no key has.
func IDOf(public []byte) KeyID {
	algorithm := Algorithm("unknown")
	switch len(public) {
	case ed25519.PublicKeySize:
		algorithm = Ed25519
	case sizeP256:
		algorithm = ECDSAP256
	}
	sum := sha256.Sum256(public)
	return KeyID(string(algorithm) + ":" + hex.EncodeToString(sum[:])[:32])
}

// Algorithm returns the algorithm of the key.
func (id KeyID) Algorithm() Algorithm {
	a, _, _ := strings.Cut(string(id), ":")
	return Algorithm(a)
}

// UnmarshalText accepts only the canonical form.
func (id *KeyID) UnmarshalText(b []byte) error {
	if !keyIDPattern.Match(b) {
		return fmt.Errorf("key id %.80q: want ed25519:, ecdsa-p256: or passkey: and 32 lower-case hexadecimal digits", b)
	}
	*id = KeyID(b)
	return nil
}

// Key is a public key as a trust root lists it.
type Key struct {
	ID     KeyID  `json:"id"`
	Name   string `json:"name,omitempty"` // for people only
	Public []byte `json:"public"`         // 32 bytes of ed25519, or 65 of ECDSA P-256; base64 in JSON
	// Principal owns the key, if it is an operator key: a person, or a ci: principal, which
	// never votes. Empty in a set of operator keys from before keys had principals.
	Principal api.Principal `json:"principal,omitempty"`
	// Passkey is nil unless the key is in an authenticator that a browser talks to.
	Passkey *Credential `json:"passkey,omitempty"`
}

// KeyOf returns the public half of s.
func KeyOf(s Signer, name string) Key {
	return Key{ID: s.KeyID(), Name: name, Public: s.Public()}
}

// Validate refuses a malformed public key, or an id of another key.
func (k Key) Validate() error {
	switch len(k.Public) {
	case ed25519.PublicKeySize:
	case sizeP256:
		if _, err := pointP256(k.Public); err != nil {
			return err
		}
	default:
		return fmt.Errorf("public key has %d bytes, want %d of ed25519 or %d of ECDSA P-256", len(k.Public), ed25519.PublicKeySize, sizeP256)
	}
	want := IDOf(k.Public)
	if k.Passkey != nil {
		err := k.Passkey.validate()
		if err == nil {
			want, err = k.passkeyID()
		}
		if err != nil {
			return err
		}
	}
	if k.ID != want {
		return fmt.Errorf("id %q does not match its public key, whose id is %s", string(k.ID), want)
	}
	if k.Principal != "" {
		if _, err := api.ParsePrincipal(string(k.Principal)); err != nil {
			return err
		}
	}
	if len(k.Name) > 200 {
		return fmt.Errorf("name is %d bytes long, want at most 200", len(k.Name))
	}
	return nil
}

// PEM returns k in PEM, as PKIX.
func (k Key) PEM() ([]byte, error) {
	if err := k.Validate(); err != nil {
		return nil, err
	}
	if k.Passkey != nil {
		return nil, fmt.Errorf("key %s is a passkey: its signatures are assertions, which other tools do not verify", k.ID)
	}
	public := crypto.PublicKey(ed25519.PublicKey(k.Public))
	if k.ID.Algorithm() == ECDSAP256 {
		point, err := pointP256(k.Public)
		if err != nil {
			return nil, err
		}
		public = point
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// Verify returns an error unless signature is a signature of k over message:
// ErrSignature if it is one of something else.
func (k Key) Verify(message, signature []byte) error {
	if err := k.Validate(); err != nil {
		return err
	}
	if k.Passkey != nil {
		return k.verifyPasskey(message, signature)
	}
	return verifyRaw(k.Public, message, signature)
}

// verifyRaw verifies a signature by the valid public key with the given bytes.
func verifyRaw(public, message, signature []byte) error {
	if err := checkSignature(IDOf(public).Algorithm(), signature); err != nil {
		return err
	}
	ok := false
	if len(public) == sizeP256 {
		point, err := pointP256(public)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(message)
		ok = ecdsa.VerifyASN1(point, sum[:], signature)
	} else {
		ok = ed25519.Verify(public, message, signature)
	}
	if !ok {
		return ErrSignature
	}
	return nil
}

// pointP256 reads a point and refuses one that is not on the curve.
func pointP256(public []byte) (*ecdsa.PublicKey, error) {
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), public)
	if err != nil {
		return nil, errors.New("public key is not a point of P-256")
	}
	return key, nil
}

// checkSignature refuses what no key of an algorithm could have signed, and of
// two equivalent ECDSA signatures the one with the high S.
func checkSignature(a Algorithm, signature []byte) error {
	if a == Passkey {
		_, err := ParseAssertion(signature)
		return err
	}
	if a != ECDSAP256 {
		if len(signature) != ed25519.SignatureSize {
			return fmt.Errorf("%d bytes, want %d", len(signature), ed25519.SignatureSize)
		}
		return nil
	}
	_, s, err := parseP256(signature)
	if err != nil {
		return err
	}
	if s.Cmp(halfP256()) > 0 {
		return errors.New("ECDSA signature with the high S, want the low S")
	}
	return nil
}

type ecdsaSignature struct{ R, S *big.Int }

// maxP256 is the longest ECDSA signature over P-256, in DER.
const maxP256 = 72

func parseP256(signature []byte) (r, s *big.Int, err error) {
	bad := errors.New("not an ECDSA signature over P-256 in DER")
	if len(signature) > maxP256 {
		return nil, nil, bad
	}
	var v ecdsaSignature
	rest, err := asn1.Unmarshal(signature, &v)
	if err != nil || len(rest) != 0 {
		return nil, nil, bad
	}
	again, err := asn1.Marshal(v)
	if err != nil || !slices.Equal(again, signature) {
		return nil, nil, bad
	}
	n := elliptic.P256().Params().N
	if v.R.Sign() <= 0 || v.S.Sign() <= 0 || v.R.Cmp(n) >= 0 || v.S.Cmp(n) >= 0 {
		return nil, nil, bad
	}
	return v.R, v.S, nil
}

// halfP256 is half of the order of P-256, rounded down.
func halfP256() *big.Int { return new(big.Int).Rsh(elliptic.P256().Params().N, 1) }

// lowS returns the equivalent signature that checkSignature accepts.
func lowS(signature []byte) ([]byte, error) {
	r, s, err := parseP256(signature)
	if err != nil {
		return nil, err
	}
	if s.Cmp(halfP256()) > 0 {
		s.Sub(elliptic.P256().Params().N, s)
	}
	return asn1.Marshal(ecdsaSignature{r, s})
}
