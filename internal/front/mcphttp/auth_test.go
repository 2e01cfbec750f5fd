package mcphttp

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/bailiwick-dev/bailiwick/api"
)

// proves R-T3, R-T4
func TestAllInvalidTokensGetTheSameAnswer(t *testing.T) {
	f := newTestServer(t, nil)
	f.want("a valid token", rawRequest{}, 200)
	f.want("in another spelling of Bearer", rawRequest{header: []string{"Authorization: bEARER " + goodToken(1)}}, 200)
	revoked := goodToken(2)
	f.want("a token before it is revoked", rawRequest{token: revoked}, 200)
	f.service.with(func() { delete(f.service.tokens, revoked) })
	var first string
	for name, header := range map[string]string{
		"revoked":           "Bearer " + revoked,
		"unknown":           "Bearer " + goodToken(999),
		"cut":               "Bearer " + goodToken(1)[:60],
		"longer":            "Bearer " + goodToken(1) + "0",
		"upper case":        "Bearer " + strings.ToUpper(goodToken(1)),
		"a foreign JWT":     "Bearer eyJhbGciOiJub25lIn0.e30.",
		"a very long one":   "Bearer " + strings.Repeat("a", maxToken+1),
		"two in one":        "Bearer " + goodToken(1) + ", Bearer " + goodToken(1),
		"another scheme":    "Basic " + goodToken(1),
		"no scheme":         goodToken(1),
		"a space before it": "Bearer  " + goodToken(1),
		"no token":          "Bearer",
	} {
		got := f.want(name, rawRequest{header: []string{"Authorization: " + header}}, 401)
		got.header.Del("Date")
		if text := fmt.Sprint(got.header, got.body); first == "" {
			first = text
		} else if first != text {
			t.Errorf("%s: answer %s differs from another invalid token's: %s", name, text, first)
		}
		f.service.with(func() { f.service.failing = "" })
	}
	if !strings.Contains(first, `Bearer realm="bailiwick", error="invalid_token"`) {
		t.Error(first)
	}
	none := f.want("none", rawRequest{without: "Authorization"}, 401)
	if got := none.header.Get("Www-Authenticate"); got != `Bearer realm="bailiwick"` {
		t.Errorf("no token: %s", got)
	}
}

// proves R-T4
func TestARevokedTokenIsRefusedAtOnce(t *testing.T) {
	f := newTestServer(t, nil)
	id := f.open(goodToken(1), "2025-11-25", "")
	f.want("before", withSession("2025-11-25", id, plainList), 200)
	f.service.with(func() { delete(f.service.tokens, goodToken(1)) })
	f.want("after", withSession("2025-11-25", id, plainList), 401)
	f.want("initialize", withSession("2025-11-25", "", initialize("2025-11-25", "")), 401)
}

func TestTheTokenIsPresentedAgainToARestartedService(t *testing.T) {
	f := newTestServer(t, nil)
	id := f.open(goodToken(1), "2025-11-25", "")
	f.service.with(func() { clear(f.service.handles) }) // as a restart does
	f.want("after a restart of the service", withSession("2025-11-25", id, plainList), 200)
}

func TestAHandleThatChangesItsPrincipalIsRefused(t *testing.T) {
	f := newTestServer(t, nil)
	f.want("before", rawRequest{}, 200)
	f.service.with(func() { f.service.tokens[goodToken(1)] = "agent:eve" })
	f.want("after", rawRequest{}, 503)
}

// proves R-T3, R-T6
func TestATokenInAQueryIsRefused(t *testing.T) {
	f := newTestServer(t, nil)
	for _, query := range []string{"?access_token=" + goodToken(1), "?token=" + goodToken(1), "?x=1", "?"} {
		f.want(query, rawRequest{path: "/mcp" + query, without: "Authorization"}, 400, "query")
		f.want(query+" beside a good one", rawRequest{path: "/mcp" + query}, 400, "query")
	}
	f.want("in a cookie", rawRequest{header: []string{"Cookie: token=" + goodToken(1)}, without: "Authorization"}, 401)
	f.want("in a header of its own", rawRequest{header: []string{"X-Api-Key: " + goodToken(1)}, without: "Authorization"}, 401)
	f.want("for a proxy", rawRequest{header: []string{"Proxy-Authorization: Bearer " + goodToken(1)}, without: "Authorization"}, 401)
	f.want("none", rawRequest{}, 200)
	f.service.with(func() {
		for _, s := range f.service.seen {
			if strings.Contains(s, api.TokenPrefix) && !strings.HasPrefix(s, "/v1/session") {
				t.Errorf("a token from a query was forwarded: %s", s)
			}
		}
	})
}

