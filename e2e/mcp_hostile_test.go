package e2e

import (
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Any input that is not a single strict message is refused with its error code,
// and the session continues: the next request is answered.
//
// proves R-T9
func TestInvalidMessagesDoNotEndTheSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ordinaryUID)
	list := func(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/list"}` }
	for _, revision := range mcpRevisions()[:2] {
		s := w.mcp(revision)
		for _, c := range []struct {
			what, line string
			code       int
			id         string // of the response
		}{
			{"a duplicate key", `{"jsonrpc":"2.0","id":"a","method":"ping","method":"tools/list"}`, -32700, `"a"`},
			{"a duplicate key deep inside", `{"jsonrpc":"2.0","id":"b","method":"tools/call","params":{"name":"x","arguments":{"a":{"b":1,"b":2}}}}`, -32700, `"b"`},
			{"a duplicate key by escape", `{"jsonrpc":"2.0","id":"c","method":"ping","params":{"a":1,"\u0061":2}}`, -32700, `"c"`},
			{"two ids", `{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, -32700, "null"},
			{"invalid UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":\"d\",\"method\":\"ping\",\"params\":{\"a\":\"\xff\"}}", -32700, `"d"`},
			{"invalid UTF-8 in the id", "{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"ping\"}", -32700, "null"},
			{"a lone surrogate", `{"jsonrpc":"2.0","id":"e","method":"ping","params":{"a":"\ud800"}}`, -32700, `"e"`},
			{"a lone low surrogate in a key", `{"jsonrpc":"2.0","id":"f","method":"ping","params":{"\udc00":1}}`, -32700, `"f"`},
			{"a number out of range", `{"jsonrpc":"2.0","id":"g","method":"ping","params":{"a":9007199254740993}}`, -32700, `"g"`},
			{"nothing but nesting", strings.Repeat("[", 100000), -32600, "null"},
			{"nesting in an object", `{"a":` + strings.Repeat("[", 100000), -32700, "null"},
			{"not JSON", `hello`, -32700, "null"},
			{"half a message", `{"jsonrpc":"2.0","id":`, -32700, "null"},
			{"two messages on a line", list("1") + list("2"), -32700, "null"},
			{"a batch", "[" + list("1") + "," + list("2") + "]", -32600, "null"},
			{"an empty batch", "[]", -32600, "null"},
			{"a string", `"ping"`, -32600, "null"},
			{"null", `null`, -32600, "null"},
			{"another version", `{"jsonrpc":"1.0","id":"h","method":"ping"}`, -32600, `"h"`},
			{"no version", `{"id":"i","method":"ping"}`, -32600, `"i"`},
			{"a method that is a number", `{"jsonrpc":"2.0","id":"j","method":7}`, -32600, `"j"`},
			{"no method", `{"jsonrpc":"2.0","id":"k"}`, -32600, `"k"`},
			{"a method and an answer", `{"jsonrpc":"2.0","id":"l","method":"ping","result":{}}`, -32600, `"l"`},
			{"a response without a request", `{"jsonrpc":"2.0","result":{}}`, -32600, "null"},
			{"params that are a list", `{"jsonrpc":"2.0","id":"m","method":"ping","params":[1]}`, -32600, `"m"`},
			{"an id that is null", list("null"), -32600, "null"},
			{"an id that is a bool", list("true"), -32600, "null"},
			{"an id that is a list", list("[1]"), -32600, "null"},
			{"an id that is an object", list("{}"), -32600, "null"},
			{"an id that is a fraction", list("1.5"), -32600, "null"},
			{"an id that is too large", list("1e300"), -32600, "null"},
			{"2 MiB on a line", `{"jsonrpc":"2.0","id":"n","method":"ping","params":{"a":"` + strings.Repeat("x", 2<<20) + `"}}`, -32600, "null"},
			{"64 MiB on a line", strings.Repeat("x", 64<<20), -32600, "null"},
		} {
			s.send(c.line)
			if m := s.read(); m.Error == nil || m.Error.Code != c.code || string(m.ID) != c.id {
				t.Errorf("%s %s: %+v with the id %s, want %d with %s", revision, c.what, m.Error, m.ID, c.code, c.id)
			}
		}
		// The controls: valid messages that resemble these.
		for what, c := range map[string][2]string{
			"an id that is text":              {list(`"é\u2028 ✓"`), `"é\u2028 ✓"`},
			"an id that is empty text":        {list(`""`), `""`},
			"an id that is negative":          {list("-7"), "-7"},
			"an id that is zero":              {list("0"), "0"},
			"the largest id":                  {list("9007199254740991"), "9007199254740991"},
			"an integer with a decimal point": {list("3.0"), "3"},
			"U+2028 and U+2029 in a string":   {"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\",\"params\":{\"_meta\":{\"x\":\"a\u2028b\u2029c\"}}}", "5"},
			"a pair of surrogates":            {`{"jsonrpc":"2.0","id":6,"method":"ping","params":{"_meta":{"x":"\ud83d\ude00"}}}`, "6"},
			"spaces around":                   {"  \t" + list("7") + "  \r", "7"},
			"params that are null":            {`{"jsonrpc":"2.0","id":8,"method":"ping","params":null}`, "8"},
			"unknown members":                 {`{"jsonrpc":"2.0","id":9,"method":"ping","extra":1}`, "9"},
			"a request after a response":      {`{"jsonrpc":"2.0","id":77,"result":{}}` + "\n" + list("10"), "10"},
			"a request after a notification":  {`{"jsonrpc":"2.0","method":"notifications/unheard-of"}` + "\n\n" + list("11"), "11"},
		} {
			s.send(c[0])
			m := s.read()
			var got, want any
			decode(t, string(m.ID), &got)
			decode(t, c[1], &want)
			if m.Error != nil || got != want {
				t.Errorf("%s %s: %+v with the id %s", revision, what, m.Error, m.ID)
			}
		}
	}
}

// initialize is refused a second time, and other requests are refused before
// it.
func TestInitializeComesOnceAndFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ordinaryUID)
	s := w.mcpRaw(mcpProgram())
	if m := s.request("tools/list", nil); m.Error == nil || m.Error.Code != -32600 {
		t.Errorf("before initialize: %+v", m)
	}
	greeting := members{"protocolVersion": mcpNovember, "capabilities": members{}, "clientInfo": members{"name": "x", "version": "1"}}
	s.must("initialize", greeting)
	if m := s.request("initialize", greeting); m.Error == nil || m.Error.Code != -32600 {
		t.Errorf("a second initialize: %+v", m)
	}
	s.must("tools/list", nil)
}

// A flood of waiting calls neither blocks other calls nor grows without bound.
func TestConcurrentCallsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "sleeps", script: "sleep 300"})
	w.up()
	s := w.mcp(mcpNovember)
	s.ok("bailiwick_dispatch", members{"subagent": "sleeps", "source": members{"name": "repo"}, "dispatchId": "long"}, new(mcpStanding))
	for i := range 70 {
		s.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"w%d","method":"tools/call","params":{"name":"bailiwick_dispatch","arguments":{"subagent":"sleeps","source":{"name":"repo"},"dispatchId":"long","wait":50}}}`, i))
	}
	refused := map[string]bool{}
	for range 6 {
		m := s.read()
		if m.Error == nil || m.Error.Code != -32600 || refused[string(m.ID)] {
			t.Fatalf("the first responses are %+v", m)
		}
		refused[string(m.ID)] = true
	}
	for i := range 64 {
		s.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"w%d"}}`, i))
	}
	for range 64 {
		if m := s.read(); m.Error == nil {
			t.Errorf("a cancelled call got the response %s", m.Result)
		}
	}
	s.ok("bailiwick_dispatch_cancel", members{"dispatchId": "long"}, new(mcpStanding))
}

// Piped requests are answered after the client has closed its side.
func TestPipedRequestsAreAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ordinaryUID)
	cmd := w.command(mcpProgram())
	cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"bailiwick_envs_list"}}
{"jsonrpc":"2.0","id":3,"method":"tools/list"}`)
	out, err := cmd.Output()
	must(t, err)
	for _, id := range []string{`"id":1`, `"id":2`, `"id":3`} {
		if !strings.Contains(string(out), id) {
			t.Errorf("no response with %s: %s", id, out)
		}
	}
}

