package oauth

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
)

func TestInvalidKeySetsAreRefused(t *testing.T) {
	i := newIssuer(t)
	r, ec, ed := public(t, "rsa", i.keys["rsa"]), public(t, "ec", i.keys["ec"]), public(t, "ed", i.keys["ed"])
	change := func(k map[string]any, name string, value any) map[string]any {
		k = maps.Clone(k)
		k[name] = value
		return k
	}
	set := func(keys ...map[string]any) string {
		b, err := json.Marshal(map[string]any{"keys": keys})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	var many []map[string]any
	for n := range maxKeys + 1 {
		many = append(many, change(ec, "kid", fmt.Sprint(n)))
	}
	short := enc(append([]byte{0x80}, make([]byte, 126)...)) + "AQ"
	for name, c := range map[string]struct{ set, want string }{
		"empty":                  {"", ""},
		"no object":              {"[]", "not a key set"},
		"no keys":                {"{}", "not a key set"},
		"keys that are no list":  {`{"keys":{}}`, "not a key set"},
		"Keys":                   {`{"Keys":[]}`, "not a key set"},
		"none":                   {`{"keys":[]}`, "none of 0 keys"},
		"keys twice":             {`{"keys":[],"keys":[]}`, "duplicate"},
		"none that is for this":  {set(change(ec, "use", "enc"), change(r, "alg", "RSA-OAEP"), map[string]any{"kty": "oct", "k": "c2VjcmV0", "kid": "o"}, map[string]any{"kty": "EC", "crv": "P-521", "kid": "p"}), "none of 4 keys"},
		"two of one name":        {set(ec, change(r, "kid", "ec")), "duplicate key id"},
		"a private key":          {set(change(ec, "d", "AAAA")), "private key"},
		"a private RSA key":      {set(r, change(r, "d", "AAAA")), "private key"},
		"a point off the curve":  {set(change(ec, "y", ec["x"])), "key 1"},
		"no point":               {set(change(ec, "x", "")), "invalid EC point"},
		"a short key":            {set(change(r, "n", short)), "bits"},
		"an even modulus":        {set(change(r, "n", enc(append(make([]byte, 0), append([]byte{0x80}, make([]byte, 255)...)...)))), "bits"},
		"a huge modulus":         {set(change(r, "n", enc(append([]byte{1}, make([]byte, 2000)...)))), "invalid RSA"},
		"an exponent of 1":       {set(change(r, "e", "AQ")), "exponent"},
		"an even exponent":       {set(change(r, "e", "BA")), "exponent"},
		"a huge exponent":        {set(change(r, "e", enc(make([]byte, 0, 8))+"____________")), "exponent"},
		"half an Ed25519 key":    {set(change(ed, "x", "AAAA")), "invalid Ed25519 key"},
		"a name of another type": {set(change(ec, "kid", 1)), "wrong type"},
		"too many":               {set(many...), "more than 64"},
		"too long":               {set(change(ec, "x5c", strings.Repeat("a", maxKeysLen))), "more than"},
	} {
		if _, err := parseKeys([]byte(c.set)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want it to say %q", name, err, c.want)
		}
	}
	// The control: beside keys for other uses, the usable keys are found.
	keys, err := parseKeys([]byte(set(r, ec, ed, change(ec, "kid", nil), change(ec, "use", "enc"), change(ed, "crv", "X25519"), map[string]any{"kty": "oct", "k": "c2VjcmV0", "kid": "hmac"}, map[string]any{"kty": "new", "kid": "new"},
		change(change(ed, "kid", "named"), "alg", "Ed25519"), change(change(ec, "kid", "ops"), "key_ops", []string{"verify"}), change(change(ec, "kid", "sign"), "key_ops", []string{"sign"}))))
	if err != nil || len(keys) != 5 || keys["rsa"].alg != "RS256" || keys["ec"].alg != "ES256" || keys["ed"].alg != "EdDSA" || keys["named"].alg != "EdDSA" || keys["ops"].alg != "ES256" {
		t.Errorf("%v, %v", keys, err)
	}
}

func FuzzParseKeys(f *testing.F) {
	i := newIssuer(f)
	b, err := i.fetch(context.Background())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"keys":[{"kty":"EC","crv":"P-256","kid":"a","x":"","y":""}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		keys, err := parseKeys(b)
		for id, k := range keys {
			if err != nil || id == "" || k.public == nil || k.alg == "" {
				t.Fatalf("%q: %v, %v", id, k, err)
			}
		}
	})
}

