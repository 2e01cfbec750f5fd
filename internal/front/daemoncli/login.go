package daemoncli

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
	"github.com/bailiwick-dev/bailiwick/internal/state/login"
	"github.com/bailiwick-dev/bailiwick/internal/state/oauth"
)

// loginSettings is how people log in. The zero value: with passkeys only, for the default
// times.
type loginSettings struct {
	Issuer, Client, Groups string
	Address                string // IP:PORT of an issuer that is not public
	CA                     string // path of the certificates that its own must chain to
	Idle, Lifetime         time.Duration
}

func (r *settingsReader) login(n *yaml.Node) {
	to := &r.s.Login
	before := r.Len()
	r.Fields(n, "login", map[string]func(*yaml.Node){
		"issuer":   func(n *yaml.Node) { to.Issuer = r.Line(n, "login.issuer") },
		"client":   func(n *yaml.Node) { to.Client = r.Line(n, "login.client") },
		"groups":   func(n *yaml.Node) { to.Groups = r.Line(n, "login.groups") },
		"address":  func(n *yaml.Node) { to.Address = r.Line(n, "login.address") },
		"ca":       func(n *yaml.Node) { to.CA = r.path(n, "login.ca") },
		"idle":     func(n *yaml.Node) { to.Idle = r.age(n, "login.idle") },
		"lifetime": func(n *yaml.Node) { to.Lifetime = r.age(n, "login.lifetime") },
	})
	if r.Len() > before {
		return
	}
	if err := to.check(); err != nil {
		r.At(n, "%v", err)
	}
}

func (s loginSettings) check() error {
	if s.Issuer == "" && (s.Client != "" || s.Groups != "" || s.Address != "" || s.CA != "") {
		return errors.New("login: write issuer and client, or neither, groups, address nor ca")
	}
	if s.Issuer != "" {
		if s.Client == "" || len(s.Client) > 255 {
			return errors.New("login.client: want the id that the issuer knows this service by")
		}
		if err := (oauth.Config{Issuer: s.Issuer, Audience: s.Issuer}).Check(); err != nil {
			return fmt.Errorf("login.issuer: %q: want https://HOST[:PORT]/PATH without query or fragment", s.Issuer)
		}
		if _, err := s.dial(); err != nil {
			return fmt.Errorf("login.issuer: %q: %w", s.Issuer, err)
		}
	}
	switch idle, lifetime := s.times(); {
	case lifetime > login.MaxLifetime:
		return fmt.Errorf("login.lifetime: at most %s", login.MaxLifetime)
	case idle < time.Minute || idle > lifetime:
		return fmt.Errorf("login.idle: want at least 1m and at most the lifetime of %s", lifetime)
	}
	return nil
}

func (s loginSettings) meaning(all map[string]string) {
	all["login.issuer"], all["login.client"], all["login.groups"] = s.Issuer, s.Client, s.Groups
	all["login.address"], all["login.ca"] = s.Address, s.CA
	all["login.idle"], all["login.lifetime"] = span(s.Idle), span(s.Lifetime)
}

func (s loginSettings) times() (idle, lifetime time.Duration) {
	idle, lifetime = login.DefaultIdle, login.DefaultLifetime
	if s.Lifetime != 0 {
		lifetime = s.Lifetime
		idle = min(idle, lifetime)
	}
	if s.Idle != 0 {
		idle = s.Idle
	}
	return idle, lifetime
}

// dial returns the dialer for the issuer: for the address that the administrator wrote, or
// for a public or numeric loopback one.
func (s loginSettings) dial() (egress.DialFunc, error) {
	if s.Address == "" {
		return dialFor(s.Issuer)
	}
	d, err := egress.Signed(s.Address)
	if err != nil {
		return nil, fmt.Errorf("login.address: %w", err)
	}
	return d.DialContext, nil
}

// people is who logs in at the service.
type people struct {
	service  *service
	sessions *login.Sessions
	provider *login.Provider // nil: no issuer is configured
	passkeys *login.Passkeys
}

// openPeople restores the sessions of people, and reaches for no provider: the service
// starts while it is away.
func (s *service) openPeople(ctx context.Context) (*people, error) {
	set := s.set.Login
	p := &people{service: s, passkeys: login.NewPasskeys(s.registry, string(s.keys.history.First().ID), s.t.Now)}
	if set.Issuer != "" {
		dial, err := set.dial()
		var roots *x509.CertPool
		if err == nil {
			roots, err = s.t.roots(set.CA)
		}
		if err != nil {
			return nil, api.Errorf(api.CodeInvalid, "login: %w", err)
		}
		p.provider = login.NewProvider(login.ProviderConfig{
			Issuer: set.Issuer, Client: set.Client, Groups: set.Groups, Now: s.t.Now, HTTP: egress.Client(egress.ClientConfig{Dial: dial, Roots: roots, Allow: login.Limit(s.t.Now)}),
		})
	}
	idle, lifetime := set.times()
	var err error
	p.sessions, err = login.Open(ctx, login.Config{Ledger: s.ledger, Now: s.t.Now, Idle: idle, Lifetime: lifetime, Valid: p.valid})
	return p, err
}

// roots reads certificates in PEM. Without a path it returns nil, which stands for the system's.
func (t *tree) roots(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // of the system
	}
	b, err := t.files().read(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("%s: no certificate in PEM", path)
	}
	return pool, nil
}

// Person maps an identity of the provider to a person of the signed catalog. The provider
// has to confirm each group that the catalog lists the person in.
func (p *people) Person(ctx context.Context, who login.Identity) (login.Identity, error) {
	rules, err := p.service.inForce.Current(ctx)
	if err != nil {
		return who, err
	}
	unknown := api.Errorf(api.CodeUnauthenticated, "ID token: the catalog maps no person to subject %.80q of %s", who.Subject, who.Issuer).
		WithHint("people who sign the catalog add it to identities, with this subject; see docs/manifest.md")
	if rules.Revision == nil {
		return who, unknown
	}
	identity, ok := rules.Revision.Set().Identity(who.Issuer, p.service.set.Login.Client)
	if !ok {
		return who, unknown
	}
	person, ok := identity.Person(who.Subject)
	if !ok {
		return who, unknown
	}
	confirmed := []string{}
	for _, g := range person.Groups {
		if !slices.Contains(who.Groups, identity.Groups[g]) {
			return who, api.Errorf(api.CodeUnauthenticated, "ID token: %s is in group %s of the catalog, but the provider no longer says that the person is in %.80q", person.Principal, g, identity.Groups[g]).
				WithHint("add the person to the group at %s, or take the group from the person in the catalog", who.Issuer)
		}
		confirmed = append(confirmed, identity.Groups[g])
	}
	slices.Sort(confirmed)
	who.Principal, who.Groups = person.Principal, confirmed
	return who, nil
}

// valid refuses a session if its subject now maps to another person, or to none.
func (p *people) valid(ctx context.Context, who login.Identity) error {
	if who.Via == api.LoginPasskey {
		return p.passkeys.Valid(who)
	}
	now, err := p.Person(ctx, login.Identity{Via: who.Via, Issuer: who.Issuer, Subject: who.Subject, Groups: who.Groups})
	if err == nil && now.Principal != who.Principal {
		err = api.Errorf(api.CodeUnauthenticated, "its person is %s now", now.Principal)
	}
	return err
}
