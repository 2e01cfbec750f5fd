package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// call sends a request to the service's socket as root, without the project's
// client.
func (w *world) call(method, path, contentType string, body io.Reader) (int, []byte) {
	w.t.Helper()
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c := http.Client{CheckRedirect: stay, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (conn net.Conn, err error) {
		as := 0
		if w.on != nil {
			as = w.uid
		}
		asUser(as, func() {
			var d net.Dialer
			conn, err = d.DialContext(ctx, "unix", w.path("run/bailiwick/api.sock"))
		})
		return conn, err
	}}}
	req, err := http.NewRequestWithContext(w.t.Context(), method, "http://x"+path, body)
	must(w.t, err)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := c.Do(req)
	must(w.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(w.t, err)
	return resp.StatusCode, b
}

// refusal sends a request and returns the service's error.
func (w *world) refusal(path, contentType string, body io.Reader) (int, api.Error) {
	w.t.Helper()
	status, b := w.call(http.MethodPost, path, contentType, body)
	var e api.Error
	if err := json.Unmarshal(b, &e); err != nil {
		w.t.Fatalf("POST %s: status %d: %s", path, status, b)
	}
	return status, e
}

const submit = "/v1/runtime/dispatches"

// A request with a member that would carry authority is refused by the member's
// name, for every caller, before any decision.
//
// proves R-B7, R-A3
func TestSocketAcceptsNamesNotAuthority(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "true"})
	w.up()
	member := func(text string) string { return `{"subagent":"edit",` + text + `}` }
	for _, c := range []struct {
		body, contentType string
		status            int
		words             string
	}{
		{body: member(`"image":"evil:latest"`), words: `"image"`},
		{body: member(`"secrets":{"K":"v"}`), words: `"secrets"`},
		{body: member(`"callback":"http://10.0.0.1/"`), words: `"callback"`},
		{body: member(`"actor":"human:root"`), words: `"actor"`},
		{body: member(`"principal":"human:root"`), words: `"principal"`},
		{body: member(`"repo":"/etc"`), words: `"repo"`},
		{body: member(`"command":["sh"]`), words: `"command"`},
		{body: member(`"tier":"irreversible"`), words: `"tier"`},
		{body: member(`"role":"admin"`), words: `"role"`},
		{body: member(`"limits":{"memory":1}`), words: `"limits"`},
		{body: member(`"source":{"name":"repo","path":"/etc"}`), words: `path"`},
		{body: member(`"source":{"name":"repo","commit":"HEAD\u0000--output=x"}`), words: "commit"},
		{body: member(`"source":"/etc"`), words: "source"},
		{body: member(`"source":{"name":"../repo"}`), words: "../repo"},
		{body: member(`"Subagent":"other"`), words: `"Subagent"`},
		{body: member(`"SUBAGENT":"other"`), words: `"SUBAGENT"`},
		{body: member(`"subagent":"other"`), words: `"subagent"`},
		{body: member(`"input":{"a":1,"a":2}`), words: `"a"`},
		{body: member(`"input":[]`), words: "JSON object"},
		{body: member(`"input":{"n":1e999}`), words: "1e999"},
		{body: member(`"timeoutSeconds":-1`), words: "timeoutSeconds"},
		{body: member(`"timeoutSeconds":1e300`), words: "timeoutSeconds"},
		{body: member(`"dispatchId":"../../x"`), words: "dispatch id"},
		{body: member(`"env":["colours","colours"]`), words: "colours"},
		{body: `{"subagent":"edit"} {"subagent":"edit"}`, words: "request"},
		{body: `{"subagent":"\ud800"}`, words: "request"},
		{body: "{\"subagent\":\"\xff\"}", words: "UTF-8"},
		{body: `{"input":{}}`, words: "subagent"},
		{body: `null`, words: "subagent"},
		{body: ``, words: "request"},
		{body: strings.Repeat("[", 100_000), words: "request"},
		{body: member(`"input":` + strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200)), words: "request"},
		{body: `{"subagent":"edit"}`, contentType: "text/plain", words: "application/json"},
		{body: `{"subagent":"edit"}`, contentType: "application/x-www-form-urlencoded", words: "application/json"},
		{body: `{"subagent":"edit"}`, contentType: "-", words: "application/json"},
		{body: member(`"input":{"a":"` + strings.Repeat("x", 2<<20) + `"}`), status: http.StatusRequestEntityTooLarge, words: "1048576 bytes"},
	} {
		switch c.contentType {
		case "":
			c.contentType = "application/json"
		case "-":
			c.contentType = ""
		}
		if c.status == 0 {
			c.status = http.StatusBadRequest
		}
		status, e := w.refusal(submit, c.contentType, strings.NewReader(c.body))
		if status != c.status || !strings.Contains(e.Message, c.words) || e.AuditEntry == nil || len(e.Message) > 2000 {
			t.Errorf("%.120s: status %d, %.300s, log entry %v; want %d and %q", c.body, status, e.Message, e.AuditEntry, c.status, c.words)
			continue
		}
		if line := w.must("audit", "list", "--after", fmt.Sprint(int64(*e.AuditEntry)-1), "--kind", "request.invalid"); strings.Count(line, "\n") != 1 {
			t.Errorf("%.120s: entry %d is not the newest one about an invalid request: %s", c.body, *e.AuditEntry, line)
		}
	}
	// A name without a grant is denied.
	for _, body := range []string{member(`"capabilities":["edit"],"source":{"name":"nope"}`), member(`"capabilities":["nope"]`), member(`"env":["nope"]`), member(`"target":"nope"`)} {
		if status, e := w.refusal(submit, "application/json", strings.NewReader(body)); status != http.StatusForbidden || e.Code != api.CodeDenied || e.AuditEntry == nil {
			t.Errorf("%s: status %d, %+v", body, status, e)
		}
	}
	if list := w.list(); len(list) != 0 {
		t.Errorf("dispatches were made: %+v", list)
	}
	// A body of unknown length is bounded as well.
	if status, e := w.refusal(submit, "application/json", io.MultiReader(strings.NewReader(`{"subagent":"edit","input":{"a":"`), bytes.NewReader(bytes.Repeat([]byte("x"), 3<<20)))); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a body without length: status %d, %+v", status, e)
	}
	status, b := w.call(http.MethodPost, submit, "application/json", strings.NewReader(`{"subagent":"edit","input":{}}`))
	if status != http.StatusAccepted {
		t.Errorf("a valid request is answered with %d: %s", status, b)
	}
}

