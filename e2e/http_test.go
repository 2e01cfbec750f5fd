package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// proves R-B2, R-B3, R-T9
func TestNineToolsOverHTTP(t *testing.T) {
	t.Parallel()
	w := newWebWorld(t, ordinaryUID)
	s := w.http()
	const end = "	return b.tools, errors.Join(b.errs...)"
	tenth := w.httpOf(otherServer(t, "tools.go", end, `	add(&b, toolInfo{name: "bailiwick_help", title: "x", description: "x"}, s.envs)`+"\n"+end))
	for _, revision := range mcpRevisions() {
		if err := checkTools(s.tools(revision)); err != nil {
			t.Errorf("%s: %v", revision, err)
		}
		if err := checkTools(tenth.tools(revision)); err == nil || !strings.Contains(err.Error(), "exactly the nine") {
			t.Errorf("%s: for a server with a tenth tool the check returns %v", revision, err)
		}
	}
}

// Each refused request has a control that differs in nothing else and succeeds.
//
// proves R-T3, R-T9
func TestHTTPRefusals(t *testing.T) {
	t.Parallel()
	w := newWebWorld(t, ordinaryUID)
	s := w.http("--rate", "10000", "--allow-host", "mcp.example", "--allow-origin", "https://pages.example")
	s.want("control", ask{}, 200)
	s.want("control: an allowed origin", ask{header: []string{"Origin: https://pages.example"}}, 200)
	s.want("a foreign origin", ask{header: []string{"Origin: https://evil.example"}}, 403)
	s.want("an origin that is null", ask{header: []string{"Origin: null"}}, 403)
	s.want("a page that hides its origin", ask{header: []string{"Sec-Fetch-Site: cross-site"}}, 403)
	s.want("control: an allowed host", ask{host: "mcp.example"}, 200)
	s.want("a rebound host", ask{host: "evil.example:" + s.url.Port()}, 403)
	s.want("a rebound host, Origin and all", ask{host: "evil.example", header: []string{"Origin: http://evil.example"}}, 403)
	for _, path := range []string{"/%6dcp", "/mc%70", "/%2fmcp", "/mcp%2f", "/mcp/", "//mcp", "/./mcp", "/MCP"} {
		s.want("another spelling of the path: "+path, ask{path: path}, 404)
	}
	good := s.text(ask{})
	length := fmt.Sprintf("Content-Length: %d\r\n", len(listTools))
	for name, text := range map[string]string{
		"the length twice":              strings.Replace(good, length, length+length, 1),
		"two lengths":                   strings.Replace(good, length, length+"Content-Length: 3\r\n", 1),
		"Transfer-Encoding with length": strings.Replace(good, length, length+"Transfer-Encoding: chunked\r\n", 1),
		"lines that end with line feed": strings.ReplaceAll(good, "\r\n", "\n"),
		"a URL of another host":         strings.Replace(good, "/mcp", "http://evil.example/mcp", 1),
	} {
		if got := s.raw(text); got.status != 400 {
			t.Errorf("%s: %s", name, got)
		}
	}
	for name, c := range map[string]struct {
		body   string
		status int
	}{
		"control: an id of text":           {strings.Replace(listTools, `"id":1`, `"id":"x"`, 1), 200},
		"control: U+2028 in an id":         {strings.Replace(listTools, `"id":1`, `"id":"`+"\u2028"+`"`, 1), 200},
		"control: U+2028, escaped":         {strings.Replace(listTools, `"id":1`, `"id":"\u2028"`, 1), 200},
		"control: a surrogate and another": {strings.Replace(listTools, `"id":1`, `"id":"\ud83d\ude00"`, 1), 200},
		"a lone surrogate":                 {strings.Replace(listTools, `"id":1`, `"id":"\ud83d"`, 1), 400},
		"invalid UTF-8":                    {strings.Replace(listTools, `"id":1`, `"id":"`+"\xc3"+`"`, 1), 400},
		"a duplicate key":                  {strings.Replace(listTools, `"id":1`, `"id":1,"id":2`, 1), 400},
		"a duplicate key, escaped":         {strings.Replace(listTools, `"id":1`, `"id":1,"\u0069d":2`, 1), 400},
		"an id that is null":               {strings.Replace(listTools, `"id":1`, `"id":null`, 1), 400},
		"an id that is true":               {strings.Replace(listTools, `"id":1`, `"id":true`, 1), 400},
		"an id that is an object":          {strings.Replace(listTools, `"id":1`, `"id":{}`, 1), 400},
		"an id that is a list":             {strings.Replace(listTools, `"id":1`, `"id":[1]`, 1), 400},
		"a fractional id":                  {strings.Replace(listTools, `"id":1`, `"id":0.5`, 1), 400},
		"an id out of range":               {strings.Replace(listTools, `"id":1`, `"id":1e400`, 1), 400},
		"a batch":                          {"[" + listTools + "," + listTools + "]", 400},
		"a batch of one":                   {"[" + listTools + "]", 400},
		"an unknown revision":              {strings.ReplaceAll(listTools, mcpJuly, "2030-01-01"), 400},
	} {
		s.want(name, ask{body: c.body}, c.status)
	}
	for revision, status := range map[string]int{mcpNovember: 200, mcpJune: 200, "2025-03-26": 400, "2024-11-05": 400, "x": 400, "2030-01-01": 400} {
		session := s.open("", mcpNovember, "")
		s.want("revision "+revision, oldAsk(revision, session, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`), status)
	}
	token := w.ann
	for _, query := range []string{"?access_token=" + token, "?token=" + token} {
		s.want("a token in the query", ask{path: "/mcp" + query, without: "Authorization"}, 400)
		s.want("a token in the query and one where it belongs", ask{path: "/mcp" + query}, 400)
	}
	if strings.Contains(s.errs.String(), token) {
		t.Errorf("standard error contains the token: %s", s.errs)
	}
	if log := w.must("audit", "list", "--principal", "agent:ann", "--kind", "request.invalid"); !strings.Contains(log, "batch") {
		t.Errorf("a batch is not in the log: %s", log)
	}
}

// proves R-T3
func TestSlowClientsAndFloodsTimeOut(t *testing.T) {
	t.Parallel()
	w := newWebWorld(t, ordinaryUID)
	s := w.http("--rate", "10000")
	text := s.text(ask{})
	header, _, _ := strings.Cut(text, "\r\n\r\n")
	slowly := func(name, sent, rest string, wants ...int) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := s.dial()
			r := bufio.NewReader(c)
			_, err := io.WriteString(c, sent)
			must(t, err)
			ended := make(chan answer, 1)
			go func() { ended <- readAnswer(r) }()
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case got := <-ended:
					if !strings.Contains(fmt.Sprint(wants), fmt.Sprint(got.status)) {
						t.Errorf("the response is %s", got)
					}
					return
				case <-tick.C:
					if i < len(rest) {
						_, _ = io.WriteString(c, rest[i:i+1])
					}
				}
			}
		})
	}
	t.Run("slow", func(t *testing.T) {
		slowly("nothing", "", "", 0)
		slowly("a slow header", header, strings.Repeat("\r\nX: a", 1000), 0, 400) // net/http's response to a truncated line
		long, _, _ := strings.Cut(s.text(ask{body: listTools + strings.Repeat(" ", 1000)}), "\r\n\r\n")
		slowly("a slow body", long+"\r\n\r\n", listTools+strings.Repeat(" ", 1000), 408)
		t.Run("a valid request meanwhile", func(t *testing.T) {
			t.Parallel()
			s.want("control", ask{}, 200)
		})
	})
	kept := s.dial()
	r := bufio.NewReader(kept)
	known := func(when string) {
		t.Helper()
		_, err := io.WriteString(kept, text)
		must(t, err)
		if got := readAnswer(r); got.status != 200 {
			t.Errorf("%s: %s", when, got)
		}
	}
	known("before the flood")
	for range 1000 {
		s.dial()
	}
	known("in the flood")
	s.want("one that comes new into the flood", ask{}, 200)
	if open, _ := sockets(t, s.cmd.Process.Pid); open > 300 {
		t.Errorf("the server holds %d sockets", open)
	}
}

// proves R-T3, R-T4, R-T6
func TestTokensOverHTTP(t *testing.T) {
	t.Parallel()
	w := newWebWorld(t, ordinaryUID)
	s := w.http("--rate", "10000")
	ann, ben := w.ann, w.ben
	second, id := w.addToken("second", "90d")
	brief, _ := w.addToken("brief", "1m")
	session := s.open(second, mcpNovember, "")
	listing := oldAsk(mcpNovember, session, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	listing.token = second
	s.want("control: its own session", listing, 200)
	for name, other := range map[string]string{"another principal": ben, "another token of the same principal": ann} {
		listing.token = other
		s.want(name+" on the session", listing, 404)
	}
	if log := w.must("audit", "list", "--principal", "agent:ben", "--kind", "request.invalid"); !strings.Contains(log, "belongs to another client") {
		t.Errorf("another client's session is not in the log: %s", log)
	}
	listing.token = second
	s.want("control: its own session, still", listing, 200)

	w.must("token", "revoke", id)
	revoked := s.want("revoked, within its session", listing, 401, "invalid_token")
	unknown := s.want("unknown", ask{token: api.TokenText([32]byte{1})}, 401)
	if revoked.body != unknown.body || revoked.header.Get("Www-Authenticate") != unknown.header.Get("Www-Authenticate") {
		t.Errorf("revoked: %s; unknown: %s", revoked, unknown)
	}
	s.want("control: one that will expire", ask{token: brief}, 200)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last := answer{status: 200}
	for n := 0; last.status == 200 && n < 100; n++ {
		<-tick.C
		last = s.send(ask{token: brief})
	}
	if last.status != 401 || last.body != unknown.body {
		t.Errorf("expired: %s", last)
	}
	s.want("none", ask{without: "Authorization"}, 401)
	s.want("control: the others", ask{}, 200)
	if log := w.must("audit", "list", "--kind", "auth.refused"); !strings.Contains(log, id) {
		t.Errorf("the revoked token is not in the log: %s", log)
	}
	wantNotStored(t, w, s, ann, ben, second, brief)
}

// addToken creates an additional token for ann.
func (w *webWorld) addToken(name, expires string) (text, id string) {
	w.t.Helper()
	var made struct{ ID string }
	decode(w.t, w.must("token", "create", "agent:ann", "--expires", expires, "--out", w.path("home", name), "-o", "json"), &made)
	b, err := os.ReadFile(w.path("home", name))
	must(w.t, err)
	return strings.TrimSpace(string(b)), made.ID
}

// wantNotStored fails the test if the files and logs of the service and the
// server contain a token. The control finds a token in its own file.
func wantNotStored(t *testing.T, w *webWorld, s *httpServer, tokens ...string) {
	t.Helper()
	s.t.Helper()
	places := []string{w.path("state"), w.path("run"), w.path("data"), fmt.Sprintf("/proc/%d/environ", s.cmd.Process.Pid), fmt.Sprintf("/proc/%d/cmdline", s.cmd.Process.Pid)}
	find := func(token string, in ...string) bool {
		return w.exec("grep", append([]string{"-rqaF", "-e", token, "--"}, in...)...).status == 0
	}
	for _, token := range tokens {
		if find(token, places...) || strings.Contains(s.errs.String(), token) {
			t.Errorf("a token is stored: %.12s…", token)
		}
	}
	if !find(tokens[0], append(places, w.path("home"))...) {
		t.Error("the control: the search does not find a token in its file")
	}
}

// proves R-T3
func TestBadTokensAreThrottledAndSummarized(t *testing.T) {
	t.Parallel()
	w := newWebWorld(t, ordinaryUID)
	s := w.http()
	counts := make(chan int, 2000)
	for worker := range 100 { // each response takes a second
		go func() {
			c := s.dial()
			r := bufio.NewReader(c)
			for n := range 20 {
				random := [32]byte{byte(worker), byte(n), 1}
				if _, err := io.WriteString(c, s.text(ask{token: api.TokenText(random)})); err != nil {
					counts <- 0
					continue
				}
				got := readAnswer(r)
				if got.status == 0 {
					c = s.dial()
					r = bufio.NewReader(c)
				}
				counts <- got.status
			}
		}()
	}
	by := map[int]int{}
	for n := range cap(counts) {
		by[<-counts]++
		if n%500 == 100 {
			s.want("a good token in between", ask{token: w.ben}, 200)
		}
	}
	if by[401] < 1 || by[401] > 300 || by[429] < 1500 {
		t.Errorf("responses to 2000 bad tokens: %v", by)
	}
	w.must("down") // writes the summary of the throttled entries
	w.must("up")
	if n := len(w.entries("--kind", "auth.refused")); n > 300 {
		t.Errorf("2000 bad tokens made %d entries", n)
	}
	if log := w.must("audit", "list", "--kind", "auth.refused"); !strings.Contains(log, "more, too many to log each") {
		t.Errorf("the log has no summary: %.500s", log)
	}
	s.want("after a restart of the service", ask{}, 200)
}

// A client can lower its ceiling, and nothing that it sends raises it again.
//
// proves R-T5
func TestACeilingOverHTTPIsNeverRaised(t *testing.T) {
	t.Parallel()
	w := newWebWorld(t, ordinaryUID)
	s := w.http()
	dispatch := `{"subagent":"edit","source":{"name":"repo"},"wait":50}`
	says := func(name string, a ask, word string) {
		t.Helper()
		s.want(name, a, 200, word)
	}
	says("control: consented", callOf("bailiwick_dispatch", dispatch, ""), `"finished"`)
	low := `"io.bailiwick/consentCeiling":"observe",`
	says("lowered by a request", callOf("bailiwick_dispatch", dispatch, low), "session")
	says("control: the next request", callOf("bailiwick_dispatch", dispatch, ""), `"finished"`)
	says("malformed", callOf("bailiwick_dispatch", dispatch, `"io.bailiwick/consentCeiling":7,`), "session")
	says("misspelt", callOf("bailiwick_dispatch", dispatch, `"io.bailiwick/consentcieling":"stateful",`), "session")
	session := s.open("", mcpNovember, `,"capabilities":{"experimental":{"io.bailiwick/consentCeiling":{"ceiling":"observe"}}}`)
	call := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"bailiwick_dispatch","arguments":` + dispatch + `%s}}`
	says("declared by initialize", oldAsk(mcpNovember, session, fmt.Sprintf(call, "")), "session")
	high := `,"_meta":{"io.bailiwick/consentCeiling":"irreversible"}`
	says("raised by a request", oldAsk(mcpNovember, session, fmt.Sprintf(call, high)), "session")
	again := s.open("", mcpNovember, high)
	says("raised by initialising again", oldAsk(mcpNovember, again, fmt.Sprintf(call, "")), "session")
	again = s.open("", mcpJune, `,"capabilities":{"experimental":{"io.bailiwick/consentCeiling":"irreversible"}}`)
	says("raised by initialising again, in experimental", oldAsk(mcpJune, again, fmt.Sprintf(call, "")), "session")
	says("raised in a revision without sessions", callOf("bailiwick_dispatch", dispatch, `"io.bailiwick/consentCeiling":"irreversible",`), "session")
	looks := strings.Replace(dispatch, "edit", "looks", 1)
	says("control: what observes", callOf("bailiwick_dispatch", looks, ""), `"finished"`)
	other := callOf("bailiwick_dispatch", dispatch, "")
	other.token = w.ben
	says("control: another client", other, `"finished"`)
	// No declared ceiling exceeds the operator's consent.
	w.must("ceiling", "set", "agent:ben", "observe")
	other = callOf("bailiwick_dispatch", dispatch, `"io.bailiwick/consentCeiling":"irreversible",`)
	other.token = w.ben
	says("beyond consent", other, "consent")
}

// proves R-T2
func TestHTTPStartsOnlyWhereItMay(t *testing.T) {
	t.Parallel()
	w := &webWorld{world: newWorld(t, ordinaryUID)}
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	says := func(out string, words ...string) {
		t.Helper()
		for _, word := range words {
			if !strings.Contains(out, word) {
				t.Errorf("the output lacks %q: %s", word, out)
			}
		}
	}
	elsewhere := []string{"--http", "0.0.0.0:0", "--allow-host", "mcp.example"}
	acknowledged := []string{"BAILIWICK_HTTP_ALLOW_ANY=yes-i-understand-the-risk"}
	says(w.refuses(nil, elsewhere...), "run bailiwick up")
	w.catalog(subagent{name: "edit", script: "true"})
	w.up()
	says(w.refuses(nil, elsewhere...), "no client token", "bailiwick token create")
	w.addPrincipals()
	says(w.refuses(nil, elsewhere...), "BAILIWICK_HTTP_ALLOW_ANY=yes-i-understand-the-risk")
	says(w.refuses([]string{"BAILIWICK_HTTP_ALLOW_ANY=yes"}, elsewhere...), "BAILIWICK_HTTP_ALLOW_ANY=yes-i-understand-the-risk")
	says(w.refuses(acknowledged, elsewhere...), "--tls-cert FILE")
	says(w.refuses(nil, "--http", "127.0.0.2:0"), "BAILIWICK_HTTP_ALLOW_ANY")
	says(w.refuses(nil, "--http", "mcp.example:0"), "IP address or localhost")
	hole := otherServer(t, "../../base/egress/judge.go", "	switch {\n	case !addr.IsValid():", "	switch {\n	case addr.Is4():\n		return nil\n	case !addr.IsValid():")
	says(w.exitsWithOneLine(w.command(hole, "--http", "127.0.0.1:0")), "egress")
	s := w.http() // control: all is well
	s.want("control", ask{}, 200)
	w.must("token", "revoke", string(w.annID))
	w.must("token", "revoke", string(w.benID))
	says(w.refuses(nil, "--http", "127.0.0.1:0"), "no client token")
	s.want("one that listens already", ask{}, 401)
	must(t, s.cmd.Process.Signal(syscall.SIGTERM))
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	if log := w.must("audit", "list", "--kind", "http.requested"); !strings.Contains(log, "over HTTP") {
		t.Errorf("the log does not say that it served over HTTP: %s", log)
	}
}

// Without a writable log the server neither starts nor continues to serve over
// HTTP.
//
// proves R-T2
func TestHTTPIsNotServedWithoutAnAuditLog(t *testing.T) {
	t.Parallel()
	w := &webWorld{world: newWorld(t, 0)}
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	must(t, syscall.Mount("tmpfs", w.path("state"), "tmpfs", 0, "size=24m,mode=755"))
	t.Cleanup(func() { must(t, syscall.Unmount(w.path("state"), syscall.MNT_DETACH)) })
	w.catalog(subagent{name: "edit", script: "true"})
	w.up()
	w.addPrincipals()
	s := w.http()
	s.want("control", ask{}, 200)
	w.awaitReady(true)
	must(t, os.Remove(w.path("state/bailiwick/reserve"))) // else the service continues in its room
	f, err := os.Create(w.path("state/filler"))
	must(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	must(t, f.Close())
	// A denial writes only an entry. Eventually there is no room for one, and
	// from then on the store refuses everything.
	service := w.status().PID
	var d done
	for n := 0; d.status != 1 && n < 100; n++ {
		d = w.try("dispatch", "run", "nobody")
	}
	if out := w.refuses(nil, "--http", "127.0.0.1:0"); !strings.Contains(out, "the audit log cannot be written") || !strings.Contains(out, "bailiwick doctor") {
		t.Errorf("on a full disk: %s", out)
	}
	must(t, syscall.Kill(service, syscall.SIGKILL)) // its store refuses even its own shutdown
}
