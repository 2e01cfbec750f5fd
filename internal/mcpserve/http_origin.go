package mcpserve

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// origins judges which web pages may call. A browser sends their origin along;
// other programs send none.
type origins struct {
	allowed map[string]bool
	browser *http.CrossOriginProtection // what browsers say in other words
}

func newOrigins(allowed []string) (*origins, error) {
	o := &origins{allowed: map[string]bool{}, browser: http.NewCrossOriginProtection()}
	for _, s := range allowed {
		u, err := url.Parse(s)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || s != u.Scheme+"://"+u.Host || s != strings.ToLower(s) {
			return nil, fmt.Errorf("--allow-origin %q: want http://HOST[:PORT] or https://HOST[:PORT] in lower case, and nothing behind it", s)
		}
		if err := o.browser.AddTrustedOrigin(s); err != nil {
			return nil, fmt.Errorf("--allow-origin: %w", err)
		}
		o.allowed[s] = true
	}
	return o, nil
}

// allows judges a request whose Host has been allowed. Our own origin is: a
// page of it would be ours, and there is none.
func (o *origins) allows(r *http.Request) bool {
	if o.browser.Check(r) != nil {
		return false
	}
	given := r.Header.Values("Origin")
	return len(given) == 0 || len(given) == 1 && (o.allowed[given[0]] || slices.Contains([]string{"http://" + r.Host, "https://" + r.Host}, given[0]))
}

// requestFields are the fields that a page may send along.
const requestFields = "Authorization, Content-Type, Accept, Mcp-Protocol-Version, Mcp-Session-Id, Mcp-Method, Mcp-Name, Last-Event-ID"

// share lets a page of an allowed origin read the answer, and reports whether
// the request was only the question whether it may.
func (o *origins) share(w http.ResponseWriter, r *http.Request) bool {
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
