package webpage

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// teamProvider is an identity provider over TLS that gives a code to every browser.
type teamProvider struct {
	*httptest.Server

	mu    sync.Mutex
	asked url.Values // of the authorization; guarded by mu
	codes int        // that were exchanged; guarded by mu
}

func newTeamProvider(t *testing.T) *teamProvider {
	t.Helper()
	p := &teamProvider{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": p.URL, "authorization_endpoint": p.URL + "/auth", "token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys"})
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		verifier := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.PostFormValue("code") != "good" || r.PostFormValue("client_secret") != "s3cret" || r.PostFormValue("redirect_uri") != p.asked.Get("redirect_uri") ||
			base64.RawURLEncoding.EncodeToString(verifier[:]) != p.asked.Get("code_challenge"):
			w.WriteHeader(http.StatusBadRequest)
			_ = json.NewEncoder(w).Encode(map[string]any{"error": "invalid_grant"})
		default:
			p.codes++
			_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": "id." + p.asked.Get("nonce")})
		}
	})
	p.Server = httptest.NewTLSServer(mux)
	t.Cleanup(p.Close)
	return p
}

// newProvidedWorld is a page whose team has an identity provider.
func newProvidedWorld(t *testing.T) (*teamWorld, *teamProvider) {
	t.Helper()
	p, dir := newTeamProvider(t), t.TempDir()
	ca, secret := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "secret")
	for path, content := range map[string][]byte{ca: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw}), secret: []byte("s3cret\n")} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := newTeamWorld(t, func(c *TeamConfig) { c.Setting.Issuer, c.Setting.CA, c.Setting.Secret = p.URL, ca, secret })
	w.service.answer("GET /v1/login", api.LoginMethods{OIDC: &api.OIDCProvider{Issuer: p.URL, Client: "bailiwick", Scopes: []string{"openid", "groups", "offline_access"}}, Passkeys: true})
	w.service.answer("POST /v1/login/oidc", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(rw).Encode(api.PersonSession{Session: "bob", ID: "s-1", Principal: "human:bob", ExpiresAt: time.Now().Add(time.Hour)})
	}))
	return w, p
}

// begin begins a login and returns the cookie of the browser and the state.
func (p *teamProvider) begin(w *teamWorld, next string) (cookies []*http.Cookie, state string) {
	w.t.Helper()
	got := w.want("begin", asked{path: "/login/oidc?next=" + url.QueryEscape(next), handle: "-"}, 303)
	to, err := url.Parse(got.header.Get("Location"))
	if err != nil || !strings.HasPrefix(to.String(), p.URL+"/auth?") {
		w.t.Fatalf("leads to %s, %v", to, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = to.Query()
	for name, want := range map[string]string{
		"client_id": "bailiwick", "response_type": "code", "code_challenge_method": "S256", "redirect_uri": teamOrigin + "/login/callback", "scope": "openid groups",
	} {
		if p.asked.Get(name) != want {
			w.t.Errorf("%s is %q, want %q", name, p.asked.Get(name), want)
		}
	}
	resp := http.Response{Header: got.header}
	for _, c := range resp.Cookies() {
		if c.Name != loginCookie || !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.MaxAge != 600 {
			w.t.Errorf("cookie %+v", c)
		}
	}
	return resp.Cookies(), p.asked.Get("state")
}

// The code flow of a login: with PKCE, a state that only the browser has that began it, and
// a nonce that the service gets with the ID token. Each answer that does not fit opens no
// session; the ordinary one does, and leads to where the person wanted to go.
func TestSigningInWithTheTeamsAccount(t *testing.T) {
	w, p := newProvidedWorld(t)
	w.want("the page", asked{path: "/runs?state=done", handle: "-"}, 401, `href="/login/oidc?next=%2fruns%3fstate%3ddone"`)
	cookies, state := p.begin(w, "/runs?state=done")
	ordinary := asked{path: "/login/callback?code=good&state=" + state, handle: "-", cookies: cookies, header: []string{"Sec-Fetch-Site: cross-site"}}
	for name, c := range map[string]struct {
		change func(*asked)
		status int
		word   string
	}{
		"another browser":           {func(a *asked) { a.cookies = nil }, 400, "not begun in this browser"},
		"another state":             {func(a *asked) { a.path = "/login/callback?code=good&state=x" }, 400, "not begun in this browser"},
		"no state":                  {func(a *asked) { a.path = "/login/callback?code=good" }, 400, "not begun in this browser"},
		"another login's cookie":    {func(a *asked) { a.cookies, _ = p.begin(w, "/") }, 400, "not begun in this browser"},
		"a cookie that is no login": {func(a *asked) { a.cookies = []*http.Cookie{{Name: loginCookie, Value: "e30"}} }, 400, "not begun in this browser"},
		"a refusal":                 {func(a *asked) { a.path = "/login/callback?error=access_denied&state=" + state }, 401, "access_denied"},
		"another code":              {func(a *asked) { a.path = "/login/callback?code=bad&state=" + state }, 401, "invalid_grant"},
	} {
		a := ordinary
		c.change(&a)
		got := w.want(name, a, c.status, c.word)
		for _, set := range got.header.Values("Set-Cookie") {
			if strings.HasPrefix(set, personCookie) {
				t.Errorf("%s opens a session", name)
			}
		}
	}
	cookies, state = p.begin(w, "/runs?state=done")
	ordinary.cookies, ordinary.path = cookies, "/login/callback?code=good&state="+state
	w.service.calls("")
	got := w.want("the ordinary login", ordinary, 200, `content="0; url=/runs?state=done"`, "human:bob")
	set := strings.Join(got.header.Values("Set-Cookie"), "\n")
	if !strings.Contains(set, personCookie+"=bob;") || !strings.Contains(set, loginCookie+"=;") {
		t.Errorf("cookies: %s", set)
	}
	if calls := w.service.calls("/v1/login/oidc"); len(calls) != 1 || !strings.Contains(calls[0], `"idToken":"id.`+p.asked.Get("nonce")+`"`) || !strings.Contains(calls[0], `"nonce":"`+p.asked.Get("nonce")+`"`) {
		t.Errorf("%q", calls)
	}
	cookies, _ = p.begin(w, "//evil.example")
	if l, ok := loginStateOf(&http.Request{Header: http.Header{"Cookie": {loginCookie + "=" + cookies[0].Value}}}); !ok || l.Next != "/" {
		t.Errorf("%+v, %v", l, ok)
	}
}

// While the provider is away a login says so and what to do; open sessions stay valid.
func TestTheProviderIsAway(t *testing.T) {
	w, p := newProvidedWorld(t)
	cookies, state := p.begin(w, "/")
	p.Close()
	w.want("the answer", asked{path: "/login/callback?code=good&state=" + state, handle: "-", cookies: cookies}, 503, "does not answer", "with a passkey")
	away, gone := newProvidedWorld(t)
	gone.Close()
	away.want("a login", asked{path: "/login/oidc", handle: "-"}, 503, "does not answer", "with a passkey", "open sessions stay valid")
	away.want("who is signed in", asked{path: "/runs"}, 200)
	w = newTeamWorld(t, nil)
	w.want("without a provider", asked{path: "/login/oidc", handle: "-"}, 501, "no identity provider")
	w.want("a login page", asked{path: "/login", handle: "-"}, 200, "passkey")
	w.service.answer("GET /v1/login", api.LoginMethods{})
	w.want("a login page without a method", asked{path: "/login", handle: "-"}, 200, "bailiwick operators invite")
}
