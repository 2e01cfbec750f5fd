package login

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

const client = "bailiwick"

// provider is an identity provider, and a clock.
type provider struct {
	t   *testing.T
	url string

	mu    sync.Mutex
	keys  map[string]crypto.Signer // guarded by mu
	asked atomic.Int64
	clock atomic.Int64
}

func newProvider(t *testing.T) (*provider, *Provider) {
	t.Helper()
	p := &provider{t: t, keys: map[string]crypto.Signer{}}
	p.clock.Store(time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC).UnixNano())
	p.rotate("one")
	srv := httptest.NewTLSServer(p)
	t.Cleanup(srv.Close)
	p.url = srv.URL
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	return p, NewProvider(ProviderConfig{Issuer: srv.URL, Client: client, HTTP: egress.Client(egress.ClientConfig{Dial: new(net.Dialer).DialContext, Roots: roots, Allow: Limit(p.now)}), Now: p.now})
}

func (p *provider) now() time.Time       { return time.Unix(0, p.clock.Load()).UTC() }
func (p *provider) pass(d time.Duration) { p.clock.Add(int64(d)) }

// rotate replaces all keys.
func (p *provider) rotate(kid string) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = map[string]crypto.Signer{kid: k}
}

func enc(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// ServeHTTP serves the configuration and the keys.
func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.asked.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path != "/keys" {
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": p.url, "authorization_endpoint": p.url + "/a", "token_endpoint": p.url + "/t", "jwks_uri": p.url + "/keys", "id_token_signing_alg_values_supported": []string{"none", "HS256", "ES256"}})
		return
	}
	set := []map[string]any{}
	for kid, k := range p.keys {
		b, err := k.Public().(*ecdsa.PublicKey).Bytes()
		if err != nil {
			p.t.Error(err)
		}
		set = append(set, map[string]any{"kty": "EC", "use": "sig", "kid": kid, "crv": "P-256", "x": enc(b[1:33]), "y": enc(b[33:])})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"keys": set})
}

