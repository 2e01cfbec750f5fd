package mcphttp

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/mcpwire"
	"github.com/bailiwick-dev/bailiwick/internal/front/mcpserve"
)

// names returns the tool names of an answer to tools/list, which is one event.
func names(t *testing.T, r rawAnswer) (list []string) {
	t.Helper()
	_, data, _ := strings.Cut(r.body, "data: ")
	var got struct {
		Result struct {
			Tools []struct{ Name string }
		}
	}
	if err := json.Unmarshal([]byte(strings.TrimSpace(data)), &got); err != nil {
		t.Fatalf("%v: %s", err, r)
	}
	for _, tool := range got.Result.Tools {
		list = append(list, tool.Name)
	}
	return list
}

// proves R-B2, R-T9
func TestEveryRevisionHasTheNineTools(t *testing.T) {
	f := newTestServer(t, nil)
	if got := names(t, f.want(newest, rawRequest{}, 200)); !slices.Equal(got, mcpserve.Names()) {
		t.Errorf("%s: %v", newest, got)
	}
	for _, version := range mcpwire.Revisions()[1:] {
		id := f.open(goodToken(1), version, "")
		f.want("initialized", withSession(version, id, `{"jsonrpc":"2.0","method":"notifications/initialized"}`), 202)
		if got := names(t, f.want(version, withSession(version, id, plainList), 200)); !slices.Equal(got, mcpserve.Names()) {
			t.Errorf("%s: %v", version, got)
		}
	}
	f.want("an unsupported older revision", withSession("2025-03-26", "", plainList), 400, "version")
	f.want("an unknown revision", withSession("2026-07-29", "", strings.ReplaceAll(toolsList, newest, "2026-07-29")), 400)
	f.want("no revision", withSession("newest", "", plainList), 400)
}

// proves R-T3
func TestUnknownHostsAreRefused(t *testing.T) {
	f := newTestServer(t, func(c *Config) { c.Hosts = []string{"Mcp.example", "other.example:8443", "[2001:db8::1]"} })
	port := f.url.Port()
	for _, host := range []string{"127.0.0.1:" + port, "localhost:" + port, "LocalHost:" + port, "[::1]:" + port, "mcp.example", "MCP.example:1", "other.example:8443", "[2001:db8::1]", "[2001:db8::1]:9"} {
		f.want(host, rawRequest{host: host}, 200)
	}
	for _, host := range []string{
		"evil.example", "evil.example:" + port, "127.0.0.1", "127.0.0.1:1", "localhost", "localhost.:" + port, "127.0.0.1.evil.example:" + port, "evil.example@127.0.0.1:" + port,
		"other.example", "other.example:8444", "mcp.example.", "mcp.example:x", "mcp.example:", "x.mcp.example", "2130706433:" + port, "0x7f.1:" + port, "127.1:" + port, "[::ffff:127.0.0.1]:" + port, "0.0.0.0:" + port, "2001:db8::1",
	} {
		got := f.send(rawRequest{host: host})
		if got.status != 403 && got.status != 400 || strings.Contains(got.body, "bailiwick_") {
			t.Errorf("host %q: %s", host, got)
		}
	}
}

// proves R-T3
func TestUnknownOriginsAreRefused(t *testing.T) {
	f := newTestServer(t, func(c *Config) { c.Origins = []string{"https://pages.example"} })
	own := "http://" + f.url.Host
	for name, c := range map[string]struct {
		header []string
		status int
	}{
		"no browser":              {nil, 200},
		"allowed":                 {[]string{"Origin: https://pages.example"}, 200},
		"ours":                    {[]string{"Origin: " + own}, 200},
		"from the address bar":    {[]string{"Sec-Fetch-Site: none"}, 200},
		"allowed, and said so":    {[]string{"Origin: https://pages.example", "Sec-Fetch-Site: cross-site"}, 200},
		"another":                 {[]string{"Origin: https://evil.example"}, 403},
		"another scheme":          {[]string{"Origin: http://pages.example"}, 403},
		"another port":            {[]string{"Origin: https://pages.example:8443"}, 403},
		"one that ends alike":     {[]string{"Origin: https://evil-pages.example"}, 403},
		"one that begins alike":   {[]string{"Origin: https://pages.example.evil.example"}, 403},
		"null":                    {[]string{"Origin: null"}, 403},
		"empty":                   {[]string{"Origin:"}, 403},
		"two":                     {[]string{"Origin: https://pages.example", "Origin: https://evil.example"}, 400},
		"no origin, cross-site":   {[]string{"Sec-Fetch-Site: cross-site"}, 403},
		"no origin, same-site":    {[]string{"Sec-Fetch-Site: same-site"}, 403},
		"another port of ours":    {[]string{"Origin: http://127.0.0.1:1"}, 403},
		"rebound, Origin and all": {[]string{"Host: evil.example", "Origin: http://evil.example"}, 403},
	} {
		for _, method := range []string{"POST", "DELETE", "GET", "OPTIONS"} {
			want := c.status
			if want == 200 && method != "POST" {
				continue
			}
			if strings.HasPrefix(name, "no origin") && (method == "GET" || method == "OPTIONS") {
				want = 405 // safe methods, which browsers send for any page
			}
			f.want(name+" "+method, rawRequest{method: method, header: c.header}, want)
		}
	}
	f.want("preflight of an allowed origin", rawRequest{method: "OPTIONS", header: []string{"Origin: https://pages.example", "Access-Control-Request-Method: POST"}, without: "Authorization"},
		204, "Access-Control-Allow-Origin:[https://pages.example]", "Authorization")
	f.want("preflight of another origin", rawRequest{method: "OPTIONS", header: []string{"Origin: https://evil.example", "Access-Control-Request-Method: POST"}, without: "Authorization"}, 403)
}

