package mcpserve

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
)

// oauthScope is what the service wants a token of another issuer to be good
// for (internal/oauth, which nothing here may link).
const oauthScope = "bailiwick"

const wellKnown = "/.well-known/oauth-protected-resource"

// metadata says where tokens of another issuer come from (RFC 9728). Whether
// one is good the service decides, which has the issuer's keys; here is only
// what a client reads before it has any.
type metadata struct {
	paths []string // where it is served: with the resource's path behind, and without
	url   string
	body  []byte
}

// newMetadata returns nil where no issuer is configured.
func newMetadata(issuer, resource string) (*metadata, error) {
	if issuer == "" && resource == "" {
		return nil, nil
	}
	if issuer == "" || resource == "" {
		return nil, errors.New("--oauth-issuer and --resource: name both")
	}
	if _, err := plainURL(issuer); err != nil {
		return nil, fmt.Errorf("--oauth-issuer %q: %w", issuer, err)
	}
	u, err := plainURL(resource)
	if err != nil {
		return nil, fmt.Errorf("--resource %q: %w", resource, err)
	}
	if u.Path != mcpPath {
		return nil, fmt.Errorf("--resource %q: the path must be %s, as clients call it", resource, mcpPath)
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

// plainURL wants https, or http to this machine, and nothing that could mean
// something else to somebody else.
func plainURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, errors.New("not a URL")
	}
	addr, err := netip.ParseAddr(u.Hostname())
	local := u.Hostname() == "localhost" || err == nil && addr.IsLoopback()
	if u.Scheme != "https" && (u.Scheme != "http" || !local) || !isHost(u.Hostname()) || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.String() != s {
		return nil, errors.New("want https://HOST[:PORT]/PATH and nothing behind it")
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