func (p *provider) claims(change jwt.MapClaims) jwt.MapClaims {
	c := jwt.MapClaims{"iss": p.url, "aud": client, "sub": "ann", "nonce": "n", "iat": p.now().Unix(), "exp": p.now().Add(time.Hour).Unix(), "groups": []string{"b", "a"}}
	maps.Copy(c, change)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

func (p *provider) mint(change jwt.MapClaims) string {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for kid, k := range p.keys {
		return p.sign(jwt.SigningMethodES256, k, kid, p.claims(change))
	}
	return ""
}

func (p *provider) sign(method jwt.SigningMethod, k any, kid string, claims jwt.Claims) string {
	p.t.Helper()
	token := jwt.NewWithClaims(method, claims)
	token.Header["kid"] = kid
	text, err := token.SignedString(k)
	if err != nil {
		p.t.Fatal(err)
	}
	return text
}

// Each bad token is refused for its own reason, and the honest one is accepted between
// them.
//
// proves R-T4, R-P7
func TestAnIDTokenIsVerified(t *testing.T) {
	p, v := newProvider(t)
	honest := func() {
		t.Helper()
		who, err := v.Verify(t.Context(), p.mint(nil), "n")
		if err != nil || who.Subject != "ann" || who.Issuer != p.url || strings.Join(who.Groups, " ") != "a b" {
			t.Fatalf("the control: %+v, %v", who, err)
		}
	}
	honest()
	public := func() []byte {
		for _, k := range p.keys {
			b, err := x509.MarshalPKIXPublicKey(k.Public())
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		return nil
	}()
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	none := enc([]byte(`{"alg":"none"}`)) + "." + strings.Split(p.mint(nil), ".")[1] + "."
	swapped := strings.Split(p.mint(nil), ".")
	swapped[1] = strings.Split(p.mint(jwt.MapClaims{"sub": "bob"}), ".")[1]
	hour := func(d time.Duration) int64 { return p.now().Add(d).Unix() }
	for name, c := range map[string]struct{ token, nonce, want string }{
		"another audience":          {p.mint(jwt.MapClaims{"aud": "other"}), "n", "audience"},
		"no audience":               {p.mint(jwt.MapClaims{"aud": nil}), "n", "audience"},
		"a further audience":        {p.mint(jwt.MapClaims{"aud": []string{client, "other"}}), "n", "azp"},
		"another party":             {p.mint(jwt.MapClaims{"azp": "other"}), "n", "azp"},
		"another issuer":            {p.mint(jwt.MapClaims{"iss": "https://evil.example"}), "n", "issue"},
		"another nonce":             {p.mint(jwt.MapClaims{"nonce": "m"}), "n", "nonce"},
		"no nonce":                  {p.mint(jwt.MapClaims{"nonce": nil}), "n", "nonce"},
		"a nonce without a request": {p.mint(nil), "", "nonce"},
		"expired":                   {p.mint(jwt.MapClaims{"exp": hour(-time.Second)}), "n", "expired"},
		"no expiry":                 {p.mint(jwt.MapClaims{"exp": nil}), "n", "expired"},
		"old":                       {p.mint(jwt.MapClaims{"iat": hour(-11 * time.Minute)}), "n", "issued at"},
		"of the future":             {p.mint(jwt.MapClaims{"iat": hour(2 * time.Minute)}), "n", "issued at"},
		"no subject":                {p.mint(jwt.MapClaims{"sub": nil}), "n", "sub"},
		"a long subject":            {p.mint(jwt.MapClaims{"sub": strings.Repeat("a", 256)}), "n", "sub"},
		"groups that are no list":   {p.mint(jwt.MapClaims{"groups": 5}), "n", "groups"},
		"alg none":                  {none, "n", "ID token"},
		"HS256 with the public key": {p.sign(jwt.SigningMethodHS256, public, "one", p.claims(nil)), "n", "algorithm"},
		"another key":               {p.sign(jwt.SigningMethodES256, other, "one", p.claims(nil)), "n", "signature"},
		"another algorithm":         {p.sign(jwt.SigningMethodRS256, weak, "one", p.claims(nil)), "n", "signature"},
		"other claims":              {strings.Join(swapped, "."), "n", "signature"},
		"not a token":               {"a", "n", "three parts"},
		"no text":                   {"", "n", "three parts"},
		"too long":                  {strings.Repeat("a", maxIDToken+1), "n", "larger"},
	} {
		who, err := v.Verify(t.Context(), c.token, c.nonce)
		if api.CodeOf(err) != api.CodeUnauthenticated || !strings.Contains(err.Error(), c.want) || who.Subject != "" {
			t.Errorf("%s: %+v, %v, want %q", name, who, err, c.want)
		}
		if err != nil && len(c.token) > 50 && strings.Contains(err.Error(), c.token[len(c.token)-20:]) {
			t.Errorf("%s: the error quotes the token: %v", name, err)
		}
		p.pass(fetchEvery)
	}
	honest()
}

// proves R-T4
func TestKeysRotateAndTheProviderGoesAway(t *testing.T) {
	p, v := newProvider(t)
	if _, err := v.Verify(t.Context(), p.mint(nil), "n"); err != nil {
		t.Fatal(err)
	}
	old := p.mint(nil)
	p.rotate("two")
	if _, err := v.Verify(t.Context(), p.mint(nil), "n"); err != nil {
		t.Errorf("a new key: %v", err)
	}
	// A key that the provider withdraws works for freshTime at most.
	p.pass(freshTime + time.Second)
	if _, err := v.Verify(t.Context(), old, "n"); api.CodeOf(err) != api.CodeUnauthenticated {
		t.Errorf("a withdrawn key: %v", err)
	}
	// Made-up keys do not flood the provider.
	before := p.asked.Load()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err := v.Verify(t.Context(), p.sign(jwt.SigningMethodES256, k, "made-up", p.claims(nil)), "n"); err == nil {
			t.Error("a made-up key is accepted")
		}
	}
	if n := p.asked.Load() - before; n > fetchBurst {
		t.Errorf("%d requests for 100 made-up keys", n)
	}
	gone := NewProvider(ProviderConfig{Issuer: "https://127.0.0.1:1", Client: client, HTTP: egress.Client(egress.ClientConfig{Dial: new(net.Dialer).DialContext}), Now: p.now})
	if _, err := gone.Verify(t.Context(), p.mint(nil), "n"); api.CodeOf(err) != api.CodeUnavailable || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("without the provider: %v", err)
	}
}

// bench is a service's sessions on a real log.
type bench struct {
	t      *testing.T
	clock  time.Time
	ledger *audit.Ledger
	valid  func(context.Context, Identity) error
}