// proves R-T4
func TestKeysAreFetchedOnlyWhenNeeded(t *testing.T) {
	i := newIssuer(t)
	v := i.verifier()
	take := func(what string, token string, want api.Code, asked int) {
		t.Helper()
		_, err := v.Verify(t.Context(), token)
		if err == nil && want != "" || err != nil && api.CodeOf(err) != want || i.count() != asked {
			t.Errorf("%s: %v, and asked %d times; want %q and %d", what, err, i.count(), want, asked)
		}
	}
	fresh := func(kid string) string { return i.mint(kid, i.claims(), nil) }
	take("the first token", fresh("ec"), "", 1)
	for n := range 50 {
		take("tokens of keys that there are", fresh("rsa"), "", 1)
		take("a made-up name", i.mint("ec", i.claims(), map[string]any{"kid": fmt.Sprint(n)}), api.CodeUnauthenticated, 1)
	}
	i.pass(fetchInterval)
	for n := range 50 {
		take("a made-up name, a minute later", i.mint("ec", i.claims(), map[string]any{"kid": fmt.Sprint(n)}), api.CodeUnauthenticated, 2)
	}

	i.add("new", newEC(t))
	take("a new key, before a minute is over", fresh("new"), api.CodeUnauthenticated, 2)
	i.pass(fetchInterval)
	take("a new key", fresh("new"), "", 3)

	i.replace("new", "ed")
	take("a key that was taken back, for a while", fresh("ec"), "", 3)
	i.pass(freshTime + time.Second)
	take("a key that was taken back", fresh("ec"), api.CodeUnauthenticated, 4)
	take("another that was not", fresh("new"), "", 4)

	i.fail(true)
	i.pass(freshTime + time.Second)
	take("a key that is there, while the issuer is down", fresh("new"), "", 5)
	take("the same at once", fresh("new"), "", 5)
	i.pass(staleTime)
	take("a key that is too old, while the issuer is down", fresh("new"), api.CodeInternal, 6)
	i.fail(false)
	i.pass(fetchInterval)
	take("a key when the issuer is up again", fresh("new"), "", 7)
}

// An issuer that hangs delays no token whose key is cached.
func TestATokenWithACachedKeyNeverWaits(t *testing.T) {
	i := newIssuer(t)
	v := i.verifier()
	if err := v.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	i.pass(fetchInterval)
	began, end := make(chan struct{}), make(chan struct{})
	v.keys.fetch = func(context.Context) ([]byte, error) {
		close(began)
		<-end
		return nil, errors.New("too late")
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := v.Verify(context.Background(), i.mint("ec", i.claims(), map[string]any{"kid": "made-up"}))
		waiting <- err
	}()
	<-began
	i.pass(freshTime)
	if _, err := v.Verify(t.Context(), i.mint("ec", i.claims(), nil)); err != nil {
		t.Error(err)
	}
	close(end)
	if err := <-waiting; api.CodeOf(err) != api.CodeUnauthenticated {
		t.Error(err)
	}
}

// proves R-T7
func TestKeysComeOverTheEgressFilter(t *testing.T) {
	i := newIssuer(t)
	answer := func(w http.ResponseWriter, r *http.Request) {
		b, _ := i.fetch(r.Context())
		_, _ = w.Write(b)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/jwks", answer)
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/jwks", http.StatusFound) })
	mux.HandleFunc("/gone", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		answer(w, r)
	})
	mux.HandleFunc("/long", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(strings.Repeat(" ", maxKeysLen+1)))
	})
	srv := httptest.NewTLSServer(mux)
	t.Cleanup(srv.Close)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	d, err := egress.Only(netip.MustParseAddrPort(srv.Listener.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	for path, ok := range map[string]bool{"/jwks": true, "/moved": false, "/gone": false, "/long": false, "/none": false} {
		v, err := New(Config{Issuer: issuerURL, Audience: resource, Now: i.time, Keys: FromURL(egress.Client(egress.ClientConfig{Dial: d.DialContext, Roots: roots}), srv.URL+path)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := v.Verify(t.Context(), i.mint("ec", i.claims(), nil)); (err == nil) != ok || err != nil && api.CodeOf(err) != api.CodeInternal {
			t.Errorf("%s: %v", path, err)
		}
	}
	// A loopback address that is not configured is refused.
	v, err := New(Config{Issuer: issuerURL, Audience: resource, Now: i.time, Keys: FromURL(egress.Client(egress.ClientConfig{Roots: roots}), srv.URL+"/jwks")})
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Load(t.Context()); !errors.Is(err, egress.ErrRefused) {
		t.Error(err)
	}
}