// takeover both modes, AI client; one operator key: no define
// takeover both modes, one deploy key: no replay
//
// proves R-B1
func TestSocketCannotChangeTheCatalog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "true"})
	w.up()
	published := snapshot(t, w.path("data"))
	for _, c := range [][2]string{
		{"POST", "/v1/operator/catalog"},
		{"POST", "/v1/operator/apply"},
		{"PUT", "/v1/runtime/dispatches"},
		{"DELETE", "/v1/operator/log"},
		{"POST", "/v1/operator/log"},
		{"GET", "/v1/operator/stop"},
		{"POST", "/v1/runtime/../operator/stop"},
		{"GET", "/v1/runtime/dispatches/..%2f..%2foperator%2fstatus"},
		{"GET", "/"},
	} {
		status, b := w.call(c[0], c[1], "application/json", nil)
		if status/100 == 2 {
			t.Errorf("%s %s is answered with %d %s", c[0], c[1], status, b)
		}
	}
	for _, q := range []string{"limit=0", "limit=1001", "limit=x", "limit=-1"} {
		if status, b := w.call("GET", submit+"?"+q, "", nil); status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", q, status, b)
		}
	}
	for _, q := range []string{"after=-1", "after=99999999999999999999", "last=1001", "kind=nope", "run=..", "dispatch=..", "principal=nobody", "follow=perhaps"} {
		if status, b := w.call("GET", "/v1/operator/log?"+q, "", nil); status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", q, status, b)
		}
	}
	unchanged(t, "a call", published, snapshot(t, w.path("data")))
	if s := w.status(); !s.Ready {
		t.Errorf("status %+v", s)
	}
}

