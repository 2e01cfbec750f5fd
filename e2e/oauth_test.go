package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

const (
	idpURL   = "https://idp.example/realm"
	resource = "https://mcp.example/mcp"
)

// idp is an issuer of tokens that serves its keys on loopback.
type idp struct {
	t     *testing.T
	key   *ecdsa.PrivateKey
	srv   *httptest.Server
	asked atomic.Int64
}

func newIDP(t *testing.T) *idp {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	i := &idp{t: t, key: key}
	i.srv = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		i.asked.Add(1)
		_, _ = w.Write(i.keySet())
	}))
	t.Cleanup(i.srv.Close)
	return i
}

func (i *idp) keySet() []byte {
	i.t.Helper()
	point, err := i.key.PublicKey.Bytes()
	must(i.t, err)
	enc := base64.RawURLEncoding.EncodeToString
	b, err := json.Marshal(map[string]any{"keys": []any{map[string]any{"kty": "EC", "crv": "P-256", "kid": "k1", "use": "sig", "x": enc(point[1:33]), "y": enc(point[33:])}}})
	must(i.t, err)
	return b
}

// token returns a valid token for a subject, with the given claims changed.
func (i *idp) token(subject string, change jwt.MapClaims) string {
	i.t.Helper()
	now := time.Now()
	claims := jwt.MapClaims{"iss": idpURL, "aud": resource, "sub": subject, "scope": "bailiwick", "iat": now.Unix(), "exp": now.Add(5 * time.Minute).Unix()}
	maps.Copy(claims, change)
	token := jwt.NewWithClaims(jwt.SigningMethodES256, claims)
	token.Header["kid"], token.Header["typ"] = "k1", "at+jwt"
	s, err := token.SignedString(i.key)
	must(i.t, err)
	return s
}

// trusts configures the world's service to accept this issuer's tokens, with
// its keys at a path or URL.
func (w *world) trusts(jwks string) {
	w.t.Helper()
	w.write("config/bailiwick/service.yaml", "version: 1\noauth: {issuer: \""+idpURL+"\", audience: \""+resource+"\", jwks: \""+jwks+"\"}\n", 0o644)
}

// A client with a token of the configured issuer acts as the principal that an
// operator mapped its subject to, with no further authority. Any other token
// identifies no principal.
//
// proves R-T4, R-T6
func TestIssuerTokensMapToRegisteredPrincipals(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w, i := newWorld(t, uid), newIDP(t)
		w.write("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.srv.Certificate().Raw})), 0o644)
		w.env = append(w.env, "SSL_CERT_FILE="+w.path("ca.pem"), "HTTPS_PROXY=http://127.0.0.1:1")
		w.repository("repo", map[string]string{"a.txt": "one\n"})
		w.catalog(subagent{name: "edit", script: "echo two >> a.txt"})
		w.trusts(i.srv.URL + "/jwks")
		w.grants("agent:remote", "agent:local")
		w.up()
		c := client.New(client.Config{Socket: w.path("run/bailiwick/api.sock"), UIDs: []int{w.serviceUID()}})
		t.Cleanup(c.Close)
		refuse := func(what, token string, code api.Code, words ...string) {
			t.Helper()
			_, err := c.Exchange(t.Context(), token)
			if err == nil || api.CodeOf(err) != code {
				t.Errorf("%s: %v, want %s", what, err, code)
				return
			}
			for _, word := range words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%s: %v lacks %q", what, err, word)
				}
			}
		}

		refuse("an unknown subject", i.token("s-1", nil), api.CodeUnauthenticated, "no principal has its subject", "bailiwick principal add")
		w.must("principal", "add", "agent:remote", "--oauth-issuer", idpURL, "--oauth-subject", "s-1")
		w.must("ceiling", "set", "agent:remote", "reversible")
		remote := w.runtime(i.token("s-1", nil), nil)
		ask := api.DispatchRequest{Subagent: "edit", Source: &api.SourceRequest{Name: "repo"}}
		d, err := remote.Dispatch(t.Context(), ask)
		must(t, err)
		if d, err = remote.Describe(t.Context(), d.ID, 30*time.Second); err != nil || d.State != api.EventFinished || d.Principal != "agent:remote" {
			t.Errorf("the dispatch is %+v, %v", d, err)
		}

		now := time.Now()
		hs := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"iss": idpURL, "aud": resource, "sub": "s-1", "scope": "bailiwick", "exp": now.Add(time.Minute).Unix()})
		hs.Header["kid"] = "k1"
		forged, err := hs.SignedString(i.keySet())
		must(t, err)
		other := newIDP(t)
		refuse("by the public key as a secret", forged, api.CodeUnauthenticated, "HS256 is invalid")
		refuse("of another key", other.token("s-1", nil), api.CodeUnauthenticated, "signature is invalid")
		refuse("for another service", i.token("s-1", jwt.MapClaims{"aud": "https://other.example/mcp"}), api.CodeUnauthenticated, "aud")
		refuse("for two services", i.token("s-1", jwt.MapClaims{"aud": []string{resource, "https://other.example/mcp"}}), api.CodeUnauthenticated, "aud")
		refuse("of another issuer", i.token("s-1", jwt.MapClaims{"iss": "https://evil.example"}), api.CodeUnauthenticated, "iss")
		refuse("expired", i.token("s-1", jwt.MapClaims{"exp": now.Add(-time.Minute).Unix()}), api.CodeUnauthenticated, "expired")
		refuse("without the scope", i.token("s-1", jwt.MapClaims{"scope": "openid"}), api.CodeDenied, "insufficient_scope")
		refuse("a subject in other letters", i.token("S-1", nil), api.CodeUnauthenticated, "no principal has its subject")
		if n := i.asked.Load(); n != 1 {
			t.Errorf("the issuer's keys were fetched %d times", n)
		}
		ours, _ := w.token("agent:local")
		if who, err := w.runtime(ours, nil).Who(t.Context()); err != nil || who.Principal != "agent:local" {
			t.Errorf("a local token: %+v, %v", who, err)
		}
		if out := w.must("audit", "list", "--kind", "auth.refused"); strings.Contains(out, "eyJ") || !strings.Contains(out, "no principal has its subject") {
			t.Errorf("the log says %q", out)
		}

		// An emergency stop applies to it at once, like to any other principal.
		w.must("stop", "--principal", "agent:remote", "--reason", "its keys leaked")
		if _, err := remote.Dispatch(t.Context(), ask); api.CodeOf(err) != api.CodeDenied || !strings.Contains(err.Error(), "emergency stop") {
			t.Errorf("a stopped principal: %v", err)
		}
		if _, err := w.runtime(i.token("s-1", nil), nil).Dispatch(t.Context(), ask); api.CodeOf(err) != api.CodeDenied {
			t.Errorf("another token of a stopped principal: %v", err)
		}

		// A service without the issuer in its configuration accepts none of its
		// tokens.
		w.write("config/bailiwick/service.yaml", "version: 1\n", 0o644)
		w.must("down")
		w.must("up")
		refuse("where none is configured", i.token("s-1", nil), api.CodeUnauthenticated, "bwt_")
	})
}