func newBench(t *testing.T) *bench {
	t.Helper()
	st, err := store.Create(t.Context(), store.Config{Dir: filepath.Join(t.TempDir(), "store"), Migrations: []store.Migration{audit.Migration()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	b := &bench{t: t, clock: time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)}
	if b.ledger, err = audit.Open(t.Context(), audit.Config{Store: st, Now: b.now}); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) now() time.Time { return b.clock }

// open starts the service again.
func (b *bench) open() *Sessions {
	b.t.Helper()
	s, err := Open(b.t.Context(), Config{Ledger: b.ledger, Now: b.now, Idle: time.Hour, Lifetime: 3 * time.Hour, Valid: func(ctx context.Context, i Identity) error {
		if b.valid != nil {
			return b.valid(ctx, i)
		}
		return nil
	}})
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func ann(credential string) Identity {
	return Identity{Principal: "human:ann", Via: api.LoginOIDC, Issuer: "https://id.example", Subject: "1", Groups: []string{"dev"}, Credential: api.DigestOf([]byte(credential))}
}

// proves R-T4, R-P7
func TestASessionHasAnEnd(t *testing.T) {
	b := newBench(t)
	s := b.open()
	begin := func(name string) api.PersonSession {
		t.Helper()
		o, err := s.Begin(t.Context(), ann(name), "tls", "192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	find := func(o api.PersonSession, channel, want string) {
		t.Helper()
		found, err := s.Find(o.Session, channel)
		switch {
		case want == "" && (err != nil || found.Principal != "human:ann" || !s.Active(t.Context(), o.ID)):
			t.Errorf("%v, %v", found, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%v, want %q", err, want)
		}
	}
	o := begin("1")
	find(o, "tls", "")
	find(o, "unix:0", "opened over tls")
	find(api.PersonSession{Session: strings.Repeat("0", 64)}, "tls", "unknown")
	// A restart keeps it, its end and its binding.
	s = b.open()
	find(o, "tls", "")
	find(o, "unix:0", "opened over tls")
	b.clock = b.clock.Add(time.Hour)
	find(o, "tls", "idle")
	// Swept, it stays ended over a restart: the control is one that is not swept.
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	o2 := begin("2")
	s = b.open()
	find(o, "tls", "unknown")
	for range 5 { // used, so not idle
		find(o2, "tls", "")
		b.clock = b.clock.Add(30 * time.Minute)
	}
	find(o2, "tls", "")
	b.clock = b.clock.Add(30 * time.Minute)
	find(o2, "tls", "expired")
	// A clock that is put back lengthens nothing.
	o3 := begin("3")
	b.clock = b.clock.Add(-2 * time.Minute)
	find(o3, "tls", "put back")
	b.clock = b.clock.Add(2 * time.Minute)
	find(o3, "tls", "")
	// A clock that stepped forward ends a session, and opens it no more when it is put right.
	o5 := begin("5")
	find(o5, "tls", "")
	b.clock = b.clock.Add(MaxLifetime)
	find(o5, "tls", "expired")
	b.clock = b.clock.Add(-MaxLifetime)
	find(o5, "tls", "expired")
	find(o3, "tls", "")
	// Nor does a restart in between open it, or accept its credential again.
	o6 := begin("6")
	b.clock = b.clock.Add(2 * time.Hour)
	find(begin("7"), "tls", "") // control: not every session is over
	b.clock = b.clock.Add(2 * time.Hour)
	s = b.open()
	find(o6, "tls", "expired")
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.clock = b.clock.Add(-4 * time.Hour)
	if _, err := s.Begin(t.Context(), ann("6"), "tls", ""); api.CodeOf(err) != api.CodeUnauthenticated {
		t.Errorf("a credential after the clock was put right: %v", err)
	}
	s = b.open()
	find(o6, "tls", "unknown")
	o3 = begin("8")
	// A logout, and an identity that the catalog no longer maps.
	o4 := begin("4")
	if err := s.End(t.Context(), "human:ann", o3.ID); err != nil {
		t.Fatal(err)
	}
	find(o3, "tls", "unknown")
	b.valid = func(context.Context, Identity) error { return refused("nobody") }
	if s.Active(t.Context(), o4.ID) {
		t.Error("a session of nobody is active")
	}
	if err := s.Sweep(t.Context()); err != nil || len(s.List("")) != 0 {
		t.Errorf("%v, %v", s.List(""), err)
	}
	if err := s.End(t.Context(), "human:ann", o4.ID); api.CodeOf(err) != api.CodeNotFound {
		t.Error(err)
	}
}

// proves R-T4
func TestACredentialOpensOneSession(t *testing.T) {
	b := newBench(t)
	s := b.open()
	if _, err := s.Begin(t.Context(), ann("1"), "tls", ""); err != nil {
		t.Fatal(err)
	}
	again := func() error {
		_, err := s.Begin(t.Context(), ann("1"), "tls", "")
		return err
	}
	if err := again(); api.CodeOf(err) != api.CodeUnauthenticated {
		t.Errorf("again: %v", err)
	}
	s = b.open()
	if err := again(); api.CodeOf(err) != api.CodeUnauthenticated {
		t.Errorf("again after a restart: %v", err)
	}
	// At once, one of many wins.
	var won atomic.Int64
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := s.Begin(t.Context(), ann("2"), "tls", ""); err == nil {
				won.Add(1)
			}
		})
	}
	if wg.Wait(); won.Load() != 1 {
		t.Errorf("%d of 20 won", won.Load())
	}
	// Sessions of one person are bounded.
	for i := range 2 * maxOfPerson {
		if _, err := s.Begin(t.Context(), ann("x"+big.NewInt(int64(i)).String()), "tls", ""); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.List("human:ann")); n != maxOfPerson {
		t.Errorf("%d sessions, want %d", n, maxOfPerson)
	}
}