// A dispatch request only names things. Members that would carry authority are
// refused by name, in front of and behind the MCP server, and the refusal is
// logged. The control: the same request without them succeeds.
//
// takeover both modes, AI client: no define
//
// proves R-B7
func TestARequestCarriesNoAuthority(t *testing.T) {
	t.Parallel()
	inEachMode(t, 0, aRequestCarriesNoAuthority)
}

func aRequestCarriesNoAuthority(t *testing.T, uid int) {
	w := newWorld(t, uid)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "echo two > a.txt"}, subagent{name: "hidden", script: "true"})
	w.replace(manifest, "subagents: [edit,hidden]", "subagents: [edit]")
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.up()
	source := members{"name": "repo"}
	for _, revision := range mcpRevisions() {
		s := w.mcp(revision)
		for field, value := range map[string]any{
			"image": "evil:latest", "secrets": members{"A": "b"}, "callback": "https://example.invalid/", "actor": "human:root", "repo": "https://example.invalid/x.git",
			"principal": "local:root", "role": "quality", "tier": "observe", "prompt": "x", "system": "x", "command": []string{"sh"}, "files": members{}, "ceiling": "irreversible",
			"envs": []string{"colours"}, "Subagent": "edit", "limits": members{}, "mode": "open", "approved": true,
		} {
			e := s.refused(api.CodeInvalid, []string{`"` + field + `"`}, "bailiwick_dispatch", members{"subagent": "edit", "source": source, field: value})
			// The log has the first refusals of a persistent caller, and a
			// summary.
			if revision == mcpJune && e.AuditEntry == nil {
				t.Errorf("%s is not in the log", field)
			}
		}
		if log := w.must("audit", "list", "--kind", "request.invalid"); !strings.Contains(log, "callback") || !strings.Contains(log, w.me()) {
			t.Errorf("the log has no summary: %s", log)
		}
		s.refused(api.CodeInvalid, []string{`"repo"`}, "bailiwick_dispatch", members{"subagent": "edit", "source": members{"name": "repo", "repo": "https://example.invalid/x"}})
		s.refused(api.CodeDenied, []string{"do not retry", "bailiwick_subagents_list"}, "bailiwick_dispatch", members{"subagent": "edit", "source": source, "capabilities": []string{"hidden"}})
		s.refused(api.CodeDenied, nil, "bailiwick_dispatch", members{"subagent": "edit", "source": source, "env": []string{"secrets"}})
		s.refused(api.CodeDenied, nil, "bailiwick_dispatch", members{"subagent": "edit", "source": source, "target": "elsewhere"})
		s.refused(api.CodeDenied, nil, "bailiwick_dispatch", members{"subagent": "edit", "source": members{"name": "/etc"[1:]}})
		s.refused(api.CodeInvalid, []string{"/etc"}, "bailiwick_dispatch", members{"subagent": "edit", "source": members{"name": "/etc"}})
		var d mcpStanding
		s.ok("bailiwick_dispatch", members{"subagent": "edit", "source": source, "wait": 50}, &d)
		if d.State != api.EventFinished {
			t.Errorf("%s: the control: %+v", revision, d)
		}
	}
}

