package oauth

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

const (
	maxKeys    = 64
	minRSA     = 2048
	maxRSA     = 8192
	maxKeysLen = 256 << 10
)

// key is a public key for one algorithm.
type key struct {
	alg    string
	public any
}

// jwk holds the members of a key that are read (RFC 7517, RFC 7518 §6, RFC 8037).
type jwk struct {
	Kty, Use, Alg, Kid, Crv string
	X, Y, N, E              string
	D, K                    string // of private and secret keys
	Ops                     []string
}

// parseKeys returns the keys of a set that can sign tokens, by id. It skips keys
// for another use and of unknown types, as RFC 7517 §5 says, and refuses a set
// with a malformed, weak, private or duplicate key.
func parseKeys(b []byte) (map[string]key, error) {
	if len(b) > maxKeysLen {
		return nil, fmt.Errorf("the key set has %d bytes, more than %d", len(b), maxKeysLen)
	}
	if _, err := canon.Canonicalize(b); err != nil {
		return nil, err
	}
	var set map[string]json.RawMessage // unlike a struct, matches names exactly
	var list []map[string]json.RawMessage
	if err := json.Unmarshal(b, &set); err != nil {
		return nil, errors.New("not a key set: want an object with the member keys")
	}
	if err := json.Unmarshal(set["keys"], &list); err != nil {
		return nil, errors.New("not a key set: want an object with the member keys")
	}
	if len(list) > maxKeys {
		return nil, fmt.Errorf("%d keys, more than %d", len(list), maxKeys)
	}
	keys := map[string]key{}
	for i, members := range list {
		j, err := readKey(members)
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", i+1, err)
		}
		k, ok, err := j.key()
		if err != nil {
			return nil, fmt.Errorf("key %d (%.40q): %w", i+1, j.Kid, err)
		}
		if !ok {
			continue
		}
		if _, duplicate := keys[j.Kid]; duplicate {
			return nil, fmt.Errorf("duplicate key id %.40q", j.Kid)
		}
		keys[j.Kid] = k
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("none of %d keys has an id and can sign with %s", len(list), algorithms())
	}
	return keys, nil
}

func readKey(members map[string]json.RawMessage) (j jwk, err error) {
	for name, to := range map[string]any{
		"kty": &j.Kty, "use": &j.Use, "alg": &j.Alg, "kid": &j.Kid, "crv": &j.Crv, "x": &j.X, "y": &j.Y, "n": &j.N, "e": &j.E, "d": &j.D, "k": &j.K, "key_ops": &j.Ops,
	} {
		if raw, ok := members[name]; ok {
			if err := json.Unmarshal(raw, to); err != nil {
				return j, fmt.Errorf("%s has the wrong type", name)
			}
		}
	}
	return j, nil
}

// key returns the public key, and whether it can verify tokens.
func (j jwk) key() (key, bool, error) {
	if j.D != "" || j.K != "" && j.Kty != "oct" {
		return key{}, false, errors.New("it is a private key, and everyone who reads it can forge tokens; replace it")
	}
	if j.Use != "" && j.Use != "sig" || j.Ops != nil && !slices.Contains(j.Ops, "verify") || j.Kid == "" || len(j.Kid) > maxKeyID {
		return key{}, false, nil
	}
	var k key
	var err error
	switch j.Kty + " " + j.Crv {
	case "RSA ":
		k.alg = "RS256"
		k.public, err = j.rsa()
	case "EC P-256":
		k.alg = "ES256"
		k.public, err = j.ec()
	case "OKP Ed25519":
		k.alg = "EdDSA"
		k.public, err = j.ed25519()
	default:
		return key{}, false, nil
	}
	if err != nil {
		return key{}, false, err
	}
	if j.Alg == "Ed25519" { // its name in RFC 9864
		j.Alg = "EdDSA"
	}
	return k, j.Alg == "" || j.Alg == k.alg, nil
}

func (j jwk) rsa() (*rsa.PublicKey, error) {
	n, err := number(j.N)
	if err != nil {
		return nil, err
	}
	e, err := number(j.E)
	if err != nil {
		return nil, err
	}
	if bits := n.BitLen(); bits < minRSA || bits > maxRSA || n.Bit(0) == 0 {
		return nil, fmt.Errorf("RSA key of %d bits: want %d to %d", bits, minRSA, maxRSA)
	}
	if e.BitLen() > 31 || e.Int64() < 3 || e.Bit(0) == 0 {
		return nil, errors.New("invalid RSA exponent")
	}
	return &rsa.PublicKey{N: n, E: int(e.Int64())}, nil
}

func (j jwk) ec() (*ecdsa.PublicKey, error) {
	const size = 32
	x, errX := segment(j.X)
	y, errY := segment(j.Y)
	if errX != nil || errY != nil || len(x) != size || len(y) != size {
		return nil, errors.New("invalid EC point")
	}
	// The parser refuses a point off the curve.
	return ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, x, y))
}

func (j jwk) ed25519() (ed25519.PublicKey, error) {
	x, err := segment(j.X)
	if err != nil || len(x) != ed25519.PublicKeySize {
		return nil, errors.New("invalid Ed25519 key")
	}
	return x, nil
}

func number(s string) (*big.Int, error) {
	b, err := segment(s)
	if err != nil || len(b) == 0 || len(b) > maxRSA/8+1 {
		return nil, errors.New("invalid RSA modulus or exponent")
	}
	return new(big.Int).SetBytes(b), nil
}

func segment(s string) ([]byte, error) { return base64.RawURLEncoding.Strict().DecodeString(s) }
