package mcphttp

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// origins decides which web pages may call. Browsers send the page's origin;
// other clients send none.
type origins struct {
	allowed map[string]bool
	browser *http.CrossOriginProtection // checks Sec-Fetch-Site
}

func newOrigins(allowed []string) (*origins, error) {
	o := &origins{allowed: map[string]bool{}, browser: http.NewCrossOriginProtection()}
	for _, s := range allowed {
		u, err := url.Parse(s)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || s != u.Scheme+"://"+u.Host || s != strings.ToLower(s) {
			return nil, fmt.Errorf("--allow-origin %q: want http://HOST[:PORT] or https://HOST[:PORT] in lower case, without a path", s)
		}
		if err := o.browser.AddTrustedOrigin(s); err != nil {
			return nil, fmt.Errorf("--allow-origin: %w", err)
		}
		o.allowed[s] = true
	}
	return o, nil
}

// allows checks a request whose Host is already accepted. This server's own
// origin is allowed: it serves no pages.
func (o *origins) allows(r *http.Request) bool {
	if o.browser.Check(r) != nil {
		return false
	}
	given := r.Header.Values("Origin")
	return len(given) == 0 || len(given) == 1 && (o.allowed[given[0]] || given[0] == "http://"+r.Host || given[0] == "https://"+r.Host)
}

// requestFields are the header fields that a page may send.
const requestFields = "Authorization, Content-Type, Accept, Mcp-Protocol-Version, Mcp-Session-Id, Mcp-Method, Mcp-Name, Last-Event-ID"

// cors lets a page of an allowed origin read the answer. It answers preflight
// requests itself and reports whether it did.
func (o *origins) cors(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, WWW-Authenticate, Retry-After")
	h.Add("Vary", "Origin")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "POST, DELETE, GET")
	h.Set("Access-Control-Allow-Headers", requestFields)
	w.WriteHeader(http.StatusNoContent)
	return true
}