// Unknown and forbidden names get the same response, for tools and for the
// names in their arguments, except for the name and the number of the entry.
//
// proves R-B2, R-B6
func TestUnknownAndForbiddenLookAlike(t *testing.T) {
	t.Parallel()
	inEachMode(t, 0, unknownAndForbiddenLookAlike)
}

func unknownAndForbiddenLookAlike(t *testing.T, uid int) {
	w := newWorld(t, uid)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "true"}, subagent{name: "hidden", script: "true"})
	w.replace(manifest, "subagents: [edit,hidden]", "subagents: [edit]")
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.up()
	numbers := regexp.MustCompile(`[0-9]+`)
	plain := func(text string, names ...string) string {
		for _, name := range names {
			text = strings.ReplaceAll(text, name, "NAME")
		}
		return numbers.ReplaceAllString(text, "N")
	}
	for _, revision := range mcpRevisions() {
		s := w.mcp(revision)
		answers := map[string]bool{}
		for _, tool := range []string{"bailiwick_catalog_apply", "bailiwick_nothing", "rm", "bailiwick_dispatch ", "BAILIWICK_DISPATCH"} {
			m := s.request("tools/call", members{"name": tool, "arguments": members{}})
			if m.Error == nil || m.Error.Code != -32602 || !strings.Contains(string(m.Error.Data), "auditEntry") {
				t.Fatalf("%s %s: %+v", revision, tool, m)
			}
			answers[plain(fmt.Sprintf("%s %s", m.Error.Message, m.Error.Data), tool)] = true
		}
		if len(answers) != 1 {
			t.Errorf("%s: the responses for unknown tools differ: %v", revision, answers)
		}
		for what, pair := range map[string][2]members{
			"a subagent": {{"subagent": "hidden"}, {"subagent": "nobody"}},
			"a source":   {{"subagent": "edit", "source": members{"name": "hidden"}}, {"subagent": "edit", "source": members{"name": "nobody"}}},
			"an env":     {{"subagent": "edit", "env": []string{"hidden"}}, {"subagent": "edit", "env": []string{"nobody"}}},
			"a target":   {{"subagent": "edit", "target": "hidden"}, {"subagent": "edit", "target": "nobody"}},
			"an extra":   {{"subagent": "edit", "capabilities": []string{"hidden"}}, {"subagent": "edit", "capabilities": []string{"nobody"}}},
		} {
			one := s.refused(api.CodeDenied, nil, "bailiwick_dispatch", pair[0])
			two := s.refused(api.CodeDenied, nil, "bailiwick_dispatch", pair[1])
			if a, b := plain(one.Error(), "hidden"), plain(two.Error(), "nobody"); a != b || one.AuditEntry == nil || two.AuditEntry == nil {
				t.Errorf("%s: %s: the responses for a forbidden and an unknown one differ:\n%s\n%s", revision, what, a, b)
			}
		}
		s.refused(api.CodeNotFound, []string{"do not retry"}, "bailiwick_dispatch_describe", members{"dispatchId": "d-nobody"})
	}
}

