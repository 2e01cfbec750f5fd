package oauth

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"math/big"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	issuerURL = "https://idp.example/realm"
	resource  = "https://mcp.example/mcp"
	subject   = "0a1b2c"
)

// issuer mints tokens and serves their keys.
type issuer struct {
	t    testing.TB
	keys map[string]crypto.Signer

	mu    sync.Mutex
	set   []map[string]any // guarded by mu
	down  bool             // guarded by mu
	asked int              // guarded by mu
	now   time.Time        // guarded by mu
}

func newIssuer(t testing.TB) *issuer {
	t.Helper()
	i := &issuer{t: t, keys: map[string]crypto.Signer{}, now: time.Date(2026, 7, 28, 12, 0, 0, 0, time.UTC)}
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i.add("rsa", r)
	i.add("ec", newEC(t))
	i.add("ed", newEd(t))
	return i
}

func newEC(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func newEd(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	_, k, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (i *issuer) add(kid string, k crypto.Signer) {
	i.keys[kid] = k
	i.mu.Lock()
	defer i.mu.Unlock()
	i.set = append(i.set, public(i.t, kid, k))
}

// replace reduces the key set to these keys.
func (i *issuer) replace(kids ...string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.set = nil
	for _, kid := range kids {
		i.set = append(i.set, public(i.t, kid, i.keys[kid]))
	}
}

func (i *issuer) time() time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.now
}

func (i *issuer) pass(d time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.now = i.now.Add(d)
}

func (i *issuer) fail(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

func (i *issuer) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked
}

func (i *issuer) fetch(context.Context) ([]byte, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked++
	if i.down {
		return nil, errors.New("the issuer is down")
	}
	return json.Marshal(map[string]any{"keys": i.set})
}

func (i *issuer) verifier() *Verifier {
	i.t.Helper()
	v, err := New(Config{Issuer: issuerURL, Audience: resource, Keys: i.fetch, Now: i.time})
	if err != nil {
		i.t.Fatal(err)
	}
	return v
}

func enc(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func public(t testing.TB, kid string, k crypto.Signer) map[string]any {
	t.Helper()
	switch p := k.Public().(type) {
	case *rsa.PublicKey:
		return map[string]any{"kty": "RSA", "kid": kid, "use": "sig", "alg": "RS256", "n": enc(p.N.Bytes()), "e": enc(big.NewInt(int64(p.E)).Bytes())}
	case *ecdsa.PublicKey:
		b, err := p.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		return map[string]any{"kty": "EC", "kid": kid, "crv": "P-256", "x": enc(b[1:33]), "y": enc(b[33:])}
	case ed25519.PublicKey:
		return map[string]any{"kty": "OKP", "kid": kid, "crv": "Ed25519", "x": enc(p)}
	}
	t.Fatal("no such key")
	return nil
}

// claims returns the claims of a valid token.
func (i *issuer) claims() jwt.MapClaims {
	now := i.time()
	return jwt.MapClaims{
		"iss": issuerURL, "aud": resource, "sub": subject, "scope": "openid bailiwick", "client_id": "c", "jti": "1",
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(5 * time.Minute).Unix(),
	}
}

// with returns the claims of a valid token with changes; nil removes one.
func (i *issuer) with(change jwt.MapClaims) jwt.MapClaims {
	c := i.claims()
	maps.Copy(c, change)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

// mint signs claims with one of the keys, and adds header.
func (i *issuer) mint(kid string, claims jwt.Claims, header map[string]any) string {
	i.t.Helper()
	method := map[string]jwt.SigningMethod{"rsa": jwt.SigningMethodRS256, "ed": jwt.SigningMethodEdDSA}[kid]
	if method == nil {
		method = jwt.SigningMethodES256
	}
	return i.sign(method, i.keys[kid], kid, claims, header)
}

func (i *issuer) sign(method jwt.SigningMethod, k any, kid string, claims jwt.Claims, header map[string]any) string {
	i.t.Helper()
	token := jwt.NewWithClaims(method, claims)
	token.Header["kid"], token.Header["typ"] = kid, "at+jwt"
	maps.Copy(token.Header, header)
	maps.DeleteFunc(token.Header, func(_ string, v any) bool { return v == nil })
	s, err := token.SignedString(k)
	if err != nil {
		i.t.Fatal(err)
	}
	return s
}

// raw signs arbitrary bytes with the EC key.
func (i *issuer) raw(header, claims string) string {
	i.t.Helper()
	text := enc([]byte(header)) + "." + enc([]byte(claims))
	sig, err := jwt.SigningMethodES256.Sign(text, i.keys["ec"])
	if err != nil {
		i.t.Fatal(err)
	}
	return text + "." + enc(sig)
}
