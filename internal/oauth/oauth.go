// Package oauth verifies access tokens of one other issuer, as an OAuth 2.1
// resource server does (R-T4): JWTs that the issuer signed for this service and
// no other.
//
// It says whose token it is in the issuer's words. Who that is here, only an
// operator's record says (internal/operator): a token of a subject that no
// operator named is worth nothing. A token is verified and forgotten; it is
// never kept, passed on, or in an error (R-T6).
//
// What it takes is narrow on purpose: three algorithms, keys by name from the
// configured set and from nowhere in the token, one issuer, one audience, an
// end that is near. Everything else is refused.
package oauth

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
)

// Scope is what a token must be good for.
const Scope = "bailiwick"

const (
	maxToken   = 8 << 10
	maxKeyID   = 256
	maxSubject = 255
	leeway     = 30 * time.Second // between the issuer's clock and ours
	// maxTime is how far the end of a token may be: nobody can call it back.
	maxTime = 24 * time.Hour
	latest  = 1e11 // seconds since 1970
)

// Config is what a Verifier trusts.
type Config struct {
	Issuer   string // as in iss, exactly
	Audience string // the resource, as in aud, exactly
	// Keys returns the issuer's key set (RFC 7517): FromURL, or the content of
	// a file that only those write who may say whom to trust.
	Keys func(context.Context) ([]byte, error)
	Now  func() time.Time
}

// Check refuses what cannot be meant.
func (c Config) Check() error {
	for what, s := range map[string]string{"issuer": c.Issuer, "audience": c.Audience} {
		u, err := url.Parse(s)
		if err != nil || !secure(u, what == "audience") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.String() != s || len(s) > 500 {
			return fmt.Errorf("oauth.%s: %.80q: want https://HOST[:PORT]/PATH and nothing behind it", what, s)
		}
	}
	return nil
}

// secure reports whether nobody on the way can read or change what is meant. An
// audience may be plain HTTP on this machine, where a server without TLS is.
func secure(u *url.URL, local bool) bool {
	if u.Scheme != "http" || !local {
		return u.Scheme == "https"
	}
	a, err := netip.ParseAddr(u.Hostname())
	return err == nil && a.IsLoopback() || u.Hostname() == "localhost"
}

// Token is what a verified token says.
type Token struct {
	api.OAuthSubject
	ExpiresAt time.Time // what the clocks may differ included
}

// Verifier verifies tokens. It is safe for concurrent use.
type Verifier struct {
	cfg    Config
	keys   *keyring
	parser *jwt.Parser
}

// New returns a verifier that has asked for no keys yet.
func New(cfg Config) (*Verifier, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	return &Verifier{cfg: cfg, keys: &keyring{fetch: cfg.Keys, now: cfg.Now}, parser: jwt.NewParser(
		jwt.WithValidMethods(algorithms()), jwt.WithStrictDecoding(), jwt.WithJSONNumber(),
		jwt.WithIssuer(cfg.Issuer), jwt.WithAudience(cfg.Audience), jwt.WithExpirationRequired(), jwt.WithIssuedAt(),
		jwt.WithLeeway(leeway), jwt.WithTimeFunc(cfg.Now),
	)}, nil
}

// algorithms are those that are believed. None of them has a key that both
// sides share, and none is "none".
func algorithms() []string { return []string{"ES256", "RS256", "EdDSA"} }

// Load gets the keys now.
func (v *Verifier) Load(ctx context.Context) error { return v.keys.load(ctx) }

// Verify returns what a token says if it is good. One that is good but not for
// this scope is api.CodeDenied; the token is returned with it. Any other
// error is api.CodeUnauthenticated, or api.CodeInternal where the issuer's keys
// cannot be had.
func (v *Verifier) Verify(ctx context.Context, text string) (Token, error) {
	if err := checkForm(text); err != nil {
		return Token{}, refused(err)
	}
	claims := jwt.MapClaims{} // not a struct: its names are exact
	var unavailable error
	_, err := v.parser.ParseWithClaims(text, claims, func(t *jwt.Token) (any, error) {
		k, err := v.keyOf(ctx, t)
		if errors.Is(err, errNoKeys) {
			unavailable = err
		}
		return k, err
	})
	if unavailable != nil {
		return Token{}, api.Errorf(api.CodeInternal, "the keys of issuer %s: %w", v.cfg.Issuer, unavailable).WithHint("see to oauth.jwks in the service's configuration; tokens of this service still count")
	}
	if err != nil {
		return Token{}, refused(err)
	}
	subject, expires, err := v.read(claims)
	if err != nil {
		return Token{}, refused(err)
	}
	t := Token{api.OAuthSubject{Issuer: v.cfg.Issuer, Subject: subject}, expires}
	if scopes, _ := claims["scope"].(string); !contains(scopes, Scope) {
		return t, api.Errorf(api.CodeDenied, "token of another issuer: insufficient_scope: it is not for the scope %q", Scope).WithHint("ask the issuer for a token with that scope")
	}
	return t, nil
}