// proves R-T4
func TestMCPOverHTTPAcceptsIssuerTokens(t *testing.T) {
	t.Parallel()
	w, i := &webWorld{world: newWorld(t, 0)}, newIDP(t)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "true"})
	w.write("config/keys.json", string(i.keySet()), 0o644)
	w.trusts(w.path("config/keys.json"))
	w.up()
	w.addPrincipals()
	w.must("principal", "add", "agent:remote", "--oauth-issuer", idpURL, "--oauth-subject", "s-1")
	s := w.http("--oauth-issuer", idpURL, "--resource", resource)
	s.want("a token of ours", ask{}, 200, "bailiwick_dispatch")
	s.want("a token of the issuer", ask{token: i.token("s-1", nil)}, 200, "bailiwick_dispatch")
	challenge := `resource_metadata="https://mcp.example/.well-known/oauth-protected-resource/mcp"`
	s.want("no token", ask{without: "Authorization"}, 401, challenge)
	s.want("a token without the scope", ask{token: i.token("s-1", jwt.MapClaims{"scope": "openid"})}, 403, `error="insufficient_scope"`, `scope="bailiwick"`, challenge)
	for name, token := range map[string]string{
		"expired": i.token("s-1", jwt.MapClaims{"exp": time.Now().Add(-time.Hour).Unix()}), "for another": i.token("s-1", jwt.MapClaims{"aud": "https://mcp.example"}), "of a stranger": newIDP(t).token("s-1", nil), "about nobody": i.token("s-2", nil),
	} {
		s.want(name, ask{token: token}, 401, `error="invalid_token"`, challenge)
	}
	// A session belongs to one client, also when the same issuer issued both
	// tokens.
	session := s.open(i.token("s-1", nil), "2025-11-25", "")
	theirs := oldAsk("2025-11-25", session, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	s.want("ann in the session of another", theirs, 404)
	theirs.token = i.token("s-1", jwt.MapClaims{"jti": "another"})
	s.want("another token of the same client", theirs, 200, "bailiwick_dispatch")
}

// proves R-T4
func TestUntrustedKeySetsRefuseTheStart(t *testing.T) {
	t.Parallel()
	w, i := newWorld(t, 0), newIDP(t)
	w.catalog(subagent{name: "edit", script: "true"})
	file := w.path("config/keys.json")
	w.trusts(file)
	secret := strings.Replace(string(i.keySet()), `"crv"`, `"d":"AAAA","crv"`, 1)
	w.refused(1, []string{"oauth.jwks", "no such file"}, "up")
	for _, c := range []struct {
		content string
		mode    os.FileMode
		want    string
	}{
		{string(i.keySet()), 0o666, "chmod go-w"},
		{"{}", 0o644, "not a key set"},
		{secret, 0o644, "private key"},
	} {
		w.write("config/keys.json", c.content, c.mode)
		w.refused(1, []string{"oauth.jwks", c.want}, "up")
	}
	if out := w.fullDoctor().stdout; !strings.Contains(out, "MISSING oauth") || !strings.Contains(out, "private key") {
		t.Errorf("doctor says %q", out)
	}
	w.write("config/keys.json", string(i.keySet()), 0o644)
	w.up()
	if out := w.fullDoctor().stdout; !strings.Contains(out, "tokens of "+idpURL+" for "+resource) || strings.Contains(out, "MISSING oauth") {
		t.Errorf("doctor says %q", out)
	}
}
