// Package oauth verifies access tokens of one external issuer, as an OAuth 2.1
// resource server does (R-T4): JWTs that the issuer signed for this service alone.
//
// It returns the issuer's subject. Only an operator's record maps a subject to a
// principal (internal/state/operator); the token of any other subject is worthless. A
// token is never kept, passed on or put into an error (R-T6).
//
// It accepts little on purpose: three algorithms, keys by id from the configured
// set and never from the token, one issuer, one audience, a short lifetime.
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
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// Scope is the scope that a token must have.
const Scope = "bailiwick"

const (
	maxToken   = 8 << 10
	maxKeyID   = 256
	maxSubject = 255
	leeway     = 30 * time.Second // between the issuer's clock and ours
	// maxTime bounds the remaining lifetime of a token, which cannot be revoked here.
	maxTime = 24 * time.Hour
	latest  = 1e11 // seconds since 1970
)

// Config is what a Verifier trusts.
type Config struct {
	Issuer   string // as in iss, exactly
	Audience string // the resource, as in aud, exactly
	// Keys returns the issuer's key set (RFC 7517): FromURL, or the content of a file
	// that only trusted accounts may write.
	Keys func(context.Context) ([]byte, error)
	Now  func() time.Time
}

// Check validates the issuer and audience.
func (c Config) Check() error {
	for what, s := range map[string]string{"issuer": c.Issuer, "audience": c.Audience} {
		u, err := url.Parse(s)
		if err != nil || !secure(u, what == "audience") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.String() != s || len(s) > 500 {
			return fmt.Errorf("oauth.%s: %.80q: want https://HOST[:PORT]/PATH without query or fragment", what, s)
		}
	}
	return nil
}

// secure reports whether u is https. An audience may be plain HTTP on this
// machine, for a server without TLS.
func secure(u *url.URL, local bool) bool {
	if u.Scheme != "http" || !local {
		return u.Scheme == "https"
	}
	a, err := netip.ParseAddr(u.Hostname())
	return err == nil && a.IsLoopback() || u.Hostname() == "localhost"
}

// Token is the content of a verified token.
type Token struct {
	api.OAuthSubject
	ExpiresAt time.Time // including the clock leeway
}

// Verifier verifies tokens. It is safe for concurrent use.
type Verifier struct {
	cfg    Config
	keys   *keyring
	parser *jwt.Parser
}

// New returns a verifier that has not fetched any keys yet.
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

// algorithms lists the accepted algorithms, all with asymmetric keys.
func algorithms() []string { return []string{"ES256", "RS256", "EdDSA"} }

// Load fetches the keys now.
func (v *Verifier) Load(ctx context.Context) error { return v.keys.load(ctx) }

// Verify verifies a token. For a valid token without Scope it returns the token
// and api.CodeDenied. Its other errors are api.CodeUnauthenticated, and
// api.CodeInternal when the issuer's keys are unavailable.
func (v *Verifier) Verify(ctx context.Context, text string) (Token, error) {
	if err := checkForm(text); err != nil {
		return Token{}, refused(err)
	}
	claims := jwt.MapClaims{} // unlike a struct, matches names exactly
	var unavailable error
	_, err := v.parser.ParseWithClaims(text, claims, func(t *jwt.Token) (any, error) {
		k, err := v.keyOf(ctx, t)
		if errors.Is(err, errNoKeys) {
			unavailable = err
		}
		return k, err
	})
	if unavailable != nil {
		return Token{}, api.Errorf(api.CodeInternal, "keys of issuer %s: %w", v.cfg.Issuer, unavailable).WithHint("check oauth.jwks in the service's configuration; the service's own tokens still work")
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
		return t, api.Errorf(api.CodeDenied, "token of another issuer: insufficient_scope: it lacks the scope %q", Scope).WithHint("ask the issuer for a token with that scope")
	}
	return t, nil
}

func refused(err error) *api.Error {
	return api.Errorf(api.CodeUnauthenticated, "token of another issuer: %w", err).WithHint("get a new one from the issuer")
}

func contains(list, word string) bool {
	for s := range strings.SplitSeq(list, " ") {
		if s == word {
			return true
		}
	}
	return false
}

// checkForm refuses tokens that two parsers could read differently.
func checkForm(text string) error {
	if len(text) > maxToken {
		return fmt.Errorf("%d bytes, more than %d", len(text), maxToken)
	}
	parts := strings.Split(text, ".")
	// Base64 decoders skip line breaks, which would give a token many spellings.
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

// keyOf returns the key of the issuer's set that a token names, if it is for the
// token's algorithm.
func (v *Verifier) keyOf(ctx context.Context, t *jwt.Token) (any, error) {
	if _, ok := t.Header["crit"]; ok {
		return nil, errors.New("crit: unsupported critical header")
	}
	if kind, ok := t.Header["typ"]; ok {
		s, _ := kind.(string)
		switch strings.ToLower(s) {
		case "at+jwt", "application/at+jwt", "jwt":
		default:
			return nil, errors.New("typ: not an access token")
		}
	}
	id, _ := t.Header["kid"].(string)
	if id == "" || len(id) > maxKeyID {
		return nil, errors.New("kid: missing or too long")
	}
	k, err := v.keys.find(ctx, id)
	if err != nil {
		return nil, err
	}
	if k.alg != t.Method.Alg() {
		return nil, fmt.Errorf("the key is for %s", k.alg)
	}
	return k.public, nil
}

// read returns the subject and expiry from claims that the parser has accepted,
// and checks what the parser does not.
func (v *Verifier) read(claims jwt.MapClaims) (subject string, expires time.Time, err error) {
	for _, name := range []string{"exp", "nbf", "iat"} {
		// A number out of a time's range would wrap around.
		if n, ok := claims[name].(json.Number); ok {
			if f, err := n.Float64(); err != nil || f < 0 || f > latest {
				return "", expires, errors.New(name + ": not a time")
			}
		}
	}
	if _, ok := claims["cnf"]; ok {
		return "", expires, errors.New("cnf: key-bound tokens are not supported")
	}
	audience, err := claims.GetAudience()
	if err != nil || len(audience) != 1 || audience[0] != v.cfg.Audience {
		return "", expires, errors.New("aud: not for this service alone")
	}
	end, err := claims.GetExpirationTime()
	if err != nil || end == nil {
		return "", expires, errors.New("exp: missing")
	}
	now := v.cfg.Now()
	expires = end.Add(leeway)
	if !expires.After(now) || end.After(now.Add(maxTime)) {
		return "", expires, fmt.Errorf("exp: expired, or more than %s from now", maxTime)
	}
	subject, _ = claims["sub"].(string)
	if subject == "" || len(subject) > maxSubject {
		return "", expires, errors.New("sub: missing or too long")
	}
	return subject, expires, nil
}

// FromURL returns a function for Config.Keys that fetches an https URL with c, a
// client of internal/base/egress.
func FromURL(c *http.Client, address string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) { return get(ctx, c, address) }
}