func refused(err error) *api.Error {
	return api.Errorf(api.CodeUnauthenticated, "token of another issuer: %w", err).WithHint("get another one from the issuer")
}

func contains(list, word string) bool {
	for s := range strings.SplitSeq(list, " ") {
		if s == word {
			return true
		}
	}
	return false
}

// checkForm refuses what two readers could understand differently, before
// anything is made of it.
func checkForm(text string) error {
	if len(text) > maxToken {
		return fmt.Errorf("%d bytes, more than %d", len(text), maxToken)
	}
	parts := strings.Split(text, ".")
	// Decoders of base64 skip line breaks, so that a token had many spellings.
	if len(parts) != 3 || strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "" {
		return errors.New("not a signed JWT")
	}
	for _, part := range parts[:2] {
		b, err := base64.RawURLEncoding.Strict().DecodeString(part)
		if err != nil || len(b) == 0 || b[0] != '{' {
			return errors.New("not a signed JWT")
		}
		if _, err := canon.Canonicalize(b); err != nil {
			return err
		}
	}
	return nil
}

// keyOf returns the key by which a token must be signed: the one of that name
// in the issuer's set, if it is for that algorithm.
func (v *Verifier) keyOf(ctx context.Context, t *jwt.Token) (any, error) {
	if _, ok := t.Header["crit"]; ok {
		return nil, errors.New("crit: it must be understood, and is not")
	}
	if kind, ok := t.Header["typ"]; ok {
		s, _ := kind.(string)
		switch strings.ToLower(s) {
		case "at+jwt", "application/at+jwt", "jwt":
		default:
			return nil, errors.New("typ: it is no access token")
		}
	}
	id, _ := t.Header["kid"].(string)
	if id == "" || len(id) > maxKeyID {
		return nil, errors.New("kid: it does not name its key")
	}
	k, err := v.keys.find(ctx, id)
	if err != nil {
		return nil, err
	}
	if k.alg != t.Method.Alg() {
		return nil, fmt.Errorf("its key is for %s", k.alg)
	}
	return k.public, nil
}

// read takes what is needed from claims that the parser has found good, where
// the parser is more generous than we are.
func (v *Verifier) read(claims jwt.MapClaims) (subject string, expires time.Time, err error) {
	for _, name := range []string{"exp", "nbf", "iat"} {
		// A number beyond what a time can hold would become some other time.
		if n, ok := claims[name].(json.Number); ok {
			if f, err := n.Float64(); err != nil || f < 0 || f > latest {
				return "", expires, errors.New(name + ": it is no time")
			}
		}
	}
	if _, ok := claims["cnf"]; ok {
		return "", expires, errors.New("cnf: it is bound to a key that its client does not show here")
	}
	audience, err := claims.GetAudience()
	if err != nil || len(audience) != 1 || audience[0] != v.cfg.Audience {
		return "", expires, errors.New("aud: it is not for this service alone")
	}
	end, err := claims.GetExpirationTime()
	if err != nil || end == nil {
		return "", expires, errors.New("exp: it has no end")
	}
	now := v.cfg.Now()
	expires = end.Add(leeway)
	if !expires.After(now) || end.After(now.Add(maxTime)) {
		return "", expires, fmt.Errorf("exp: it has ended, or ends later than %s from now", maxTime)
	}
	subject, _ = claims["sub"].(string)
	if subject == "" || len(subject) > maxSubject {
		return "", expires, errors.New("sub: it is about nobody")
	}
	return subject, expires, nil
}

// FromURL returns a source of keys that asks an https URL through c, which is a
// client of internal/egress.
func FromURL(c *http.Client, address string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) { return get(ctx, c, address) }
}