// The socket belongs to one account. A client of another account refuses the
// server, the file mode refuses the client, and the service refuses access to
// other callers' dispatches.
//
// takeover both modes, one deploy key; one operator key: no start, read work
// takeover system, MCP program; a person's account: no read work
//
// proves R-S2, R-A3
func TestOtherAccountsSeeAndCancelNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ordinaryUID)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "echo begun; sleep 300"})
	w.up()
	id := w.detached("edit", "--source", "repo")
	w.awaitLog(id, "begun")
	socket := w.path("run/bailiwick/api.sock")
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the socket is %v %v", info, err)
	}
	as := func(uid int) *world {
		other := *w
		other.uid = uid
		return &other
	}
	// Root may open the socket file, but its client does not trust a server of
	// another account.
	as(0).refused(4, []string{socket, "another account", "--socket"}, "--socket", socket, "dispatch", "show", id)
	// Another ordinary user cannot even connect.
	must(t, os.Chmod(w.path("run/bailiwick"), 0o755))
	must(t, os.Chmod(w.dir, 0o755))
	as(ordinaryUID+1).refused(1, []string{socket, "belongs to another account", "ask the owner of the service for a token"}, "--socket", socket, "dispatch", "show", id)
	// Without the client's check root is a caller like any other: local:root,
	// without grants.
	absent := "d-" + strings.Repeat("0", 24)
	for _, path := range []string{"", "/log", "/patch", "/output?path=x"} {
		status, b := w.call("GET", submit+"/"+id+path, "", nil)
		other, c := w.call("GET", submit+"/"+absent+path, "", nil)
		number := func(b []byte) string { head, _, _ := strings.Cut(string(b), `"auditEntry"`); return head }
		if status != http.StatusNotFound || other != status || strings.ReplaceAll(number(b), id, "ID") != strings.ReplaceAll(number(c), absent, "ID") {
			t.Errorf("GET %s: %d %s; of an unknown one: %d %s", path, status, b, other, c)
		}
	}
	if status, e := w.refusal(submit+"/"+id+"/cancel", "application/json", strings.NewReader(`{}`)); status != http.StatusNotFound || e.AuditEntry == nil {
		t.Errorf("cancel by another account: %d %+v", status, e)
	}
	if status, e := w.refusal(submit+"/"+id+"/answer", "application/json", strings.NewReader(`{"text":"yes"}`)); status != http.StatusNotFound || e.AuditEntry == nil {
		t.Errorf("an answer by another account: %d %+v", status, e)
	}
	if status, b := w.call("GET", submit, "", nil); status != http.StatusOK || strings.TrimSpace(string(b)) != "[]" {
		t.Errorf("another account lists %d %s", status, b)
	}
	if status, e := w.refusal(submit, "application/json", strings.NewReader(`{"subagent":"edit"}`)); status != http.StatusForbidden {
		t.Errorf("another account dispatches: %d %+v", status, e)
	}
	if status, e := w.refusal(submit, "application/json", strings.NewReader(`{"subagent":"edit","dispatchId":"`+id+`"}`)); status != http.StatusForbidden && strings.Contains(e.Message, "another request") {
		t.Errorf("a refusal reveals the ID of another account's dispatch: %d %+v", status, e)
	}
	for _, op := range []string{"status", "log"} {
		if status, b := w.call("GET", "/v1/operator/"+op, "", nil); status != http.StatusForbidden {
			t.Errorf("another account reads %s: %d %s", op, status, b)
		}
	}
	if status, e := w.refusal("/v1/operator/stop", "application/json", nil); status != http.StatusForbidden {
		t.Errorf("another account stops the service: %d %+v", status, e)
	}
	if n := len(w.entries("--principal", "local:root")); n < 12 {
		t.Errorf("the log has %d entries about the other account", n)
	}
	if d := w.show(id); d.State != api.EventStarted {
		t.Errorf("the owner sees %+v", d)
	}
	w.must("dispatch", "cancel", id)
	wantEnd(t, w.show(id), api.EventCancelled, "")
}

// A client that connects and sends nothing, or half a request, blocks no other
// client.
func TestStalledCallerDoesNotBlockTheService(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.setUp()
	w.up()
	for _, sent := range []string{"", "POST " + submit + " HTTP/1.1\r\n", "POST " + submit + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", strings.Repeat("\x00", 100), "GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("y", 64<<10) + "\r\n\r\n"} {
		conn, err := net.Dial("unix", w.path("run/bailiwick/api.sock"))
		must(t, err)
		defer conn.Close()
		if _, err := io.WriteString(conn, sent); err != nil && !strings.Contains(err.Error(), syscall.EPIPE.Error()) {
			t.Error(err)
		}
	}
	if s := w.status(); !s.Ready {
		t.Errorf("status %+v", s)
	}
	w.must("down") // within its time, with all of them still connected
}