// proves R-T3
func TestOnlyJSONIsAccepted(t *testing.T) {
	f := newTestServer(t, nil)
	for _, kind := range []string{"application/json", "Application/JSON", "application/json; charset=utf-8", `application/json;charset="UTF-8"`} {
		f.want(kind, rawRequest{header: []string{"Content-Type: " + kind}}, 200)
	}
	for _, kind := range []string{
		"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/json, text/plain", "application/jsonp", "application/json; charset=utf-16",
		"application/json; charset=utf-8; x=y", "application/json; x", "application/vnd.x+json", "text/json",
	} {
		f.want(kind, rawRequest{header: []string{"Content-Type: " + kind}}, 415)
	}
	f.want("none", rawRequest{without: "Content-Type"}, 415)
	f.want("compressed", rawRequest{header: []string{"Content-Encoding: gzip"}}, 415)
}

// proves R-T3
func TestOtherPathsAndMethodsAreRefused(t *testing.T) {
	f := newTestServer(t, nil)
	for _, path := range []string{"/", "/mcp/", "/MCP", "//mcp", "/mcp/../mcp", "/%6dcp/", "/.well-known/oauth-protected-resource", "/v1/runtime/who", "/metrics"} {
		f.want(path, rawRequest{path: path}, 404)
	}
	for _, method := range []string{"GET", "HEAD", "PUT", "PATCH", "OPTIONS", "TRACE", "X"} {
		if got := f.raw(strings.Replace(f.text(rawRequest{}), "POST", method, 1)); got.status != 405 {
			t.Errorf("%s: %s", method, got)
		}
	}
}

