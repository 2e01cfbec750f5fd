package webpage

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/time/rate"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
	"github.com/bailiwick-dev/bailiwick/internal/front/websetting"
)

const (
	freshTime  = 10 * time.Minute // that the provider's configuration is used
	maxSecret  = 4 << 10
	maxNext    = 1 << 10
	maxRefusal = 300
)

// provider is the team's identity provider, for the code flow. The page does not read ID
// tokens: the service verifies them and says who they are about.
type provider struct {
	set  websetting.Page
	http *http.Client
	now  func() time.Time

	mu       sync.Mutex
	issuer   string          // of endpoint; guarded by mu
	endpoint oauth2.Endpoint // guarded by mu
	until    time.Time       // endpoint is used; guarded by mu
}

func newProvider(set websetting.Page, now func() time.Time) (*provider, error) {
	p := &provider{set: set, now: now}
	var dial egress.DialFunc
	if set.Address != "" {
		d, err := egress.Signed(set.Address)
		if err != nil {
			return nil, fmt.Errorf("login.address: %w", err)
		}
		dial = d.DialContext
	} else if at, ok := loopback(set.Issuer); ok {
		d, err := egress.Only(at)
		if err != nil {
			return nil, fmt.Errorf("login.issuer: %w", err)
		}
		dial = d.DialContext
	}
	roots, err := rootsOf(set.CA)
	if err != nil {
		return nil, fmt.Errorf("login.ca: %w", err)
	}
	limit := rate.NewLimiter(rate.Every(100*time.Millisecond), 20)
	p.http = egress.Client(egress.ClientConfig{Dial: dial, Roots: roots, Allow: func() bool { return limit.AllowN(now(), 1) }})
	return p, nil
}

// loopback returns the address of an issuer on this machine, given by number.
func loopback(issuer string) (netip.AddrPort, bool) {
	u, err := url.Parse(issuer)
	if err != nil {
		return netip.AddrPort{}, false
	}
	host := u.Host
	if u.Port() == "" {
		host += ":443"
	}
	at, err := netip.ParseAddrPort(host)
	return at, err == nil && at.Addr().IsLoopback()
}

func rootsOf(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // nil stands for the system's
	}
	b, err := os.ReadFile(path) //nolint:gosec // G304: the administrator names it
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("%s: no certificate in PEM", path)
	}
	return pool, nil
}

// config returns what a login at the provider needs.
func (p *provider) config(ctx context.Context, at *api.OIDCProvider) (*oauth2.Config, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.now(); p.issuer != at.Issuer || !now.Before(p.until) || now.Before(p.until.Add(-freshTime)) {
		found, err := oidc.NewProvider(oidc.ClientContext(ctx, p.http), at.Issuer)
		if err != nil {
			return nil, gone(at.Issuer, err)
		}
		p.issuer, p.endpoint, p.until = at.Issuer, found.Endpoint(), now.Add(freshTime)
	}
	if u, err := url.Parse(p.endpoint.AuthURL); err != nil || u.Scheme != "https" {
		return nil, api.Errorf(api.CodeUnavailable, "the identity provider %s names an authorization endpoint without https", at.Issuer)
	}
	c := &oauth2.Config{ClientID: at.Client, Endpoint: p.endpoint, RedirectURL: p.set.Origin + "/login/callback"}
	for _, scope := range at.Scopes {
		if scope != oidc.ScopeOfflineAccess { // the page keeps no refresh token
			c.Scopes = append(c.Scopes, scope)
		}
	}
	if p.set.Secret == "" {
		c.Endpoint.AuthStyle = oauth2.AuthStyleInParams
		return c, nil
	}
	b, err := os.ReadFile(p.set.Secret)
	if err != nil || len(b) > maxSecret {
		return nil, api.Errorf(api.CodeUnavailable, "web.secret: the secret of the page at the identity provider cannot be read").WithHint("an administrator looks at the log of bailiwick-web")
	}
	c.ClientSecret = strings.TrimSpace(string(b))
	return c, nil
}

// gone says that the provider does not answer. Open sessions stay valid.
func gone(issuer string, err error) error {
	return api.Errorf(api.CodeUnavailable, "the identity provider %s does not answer: %w", issuer, err).WithHint("sign in with a passkey, or try again later; open sessions stay valid")
}

// beginOIDC leads a browser to the identity provider.
func (s *site) beginOIDC(w http.ResponseWriter, r *http.Request) {
	next := localPath(r.URL.Query().Get("next"))
	if len(next) > maxNext {
		next = "/"
	}
	c, err := s.oidcConfig(r.Context())
	if err != nil {
		s.signIn(w, r, next, err)
		return
	}
	l := loginState{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Next: next}
	cookie, err := l.cookie()
	if err != nil {
		s.fail(w, r, err)
		return
	}
	http.SetCookie(w, cookie)
	http.Redirect(w, r, c.AuthCodeURL(l.State, oidc.Nonce(l.Nonce), oauth2.S256ChallengeOption(l.Verifier)), http.StatusSeeOther)
}