// sockets counts the sockets of a process, and how many of them listen, as the
// kernel reports them.
func sockets(t *testing.T, pid int) (open, listening int) {
	t.Helper()
	own := map[string]bool{}
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	must(t, err)
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && strings.HasPrefix(to, "socket:[") {
			own[strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")] = true
		}
	}
	for _, table := range []string{"tcp", "tcp6", "udp", "udp6", "unix"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		must(t, err)
		for line := range strings.Lines(string(b)) {
			fields := strings.Fields(line)
			switch {
			case table == "unix" && len(fields) >= 7 && own[fields[6]]:
				if fields[3] == "00010000" { // the flags of a listening socket
					listening++
				}
			case table != "unix" && len(fields) >= 10 && own[fields[9]]:
				if fields[3] == "0A" || strings.HasPrefix(table, "udp") {
					listening++
				}
			}
		}
	}
	return len(own), listening
}

// On stdio nothing listens, in any address family. The controls: the same count
// finds the service's socket and the one of an HTTP server.
//
// proves R-T1
func TestOnStdioNothingListens(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "true"})
	w.up()
	s := w.mcp(mcpNovember)
	s.ok("bailiwick_subagents_list", members{}, new(any))
	if open, listening := sockets(t, s.cmd.Process.Pid); listening != 0 || open > 1 {
		t.Errorf("the server has %d sockets, %d of them listening; want at most the one to the service", open, listening)
	}
	var st api.ServiceStatus
	decode(t, w.must("status", "-o", "json"), &st)
	if _, listening := sockets(t, st.PID); listening == 0 {
		t.Error("the control: the count does not find the service's socket")
	}
	w.must("principal", "add", "agent:web")
	w.must("token", "create", "agent:web", "--out", w.path("web.token"))
	web := w.command(mcpProgram(), "--http", "127.0.0.1:0")
	errs, err := web.StderrPipe()
	must(t, err)
	must(t, web.Start())
	t.Cleanup(func() {
		_ = web.Process.Signal(syscall.SIGTERM) // it may have exited
		_ = web.Wait()
	})
	head := make([]byte, 200)
	n, err := io.ReadAtLeast(errs, head, 20)
	must(t, err)
	if _, listening := sockets(t, web.Process.Pid); listening != 1 {
		t.Errorf("the control: an HTTP server that prints %s has %d listening sockets", head[:n], listening)
	}
}

