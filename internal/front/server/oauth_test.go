package server

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/oauth"
)

// issued returns a house that accepts an issuer's tokens, and a function that makes
// them.
func issued(t *testing.T) (*house, func(subject string, good time.Duration, scope string) string) {
	t.Helper()
	const issuer, audience = "https://idp.example", "https://mcp.example/mcp"
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	set := fmt.Sprintf(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k","x":%q}]}`, base64.RawURLEncoding.EncodeToString(public))
	h := newHouse(t, func(h *house, cfg *Config) {
		cfg.OAuth = must[*oauth.Verifier](t)(oauth.New(oauth.Config{
			Issuer: issuer, Audience: audience, Now: h.now, Keys: func(context.Context) ([]byte, error) { return []byte(set), nil },
		}))
	})
	h.decide(api.VerbPrincipalAdd, func(r *api.OperatorRecord) {
		r.Principal, r.OAuth = "agent:remote", &api.OAuthSubject{Issuer: issuer, Subject: "s-1"}
	})
	return h, func(subject string, good time.Duration, scope string) string {
		token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{"iss": issuer, "aud": audience, "sub": subject, "scope": scope, "exp": h.now().Add(good).Unix()})
		token.Header["kid"] = "k"
		return must[string](t)(token.SignedString(private))
	}
}

// proves R-T4
func TestAHandleEndsWithTheIssuersToken(t *testing.T) {
	h, token := issued(t)
	short, long := h.session(token("s-1", 2*time.Minute, oauth.Scope)), h.session(token("s-1", time.Hour, oauth.Scope))
	if d := short.ExpiresAt.Sub(h.now()); d > 3*time.Minute {
		t.Errorf("the handle of a token of 2 minutes is good for %s", d)
	}
	if d := long.ExpiresAt.Sub(h.now()); d > sessionTime {
		t.Errorf("the handle of a token of an hour is good for %s", d)
	}
	for _, s := range []api.Session{short, long} {
		if w, a := h.who(api.SessionHeader, s.Handle); w.Principal != "agent:remote" || s.Ceiling != api.Observe {
			t.Fatalf("positive control: %+v", a)
		}
	}
	if a := h.elsewhere(0, "GET", "/v1/runtime/who", "", api.SessionHeader, long.Handle); a.status != http.StatusUnauthorized {
		t.Errorf("another process uses it: %+v", a)
	}
	h.pass(3 * time.Minute)
	_, a := h.who(api.SessionHeader, short.Handle)
	h.unauthenticated("a handle whose token has ended", a, "session")
	if w, a := h.who(api.SessionHeader, long.Handle); w.Principal != "agent:remote" {
		t.Errorf("the handle of another token ended too: %+v", a)
	}
	for range maxSessions { // of any tokens of the principal
		h.session(token("s-1", time.Hour, oauth.Scope))
	}
	_, a = h.who(api.SessionHeader, long.Handle)
	h.unauthenticated("the oldest of too many handles", a, "unknown handle")
}

// proves R-T4
func TestTheHandlesOfARemovedPrincipalEndAtOnce(t *testing.T) {
	h, token := issued(t)
	jwt := token("s-1", time.Hour, oauth.Scope)
	s := h.session(jwt)
	if w, a := h.who(api.SessionHeader, s.Handle); w.Principal != "agent:remote" {
		t.Fatalf("positive control: %+v", a)
	}
	h.decide(api.VerbPrincipalRemove, func(r *api.OperatorRecord) { r.Principal = "agent:remote" })
	_, a := h.who(api.SessionHeader, s.Handle)
	h.unauthenticated("the handle of a removed principal", a, "no longer active")
	h.unauthenticated("its token", h.exchange(jwt), "no principal has its subject")
}

// proves R-T4, R-A3
func TestInvalidIssuerTokensAreThrottledAndLogged(t *testing.T) {
	h, token := issued(t)
	good := token("s-1", time.Hour, oauth.Scope)
	h.unauthenticated("an unknown subject", h.exchange(token("root", time.Hour, oauth.Scope)), "no principal has its subject", "root")
	h.unauthenticated("a changed token", h.exchange(good[:len(good)-4]+"AAAA"), "signature")
	h.unauthenticated("the form of ours", h.exchange(api.TokenPrefix+good), "want bwt_")
	if a := h.exchange(token("s-1", time.Hour, "openid")); a.status != http.StatusForbidden || a.err(t).Code != api.CodeDenied || a.err(t).AuditEntry == nil {
		t.Errorf("without the scope: %+v", a)
	}
	kinds := map[int]int{}
	for i := range 200 {
		kinds[h.exchange(token("s-1", time.Hour, "openid")).status]++
		kinds[h.exchange(token(fmt.Sprint(i), time.Hour, oauth.Scope)).status]++
		if i%50 == 0 {
			h.session(good)
		}
	}
	if kinds[http.StatusTooManyRequests] < 385 || kinds[http.StatusForbidden]+kinds[http.StatusUnauthorized] > 12 {
		t.Errorf("answers by status: %v", kinds)
	}
	for _, c := range h.logged(record.KindAuthRefused) {
		if strings.Contains(c.Line().Text, "eyJ") {
			t.Errorf("the log contains a token: %s", c.Line().Text)
		}
	}
}
