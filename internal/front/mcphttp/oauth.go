package mcphttp

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"

	"github.com/bailiwick-dev/bailiwick/internal/base/httpguard"
)

// oauthScope is the scope that the service requires of tokens of another issuer
// (internal/state/oauth, which this package may not link).
const oauthScope = "bailiwick"

const wellKnown = "/.well-known/oauth-protected-resource"

// metadata is the protected resource metadata (RFC 9728) that tells a client
// where to get a token. The service, which has the issuer's keys, verifies it.
type metadata struct {
	paths []string // where it is served: with and without the resource's path
	url   string
	body  []byte
}

// newMetadata returns nil if no issuer is configured.
func newMetadata(issuer, resource string) (*metadata, error) {
	if issuer == "" && resource == "" {
		return nil, nil
	}
	if issuer == "" || resource == "" {
		return nil, errors.New("--oauth-issuer and --resource: give both")
	}
	if _, err := plainURL(issuer); err != nil {
		return nil, fmt.Errorf("--oauth-issuer %q: %w", issuer, err)
	}
	u, err := plainURL(resource)
	if err != nil {
		return nil, fmt.Errorf("--resource %q: %w", resource, err)
	}
	if u.Path != Path {
		return nil, fmt.Errorf("--resource %q: the path must be %s, as clients call it", resource, Path)
	}
	m := &metadata{
		paths: []string{wellKnown, wellKnown + u.Path}, url: u.Scheme + "://" + u.Host + wellKnown + u.Path,
	}
	m.body, err = json.Marshal(map[string]any{
		"resource": resource, "authorization_servers": []string{issuer}, "bearer_methods_supported": []string{"header"},
		"scopes_supported": []string{oauthScope}, "resource_name": "Bailiwick",
	})
	return m, err
}

// plainURL accepts https URLs, and http ones of this machine, without user,
// query or fragment, in the one spelling that net/url writes.
func plainURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, errors.New("not a URL")
	}
	addr, err := netip.ParseAddr(u.Hostname())
	local := u.Hostname() == "localhost" || err == nil && addr.IsLoopback()
	if u.Scheme != "https" && (u.Scheme != "http" || !local) || !httpguard.IsHost(u.Hostname()) || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.String() != s {
		return nil, errors.New("want https://HOST[:PORT]/PATH without user, query or fragment")
	}
	return u, nil
}

func (m *metadata) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(m.body)
}