// proves R-T3
func TestMessagesThatAreNotStrictAreRefusedAndLogged(t *testing.T) {
	f := newTestServer(t, nil)
	for name, c := range map[string]struct {
		body   string
		status int
		word   string
	}{
		"a key twice":          {`{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call"}`, 400, "-32700"},
		"a key twice, deep":    {strings.Replace(toolsList, `"params":{`, `"params":{"a":{"b":1,"b":2},`, 1), 400, "-32700"},
		"invalid UTF-8":        {`{"jsonrpc":"2.0","id":"` + "\xff" + `","method":"ping"}`, 400, "-32700"},
		"a lone surrogate":     {`{"jsonrpc":"2.0","id":"\ud800","method":"ping"}`, 400, "-32700"},
		"a batch":              {"[" + toolsList + "]", 400, "batch"},
		"an empty batch":       {"[]", 400, "batch"},
		"nothing":              {" ", 400, "-32700"},
		"two messages":         {toolsList + toolsList, 400, "-32700"},
		"an id that is null":   {`{"jsonrpc":"2.0","id":null,"method":"ping"}`, 400, "id must be"},
		"an id that is true":   {`{"jsonrpc":"2.0","id":true,"method":"ping"}`, 400, "id must be"},
		"an id that is a list": {`{"jsonrpc":"2.0","id":[1],"method":"ping"}`, 400, "id must be"},
		"half an id":           {`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, 400, "id must be"},
		"another JSON-RPC":     {`{"jsonrpc":"1.0","id":1,"method":"ping"}`, 400, "2.0"},
		"prompts":              {strings.Replace(toolsList, "tools/list", "prompts/list", 1), 404, "-32601"},
	} {
		f.service.with(func() { f.service.refused = nil })
		f.want(name, rawRequest{body: c.body}, c.status, c.word)
		f.service.with(func() {
			if len(f.service.refused) != 1 || !strings.HasPrefix(f.service.refused[0], "agent:ann: ") {
				t.Errorf("%s: logged: %q", name, f.service.refused)
			}
		})
	}
	f.want("a separator of lines in a string", rawRequest{body: strings.Replace(toolsList, `"id":1`, `"id":"`+"\u2028"+`"`, 1)}, 200)
	id := f.open(goodToken(1), "2025-11-25", "")
	f.want("prompts of an older revision", withSession("2025-11-25", id, `{"jsonrpc":"2.0","id":1,"method":"prompts/list"}`), 200, "-32601")
}

// proves R-T3
func TestRequestsOfOnePrincipalAreRateLimited(t *testing.T) {
	f := newTestServer(t, func(c *Config) { c.Rate = 1 })
	var last rawAnswer
	for range 4 {
		last = f.send(rawRequest{})
	}
	if last.status != 429 || last.header.Get("Retry-After") == "" {
		t.Errorf("the fourth: %s", last)
	}
	f.want("another token of the principal", rawRequest{token: goodToken(3)}, 429)
	f.want("another principal", rawRequest{token: goodToken(2)}, 200)
}

// proves R-T5
func TestADeclaredCeilingAppliesToTheClientBeyondItsSession(t *testing.T) {
	f := newTestServer(t, nil)
	const version = "2025-11-25"
	call := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"bailiwick_envs_list","arguments":{}}}`
	below := func(name string, want string, r rawRequest) {
		t.Helper()
		f.service.with(func() { f.service.ceiling = "" })
		f.want(name, r, 200)
		f.service.with(func() {
			if f.service.ceiling != want {
				t.Errorf("%s: ceiling %q, want %q", name, f.service.ceiling, want)
			}
		})
	}
	plain := f.open(goodToken(1), version, "")
	below("none declared", "", withSession(version, plain, call))
	first := f.open(goodToken(1), version, `,"_meta":{"io.bailiwick/consentCeiling":"reversible"}`)
	below("declared", "reversible", withSession(version, first, call))
	below("another session of the same client", "reversible", withSession(version, plain, call))
	again := f.open(goodToken(1), version, "")
	below("initialised again", "reversible", withSession(version, again, call))
	higher := f.open(goodToken(1), version, `,"capabilities":{"experimental":{"io.bailiwick/consentCeiling":{"ceiling":"irreversible"}}}`)
	below("initialised higher", "reversible", withSession(version, higher, call))
	f.want("ended", rawRequest{method: "DELETE", header: []string{"Mcp-Session-Id: " + first}}, 204)
	below("the session that declared it has ended", "reversible", withSession(version, plain, call))
	newCall := rawRequest{header: []string{"Mcp-Method: tools/call", "Mcp-Name: bailiwick_envs_list"}, body: strings.Replace(strings.Replace(toolsList, "tools/list", "tools/call", 1), `"_meta":{`, `"name":"bailiwick_envs_list","arguments":{},"_meta":{`, 1)}
	below("a revision without sessions", "reversible", newCall)
	raised := newCall
	raised.body = strings.Replace(newCall.body, `"_meta":{`, `"_meta":{"io.bailiwick/consentCeiling":"irreversible",`, 1)
	below("raised by a request", "reversible", raised)
	lowered := newCall
	lowered.body = strings.Replace(newCall.body, `"_meta":{`, `"_meta":{"io.bailiwick/consentCeiling":"sudo",`, 1)
	below("malformed in a request", "observe", lowered)
	below("the request after that", "reversible", newCall)
	other := newCall
	other.token = goodToken(3)
	below("another client of the same principal", "", other)
	f.open(goodToken(1), version, `,"_meta":{"io.bailiwick/consentcieling":"stateful"}`)
	below("a misspelt one", "observe", newCall)
}

func TestATokenIsPresentedToTheServiceOncePerHandle(t *testing.T) {
	f := newTestServer(t, nil)
	for range 5 {
		f.want("a request", rawRequest{}, 200)
	}
	f.service.with(func() {
		exchanges := 0
		for _, s := range f.service.seen {
			if strings.HasPrefix(s, "/v1/session") {
				exchanges++
			} else if strings.Contains(s, api.TokenPrefix) || strings.Contains(s, "Authorization") {
				t.Errorf("a token was forwarded: %s", s)
			}
		}
		if exchanges != 1 {
			t.Errorf("the token was presented %d times", exchanges)
		}
	})
}

// A handle that could expire during the longest call is replaced before it.
func TestNoCallOutlivesItsHandle(t *testing.T) {
	service := newFakeService(t)
	now := time.Now()
	a := newAuthenticator(service.connect(t), nil, func() time.Time { return now })
	first, err := a.authenticate(t.Context(), goodToken(1))
	if err != nil {
		t.Fatal(err)
	}
	for left, want := range map[time.Duration]bool{2 * mcpserve.RenewBefore: true, mcpserve.RenewBefore: false} {
		now = first.until.Add(-left)
		id, err := a.authenticate(t.Context(), goodToken(1))
		if err != nil || (id == first) != want {
			t.Errorf("with %s left, the handle is kept: %v, %v", left, id == first, err)
		}
		a.known = map[[32]byte]*identity{sha256.Sum256([]byte(goodToken(1))): first}
	}
}

func TestQuotesInRefusalsAreTruncated(t *testing.T) {
	f := newTestServer(t, nil)
	long := strings.Repeat("n", 100_000)
	got := f.want("a long name twice", rawRequest{body: `{"jsonrpc":"2.0","id":1,"` + long + `":1,"` + long + `":2}`}, 400, "duplicate member")
	if len(got.body) > 1000 {
		t.Errorf("the answer has %d bytes", len(got.body))
	}
	f.service.with(func() {
		if n := len(f.service.refused); n != 1 || len(f.service.refused[0]) > 1000 || !strings.Contains(f.service.refused[0], "duplicate member") {
			t.Errorf("logged: %d, %.300q", n, f.service.refused)
		}
	})
}
