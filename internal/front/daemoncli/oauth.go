package daemoncli

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
	"github.com/bailiwick-dev/bailiwick/internal/state/oauth"
)

// oauthSettings is the external issuer whose tokens are accepted. The zero value
// means that no issuer is configured.
type oauthSettings struct {
	Issuer, Audience string
	JWKS             string // an absolute path, or an https URL
}

func (r *settingsReader) oauth(n *yaml.Node) {
	o := &r.s.OAuth
	before := r.Len()
	r.Fields(n, "oauth", map[string]func(*yaml.Node){
		"issuer":   func(n *yaml.Node) { o.Issuer = r.Line(n, "oauth.issuer") },
		"audience": func(n *yaml.Node) { o.Audience = r.Line(n, "oauth.audience") },
		"jwks":     func(n *yaml.Node) { o.JWKS = r.keySet(n) },
	})
	if r.Len() > before {
		return
	}
	if o.Issuer == "" || o.Audience == "" || o.JWKS == "" {
		r.At(n, "oauth: write all of issuer, audience and jwks")
	} else if err := (oauth.Config{Issuer: o.Issuer, Audience: o.Audience}).Check(); err != nil {
		r.At(n, "%v", err)
	}
}

func (r *settingsReader) keySet(n *yaml.Node) string {
	before := r.Len()
	s := r.Line(n, "oauth.jwks")
	if r.Len() == before && (!filepath.IsAbs(s) || filepath.Clean(s) != s) {
		if _, err := dialFor(s); err != nil {
			r.At(n, "oauth.jwks: %q: %v", strictyaml.Clip(s), err)
		}
	}
	return s
}

// dialFor returns the dialer for the host of an https URL, which must be public or
// a numeric loopback address.
func dialFor(address string) (egress.DialFunc, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.User != nil || u.Fragment != "" || u.String() != address {
		return nil, errors.New("want /absolute/path or https://HOST[:PORT]/PATH")
	}
	port, err := strconv.ParseUint(cmp.Or(u.Port(), "443"), 10, 16)
	if err != nil || port == 0 {
		return nil, errors.New("invalid port")
	}
	if err := egress.CheckHost(u.Hostname()); err != nil {
		return nil, err
	}
	public := egress.Public(egress.Config{}).DialContext
	a, nameErr := netip.ParseAddr(u.Hostname())
	switch {
	case nameErr != nil:
		return public, nil //nolint:nilerr // a name: its addresses are checked when it is resolved
	case !a.IsLoopback():
		return public, egress.Judge(a)
	}
	d, err := egress.Only(netip.AddrPortFrom(a, uint16(port)))
	if err != nil {
		return nil, err
	}
	return d.DialContext, nil
}

// issuerCheck is doctor's check of the external issuer. It fetches its keys.
func (t *doctor) issuerCheck(ctx context.Context) []check {
	s, err := t.settings()
	if err != nil || s.OAuth == (oauthSettings{}) {
		return nil // reported by configCheck
	}
	v, err := t.issuer(ctx, s.OAuth)
	if err == nil {
		err = v.Load(ctx)
	}
	if err != nil {
		return []check{{name: "oauth", found: err.Error(), fix: "no token of " + s.OAuth.Issuer + " can be verified; check oauth.jwks in " + s.File}}
	}
	return []check{{name: "oauth", ok: true, found: "tokens of " + s.OAuth.Issuer + " for " + s.OAuth.Audience + ", by the keys at " + s.OAuth.JWKS}}
}

// issuer returns the verifier of the configured issuer's tokens; nil without one.
// A key file must be valid at the start; keys of a URL are fetched when needed.
func (t *tree) issuer(ctx context.Context, o oauthSettings) (*oauth.Verifier, error) {
	if o == (oauthSettings{}) {
		return nil, nil
	}
	cfg := oauth.Config{Issuer: o.Issuer, Audience: o.Audience, Now: t.Now}
	file := filepath.IsAbs(o.JWKS)
	if file {
		cfg.Keys = func(context.Context) ([]byte, error) { return t.files().read(o.JWKS) }
	} else {
		dial, err := dialFor(o.JWKS)
		if err != nil {
			return nil, err
		}
		cfg.Keys = oauth.FromURL(egress.Client(egress.ClientConfig{Dial: dial}), o.JWKS)
	}
	v, err := oauth.New(cfg)
	if err == nil && file {
		err = v.Load(ctx)
	}
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "oauth.jwks %s: %w", o.JWKS, err).WithHint("write the issuer's key set (RFC 7517) there")
	}
	return v, nil
}
