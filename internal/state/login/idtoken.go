package login

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/time/rate"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
)

const (
	maxIDToken = 16 << 10
	maxSubject = 255 // OpenID Connect Core, section 2
	maxGroups  = 1000
	maxGroup   = 255
	// maxAge is how old an ID token may be: a login has just happened.
	maxAge = 10 * time.Minute
	// freshTime is how long the provider's configuration and keys are used, so that a key
	// that it withdraws works at most this much longer.
	freshTime = 10 * time.Minute
	// Limit bounds requests to the provider: made-up tokens must not flood it.
	fetchEvery = 2 * time.Second
	fetchBurst = 10
)

// ProviderConfig is the identity provider of the team.
type ProviderConfig struct {
	Issuer string
	Client string       // the id that the provider knows this service by: the audience of its ID tokens
	Groups string       // the claim with the groups of a person; "" for groups
	HTTP   *http.Client // with Limit
	Now    func() time.Time
}

// Provider verifies the ID tokens of one provider. It fetches its configuration and keys
// when they are needed, so that the service starts while the provider is away. It is safe
// for concurrent use.
type Provider struct {
	cfg ProviderConfig

	mu       sync.Mutex
	verifier *oidc.IDTokenVerifier // guarded by mu
	until    time.Time             // verifier is used; guarded by mu
}

// NewProvider returns a Provider. It fetches nothing.
func NewProvider(cfg ProviderConfig) *Provider {
	if cfg.Groups == "" {
		cfg.Groups = "groups"
	}
	return &Provider{cfg: cfg}
}

// Limit bounds the requests to a provider; see egress.ClientConfig.
func Limit(now func() time.Time) (allow func() bool) {
	l := rate.NewLimiter(rate.Every(fetchEvery), fetchBurst)
	return func() bool { return l.AllowN(now(), 1) }
}

// Login says how a client logs in with the provider.
func (p *Provider) Login() *api.OIDCProvider {
	return &api.OIDCProvider{Issuer: p.cfg.Issuer, Client: p.cfg.Client, Scopes: []string{oidc.ScopeOpenID, "profile", "groups", oidc.ScopeOfflineAccess}}
}

// algorithms are the signatures that are accepted: none is symmetric, and none is "none".
func algorithms() []string { return []string{oidc.RS256, oidc.ES256, oidc.EdDSA, oidc.PS256} }

// current returns the verifier, from the provider's configuration if it is no longer fresh.
func (p *Provider) current(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Now()
	if p.verifier != nil && now.Before(p.until) && now.After(p.until.Add(-freshTime-time.Minute)) {
		return p.verifier, nil
	}
	// The keys are fetched later with the context of their set: it must not end with this request.
	found, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.cfg.HTTP), p.cfg.Issuer)
	if err != nil {
		return nil, err
	}
	p.verifier = found.VerifierContext(oidc.ClientContext(context.Background(), p.cfg.HTTP), &oidc.Config{ //nolint:contextcheck // see above
		ClientID: p.cfg.Client, SupportedSigningAlgs: algorithms(), Now: p.cfg.Now,
	})
	p.until = now.Add(freshTime)
	return p.verifier, nil
}

// claims are read in addition to the ones that the library verifies.
type claims struct {
	AuthorizedParty string `json:"azp"`
}

// Verify returns who an ID token is about: its issuer, subject and groups. nonce is the
// one that the login began with; a token without one, as of the device flow, needs an
// empty one.
func (p *Provider) Verify(ctx context.Context, text, nonce string) (Identity, error) {
	payload, err := inspect(text)
	if err != nil {
		return Identity{}, refused("ID token: %w", err)
	}
	verifier, err := p.current(ctx)
	if err != nil {
		return Identity{}, p.away(err)
	}
	t, err := verifier.Verify(ctx, text)
	if err != nil {
		if remote(err) {
			return Identity{}, p.away(err)
		}
		return Identity{}, refused("ID token: %w", brief(err))
	}
	var c claims
	if err := t.Claims(&c); err != nil {
		return Identity{}, refused("ID token: malformed claims")
	}
	age := p.cfg.Now().Sub(t.IssuedAt)
	switch {
	case t.Nonce != nonce:
		return Identity{}, refused("ID token: its nonce belongs to another login")
	case t.Subject == "" || len(t.Subject) > maxSubject:
		return Identity{}, refused("ID token: sub of %d bytes, want 1 to %d", len(t.Subject), maxSubject)
	case len(t.Audience) > 1 && c.AuthorizedParty == "", c.AuthorizedParty != "" && c.AuthorizedParty != p.cfg.Client:
		return Identity{}, refused("ID token: azp: it was issued to another client than %s", p.cfg.Client)
	case age > maxAge || age < -clockLead:
		return Identity{}, refused("ID token: issued at %s, and it is %s here: want one of the last %s", t.IssuedAt.UTC().Format(time.RFC3339), p.cfg.Now().UTC().Format(time.RFC3339), maxAge)
	}
	groups, err := groupsOf(payload, p.cfg.Groups)
	if err != nil {
		return Identity{}, refused("ID token: %w", err)
	}
	// The claims, not the text: a signature has several spellings.
	return Identity{Via: api.LoginOIDC, Issuer: t.Issuer, Subject: t.Subject, Groups: groups, Credential: api.DigestOf(payload)}, nil
}

// inspect returns the claims of a token before anything is verified, and refuses those
// that two readers could understand differently.
func inspect(text string) ([]byte, error) {
	if len(text) > maxIDToken {
		return nil, fmt.Errorf("larger than %d bytes", maxIDToken)
	}
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return nil, errors.New("want three parts: a JWT that is signed")
	}
	payload, err := base64.RawURLEncoding.Strict().DecodeString(parts[1])
	if err != nil {
		return nil, errors.New("malformed claims")
	}
	if _, err := canon.Canonicalize(payload); err != nil {
		return nil, errors.New("malformed claims")
	}
	return payload, nil
}

// groupsOf reads the claim with groups: a list of strings, or one.
func groupsOf(payload []byte, claim string) ([]string, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(payload, &members); err != nil || members[claim] == nil {
		return nil, nil //nolint:nilerr // it is an object, or the library has refused it
	}
	var list []string
	if err := json.Unmarshal(members[claim], &list); err != nil {
		var one string
		if json.Unmarshal(members[claim], &one) != nil {
			return nil, fmt.Errorf("%s: want a list of strings", claim)
		}
		list = []string{one}
	}
	if len(list) > maxGroups || slices.ContainsFunc(list, func(g string) bool { return len(g) > maxGroup }) {
		return nil, fmt.Errorf("%s: want at most %d groups of at most %d bytes", claim, maxGroups, maxGroup)
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// remote reports whether a verification failed because the provider did not answer.
func remote(err error) bool {
	return errors.Is(err, egress.ErrTooOften) || strings.Contains(err.Error(), "fetching keys")
}

// brief cuts the message of the library, which may quote the token.
func brief(err error) error {
	text := strings.TrimPrefix(err.Error(), "oidc: ")
	if expired := new(oidc.TokenExpiredError); errors.As(err, &expired) {
		return fmt.Errorf("it expired at %s", expired.Expiry.UTC().Format(time.RFC3339))
	}
	return fmt.Errorf("%.200s", text)
}

// away is the error while the provider does not answer.
func (p *Provider) away(err error) error {
	return api.Errorf(api.CodeUnavailable, "the identity provider %s does not answer: %.300s", p.cfg.Issuer, err.Error()).
		WithHint("sessions that are open stay valid until their end; log in again once it answers, or with a passkey or a token")
}
