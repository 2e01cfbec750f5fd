package e2e

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// A client without a token learns where to get one, and an issuer's token for
// this server is accepted like a local one: over HTTP, by the metadata of RFC
// 9728 and the challenges of RFC 6750.
//
// proves R-T4, R-T3
func TestHTTPAcceptsIssuerTokensAndServesMetadata(t *testing.T) {
	t.Parallel()
	w, i := &webWorld{world: newWorld(t, ordinaryUID)}, newIDP(t)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "echo two > a.txt"})
	w.write("config/keys.json", string(i.keySet()), 0o644)
	w.trusts(w.path("config/keys.json"))
	w.up()
	w.addPrincipals()
	w.must("principal", "add", "agent:remote", "--oauth-issuer", idpURL, "--oauth-subject", "s-1")
	s := w.http("--oauth-issuer", idpURL, "--resource", resource, "--allow-host", "mcp.example")

	const where = "https://mcp.example/.well-known/oauth-protected-resource/mcp"
	s.want("no token", ask{without: "Authorization"}, 401, `resource_metadata="`+where+`"`)
	var said struct {
		Resource string
		Servers  []string `json:"authorization_servers"`
		Scopes   []string `json:"scopes_supported"`
	}
	metadata := s.want("the metadata", ask{method: "GET", path: "/.well-known/oauth-protected-resource/mcp", host: "mcp.example", without: "Authorization"}, 200)
	must(t, json.Unmarshal([]byte(metadata.body), &said))
	if said.Resource != resource || len(said.Servers) != 1 || said.Servers[0] != idpURL || len(said.Scopes) != 1 {
		t.Fatalf("the metadata is %s", metadata)
	}

	s.want("control: a good one", ask{token: i.token("s-1", jwt.MapClaims{"scope": said.Scopes[0]})}, 200)
	s.want("control: one of ours beside it", ask{}, 200)
	s.want("without the scope", ask{token: i.token("s-1", jwt.MapClaims{"scope": "openid"})}, 403, `error="insufficient_scope"`, `scope="bailiwick"`, `resource_metadata="`+where+`"`)
	unknown := s.want("of another key", ask{token: newIDP(t).token("s-1", nil)}, 401, `error="invalid_token"`)
	for name, token := range map[string]string{
		"for another resource":   i.token("s-1", jwt.MapClaims{"aud": "https://other.example/mcp"}),
		"expired":                i.token("s-1", jwt.MapClaims{"exp": time.Now().Add(-time.Hour).Unix()}),
		"of an unmapped subject": i.token("s-2", nil),
	} {
		if got := s.want(name, ask{token: token}, 401); got.body != unknown.body || got.header.Get("Www-Authenticate") != unknown.header.Get("Www-Authenticate") {
			t.Errorf("%s: %s, another: %s", name, got, unknown)
		}
	}
	// A renewed token continues the session; a token of another subject does
	// not.
	session := s.open(i.token("s-1", nil), mcpNovember, "")
	listing := oldAsk(mcpNovember, session, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	listing.token = i.token("s-1", jwt.MapClaims{"jti": "another"})
	s.want("a renewed token", listing, 200)
	listing.token = w.ann
	s.want("another principal", listing, 404)
}
