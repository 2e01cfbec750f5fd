package mcpserve

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
)

const wellKnown = "/.well-known/oauth-protected-resource"

// metadata says where tokens of another issuer come from (RFC 9728). Whether
// one is good the service decides, which has the issuer's keys; here is only
// what a client reads before it has any.
type metadata struct {
	paths []string // where it is served: with the resource's path behind, and without
	url   string
	scope string // what a token must be good for; empty: nothing in particular
	body  []byte
}

// newMetadata returns nil where no issuer is configured.
func newMetadata(issuer, resource, scope string) (*metadata, error) {
	if issuer == "" && resource == "" && scope == "" {
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
		paths: []string{wellKnown, wellKnown + u.Path}, url: u.Scheme + "://" + u.Host + wellKnown + u.Path, scope: scope,
	}
	doc := map[string]any{
		"resource": resource, "authorization_servers": []string{issuer}, "bearer_methods_supported": []string{"header"}, "resource_name": "Bailiwick",
	}
	if scope != "" {
		if !isScope(scope) {
			return nil, fmt.Errorf("--oauth-scope %q: want one scope", scope)
		}
		doc["scopes_supported"] = []string{scope}
	}
	m.body, err = json.Marshal(doc)
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
	if u.Scheme != "https" && (u.Scheme != "http" || !local) || u.Host == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.String() != s {
		return nil, errors.New("want https://HOST[:PORT]/PATH and nothing behind it")
	}
	return u, nil
}

// isScope is the form of RFC 6749 §3.3.
func isScope(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return s != ""
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