// proves R-T3
func TestInvalidTokensAreThrottledAndValidOnesAreNot(t *testing.T) {
	f := newTestServer(t, func(c *Config) { c.limits.failureBurst = defaultLimits().failureBurst })
	counts := map[int]int{}
	for n := range 300 {
		counts[f.send(rawRequest{token: goodToken(1000 + n)}).status]++
		if n%100 == 50 {
			f.want("a valid token in between", rawRequest{}, 200)
			f.want("another valid token", rawRequest{token: goodToken(2 + n/100%2)}, 200)
		}
	}
	if counts[401] < 10 || counts[401] > 30 || counts[429] != 300-counts[401] {
		t.Errorf("answers to 300 invalid tokens: %v", counts)
	}
}

func TestServiceErrorsBecomeStatusesWithoutDetail(t *testing.T) {
	for code, want := range map[api.Code]int{
		api.CodeUnauthenticated: 401, api.CodeInvalid: 401, api.CodeDenied: 403, api.CodeThrottled: 429,
		api.CodeUnavailable: 503, api.CodeAuditUnavailable: 503, api.CodeInternal: 503, api.CodeIntegrity: 503, api.CodeNotFound: 503,
	} {
		f := newTestServer(t, func(c *Config) {
			c.Issuer, c.Resource = "https://issuer.example", "https://mcp.example/mcp"
		})
		f.service.with(func() { f.service.failing = code })
		got := f.want(string(code), rawRequest{token: goodToken(99)}, want)
		if strings.Contains(got.body, `"no"`) {
			t.Errorf("%s: %s", code, got)
		}
		challenge := got.header.Get("Www-Authenticate")
		switch want {
		case 403:
			if challenge != `Bearer realm="bailiwick", error="insufficient_scope", scope="bailiwick", resource_metadata="https://mcp.example/.well-known/oauth-protected-resource/mcp"` {
				t.Errorf("%s: %s", code, challenge)
			}
		case 401:
			if challenge != `Bearer realm="bailiwick", error="invalid_token", scope="bailiwick", resource_metadata="https://mcp.example/.well-known/oauth-protected-resource/mcp"` {
				t.Errorf("%s: %s", code, challenge)
			}
		default:
			if challenge != "" {
				t.Errorf("%s: %s", code, challenge)
			}
		}
	}
}

// proves R-T4
func TestResourceMetadataNeedsNoToken(t *testing.T) {
	f := newTestServer(t, func(c *Config) {
		c.Issuer, c.Resource = "https://issuer.example/realm", "https://mcp.example/mcp"
	})
	for _, path := range []string{wellKnown, wellKnown + "/mcp"} {
		f.want(path, rawRequest{method: "GET", path: path, without: "Authorization"}, 200,
			`"resource":"https://mcp.example/mcp"`, `"authorization_servers":["https://issuer.example/realm"]`, `"bearer_methods_supported":["header"]`)
		f.want(path, rawRequest{method: "POST", path: path}, 405)
		f.want(path, rawRequest{method: "GET", path: path, host: "evil.example"}, 403)
	}
	for _, c := range [][2]string{
		{"", "https://a/mcp"},
		{"https://a", ""},
		{"http://a", "https://a/mcp"},
		{"https://a", "http://a/mcp"},
		{"https://a", "https://a/"},
		{"https://a", "https://a/mcp?x"},
		{"https://a", "https://a/mcp#x"},
		{"https://u:p@a", "https://a/mcp"},
		{"a", "https://a/mcp"},
		{"https://a", `https://a"b/mcp`},
		{`https://a"b`, "https://a/mcp"},
	} {
		if m, err := newMetadata(c[0], c[1]); err == nil {
			t.Errorf("%q: %+v", c, m)
		}
	}
	if m, err := newMetadata("http://127.0.0.1:1", "http://localhost:1/mcp"); err != nil {
		t.Errorf("%+v %v", m, err)
	}
}

// Requests while the service is down are logged, but do not fill the log.
func TestWarningsAboutALostServiceAreRateLimited(t *testing.T) {
	now := time.Now()
	f := &failures{now: func() time.Time { return now }, warnings: rate.NewLimiter(warningRate, 3)}
	warned := func(times int) (n int) {
		for range times {
			if f.level() == slog.LevelWarn {
				n++
			}
		}
		return n
	}
	first := warned(1000)
	now = now.Add(10 * time.Second)
	if later := warned(1000); first != 3 || later != 1 {
		t.Errorf("%d warnings, and %d more after ten seconds", first, later)
	}
}