// A persistently refused caller does not fill the log: it has the first
// refusals, and the summary when the service stops.
func TestRefusedCallsDoNotFillTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "true"})
	w.up()
	s := w.mcp(mcpNovember)
	const calls = 500
	logged := 0
	for range calls {
		m := s.request("tools/call", members{"name": "bailiwick_catalog_apply", "arguments": members{}})
		if m.Error == nil || m.Error.Code != -32602 {
			t.Fatalf("the response is %+v", m)
		}
		if strings.Contains(string(m.Error.Data), "auditEntry") {
			logged++
		}
	}
	if n := len(w.entries("--kind", "request.invalid")); n != logged || logged < 20 || logged > calls/4 {
		t.Errorf("%d of %d refusals are in the log, %d responses named an entry", n, calls, logged)
	}
	w.must("down")
	if log := w.must("audit", "list", "--kind", "request.invalid"); !strings.Contains(log, fmt.Sprintf("and %d more", calls-logged)) {
		t.Errorf("the log has no summary of the others: %s", lastLine(log))
	}
}

// The server exits on a signal and when its client has exited, even with a call
// in progress.
func TestServerExitsWithItsClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "sleeps", script: "sleep 300"})
	w.up()
	for what, end := range map[string]func(*mcpSession){
		"SIGTERM":              func(s *mcpSession) { must(t, s.cmd.Process.Signal(syscall.SIGTERM)) },
		"the end of its input": func(s *mcpSession) { must(t, s.in.Close()) },
	} {
		s := w.mcp(mcpNovember)
		s.ok("bailiwick_dispatch", members{"subagent": "sleeps", "source": members{"name": "repo"}, "dispatchId": "long"}, new(mcpStanding))
		s.send(`{"jsonrpc":"2.0","id":"w","method":"tools/call","params":{"name":"bailiwick_dispatch","arguments":{"subagent":"sleeps","source":{"name":"repo"},"dispatchId":"long","wait":50}}}`)
		end(s)
		if _, err := io.Copy(io.Discard, s.lines); err != nil { // until it exits; the test's timeout bounds this
			t.Errorf("%s: %v", what, err)
		}
		if err := s.cmd.Wait(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	w.must("dispatch", "cancel", "long")
}

// The server exits within five seconds of a signal and of the end of its input,
// also when its client does not read: neither answers nor refusals keep it. The
// control: a client that reads gets them all.
func TestServerExitsThoughNobodyReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ordinaryUID)
	flood := func(line string) string { return strings.Repeat(line+"\n", 1000) }
	for what, lines := range map[string]string{
		"answers":  flood(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`),
		"refusals": flood("x"),
	} {
		for cause, end := range map[string]func(*mcpSession){
			"SIGTERM":              func(s *mcpSession) { must(t, s.cmd.Process.Signal(syscall.SIGTERM)) },
			"the end of its input": func(s *mcpSession) { must(t, s.in.Close()) },
		} {
			t.Run(what+", "+cause, func(t *testing.T) {
				t.Parallel()
				s := w.mcp(mcpNovember)
				s.t = t
				sent := make(chan struct{})
				go func() { // the server takes as much as it has room for
					defer close(sent)
					_, _ = io.WriteString(s.in, lines)
				}()
				if _, err := s.lines.Peek(1); err != nil { // it answers
					t.Fatal(err)
				}
				awaitStuck(t, s.cmd.Process.Pid)
				begun := time.Now()
				end(s)
				exited := make(chan error, 1)
				go func() { _, err := s.cmd.Process.Wait(); exited <- err }()
				select {
				case err := <-exited:
					must(t, err)
				case <-time.After(30 * time.Second):
					t.Error("it does not exit")
					must(t, s.cmd.Process.Kill())
				}
				if took := time.Since(begun); took > 15*time.Second {
					t.Errorf("it exited after %s", took)
				}
				<-sent
			})
		}
		cmd := w.command(mcpProgram())
		cmd.Stdin = strings.NewReader(lines)
		out, err := cmd.Output()
		if n := strings.Count(string(out), "\n"); err != nil || n != 1000 {
			t.Errorf("the control: %s: %d lines, %v", what, n, err)
		}
	}
}

// awaitStuck waits until a process has written all that a pipe takes.
func awaitStuck(t *testing.T, pid int) {
	t.Helper()
	last := ""
	for same := 0; same < 5; time.Sleep(50 * time.Millisecond) { // that nothing more is written is no event
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
		must(t, err)
		if written := regexp.MustCompile("wchar: .*").FindString(string(b)); written == last {
			same++
		} else {
			last, same = written, 0
		}
	}
}

// A cursor that no page has given, of any length, is invalid, and so is an id
// that is too long. The control: the first page.
func TestImpossibleCursorsAreInvalid(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "true"})
	w.up()
	w.must("dispatch", "run", "edit", "-q", "--id", "mine")
	s := w.mcp(mcpNovember)
	s.ok("bailiwick_subagents_list", members{}, new(any))
	for _, n := range []int{1, 257, 5000, 40_000, 500_000} {
		long := strings.Repeat("A", n)
		for _, tool := range []string{"bailiwick_subagents_list", "bailiwick_capabilities_list", "bailiwick_envs_list"} {
			s.refused(api.CodeInvalid, []string{"cursor"}, tool, members{"cursor": long})
		}
		s.refused(api.CodeInvalid, []string{"cursor"}, "bailiwick_dispatch_describe", members{"dispatchId": "mine", "cursor": long})
	}
	for _, n := range []int{257, 40_000, 500_000} {
		long := strings.Repeat("a", n)
		s.refused(api.CodeInvalid, []string{"after"}, "bailiwick_orchestrator_status", members{"runId": "r", "after": long})
		s.refused(api.CodeInvalid, []string{"after"}, "bailiwick_orchestrator_watch", members{"runId": "r", "after": long})
		s.refused(api.CodeInvalid, nil, "bailiwick_dispatch_describe", members{"dispatchId": long})
		s.refused(api.CodeInvalid, nil, "bailiwick_dispatch_cancel", members{"dispatchId": long})
		s.refused(api.CodeInvalid, nil, "bailiwick_orchestrator_status", members{"runId": long})
	}
	for _, offset := range []string{"9007199254740991", "1125899906842625", "9223372036854775807"} {
		at := base64.RawURLEncoding.EncodeToString([]byte(`{"a":1,"d":"mine","o":` + offset + `,"v":"logs"}`))
		s.refused(api.CodeInvalid, []string{"cursor"}, "bailiwick_dispatch_describe", members{"dispatchId": "mine", "include": "logs", "cursor": at})
	}
}

// If the service stops while a call waits, the error names the dispatch that
// the call started: a client without the ID would start it again.
func TestBrokenWaitNamesItsDispatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "sleeps", script: "sleep 300"})
	w.up()
	s := w.mcp(mcpNovember)
	s.tools()
	s.send(`{"jsonrpc":"2.0","id":"w","method":"tools/call","params":{"name":"bailiwick_dispatch","arguments":{"subagent":"sleeps","source":{"name":"repo"},"wait":50}}}`)
	for len(w.list()) == 0 || w.list()[0].State != api.EventStarted {
	}
	w.must("down")
	m := s.read()
	var r mcpResult
	decode(t, string(m.Result), &r)
	var d mcpStanding
	decode(t, string(r.Value), &d)
	if r.IsError || d.DispatchID == "" || !strings.Contains(d.Advice, "check it with") {
		t.Fatalf("it returns %s", m.Result)
	}
	w.must("up")
	s.ok("bailiwick_dispatch_cancel", members{"dispatchId": d.DispatchID}, &d)
	// A request that may have arrived can be repeated.
	w.must("dispatch", "logs", "-f", d.DispatchID)
	w.must("down")
	s.refused(api.CodeUnavailable, []string{"repeat the call with dispatchId d-"}, "bailiwick_dispatch", members{"subagent": "sleeps"})
}