func (s *site) oidcConfig(ctx context.Context) (*oauth2.Config, error) {
	methods, err := s.team.service.Login().Methods(ctx)
	if err != nil {
		return nil, err
	}
	if methods.OIDC == nil {
		return nil, api.Errorf(api.CodeNotConfigured, "this service has no identity provider").WithHint("sign in with a passkey")
	}
	return s.team.provider.config(ctx, methods.OIDC)
}

// finishOIDC takes the provider's answer to the login that this browser began, and hands
// its ID token to the service.
func (s *site) finishOIDC(w http.ResponseWriter, r *http.Request) {
	l, ok := loginStateOf(r)
	removed := teamCookie(loginCookie, "", time.Time{}) //nolint:gosec // G124: Lax, as it was set
	removed.SameSite = http.SameSiteLaxMode
	http.SetCookie(w, removed) // it is used once
	q := r.URL.Query()
	if !ok || subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(l.State)) == 0 {
		s.signIn(w, r, "/", api.Errorf(api.CodeInvalid, "this login was not begun in this browser, or it took longer than %s", loginTime).WithHint("sign in again, in one tab"))
		return
	}
	next := localPath(l.Next)
	opened, err := s.exchangeCode(r, q, l)
	if err != nil {
		s.signIn(w, r, next, err)
		return
	}
	admit(w, opened)
	// The browser sends no cookie with a redirect that another site began: this page leads on.
	s.render(w, r, http.StatusOK, "signedin", layoutData{Title: "Signed in", Data: struct {
		Next      string
		Principal api.Principal
	}{next, opened.Principal}})
}

// exchangeCode gets an ID token for the code of an answer, and a session for the token.
func (s *site) exchangeCode(r *http.Request, q url.Values, l loginState) (opened api.PersonSession, err error) {
	ctx := r.Context()
	if refusal := q.Get("error"); refusal != "" {
		return opened, api.Errorf(api.CodeUnauthenticated, "the identity provider refused: %.*s %.*s", maxRefusal, refusal, maxRefusal, q.Get("error_description")).
			WithHint("ask the administrator of the provider whether you may use this page")
	}
	c, err := s.oidcConfig(ctx)
	if err != nil {
		return opened, err
	}
	token, err := c.Exchange(context.WithValue(ctx, oauth2.HTTPClient, s.team.provider.http), q.Get("code"), oauth2.VerifierOption(l.Verifier))
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return opened, api.Errorf(api.CodeUnauthenticated, "the identity provider refused the login: %.*s", maxRefusal, refused.ErrorCode).WithHint("sign in again; if it stays, an administrator checks login.client and web.secret")
	}
	if err != nil {
		return opened, gone(s.team.provider.set.Issuer, err)
	}
	text, ok := token.Extra("id_token").(string)
	if !ok {
		return opened, api.Errorf(api.CodeUnauthenticated, "the identity provider gave no ID token").WithHint("an administrator allows the scope openid for this client")
	}
	return s.team.login(r).OIDC(ctx, api.OIDCLogin{IDToken: text, Nonce: l.Nonce})
}

// loginCookie has what a login at the identity provider began with, in the browser that
// began it: Lax, since the provider leads back from another site.
const (
	loginCookie = "__Host-bailiwick-login"
	loginTime   = 10 * time.Minute
	maxLogin    = 2048
)

// loginState is what the answer of the provider is compared with.
type loginState struct {
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"` // PKCE
	Next     string `json:"next"`
}

func (l loginState) cookie() (*http.Cookie, error) {
	b, err := json.Marshal(l)
	c := teamCookie(loginCookie, base64.RawURLEncoding.EncodeToString(b), time.Time{}) //nolint:gosec // G124: Lax, see loginCookie
	c.SameSite, c.MaxAge = http.SameSiteLaxMode, int(loginTime/time.Second)
	return c, err
}

// loginStateOf reads the cookie of a login. Only this page can have set it.
func loginStateOf(r *http.Request) (l loginState, ok bool) {
	c, err := r.Cookie(loginCookie)
	if err != nil || len(c.Value) > maxLogin {
		return l, false
	}
	b, err := base64.RawURLEncoding.DecodeString(c.Value)
	return l, err == nil && json.Unmarshal(b, &l) == nil && l.State != "" && l.Nonce != "" && l.Verifier != ""
}
