package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// try runs the program against a service, and returns its status and what it printed.
func try(t *testing.T, h http.HandlerFunc, in string, args ...string) (status int, out, errs string) {
	t.Helper()
	s := httptest.NewServer(h)
	defer s.Close()
	var o, e strings.Builder
	p := program{client: newClient(s.URL+"/mcp", &e), in: strings.NewReader(in), out: &o, errs: &e}
	status = p.run(t.Context(), args)
	return status, o.String(), e.String()
}

// answers answers every request with a result, and keeps the last request.
func answers(result string, last *string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if last != nil {
			*last = r.Header.Get("Mcp-Method") + " " + r.Header.Get("Mcp-Name") + " " + string(b)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,%s}`, result)
	}
}

func TestExitStatusSaysWhatBecameOfACall(t *testing.T) {
	text := func(s string) string { return `"content":[{"type":"text","text":"` + s + `"}]` }
	for name, c := range map[string]struct {
		args   string
		result string
		status int
		out    string
		errs   string
	}{
		"a result":          {"call a/b {}", `"result":{` + text(`one\ntwo`) + `}`, 0, "one\ntwo\n", ""},
		"structured":        {"call a_b", `"result":{"content":[],"structuredContent":{"n":1}}`, 0, `{"n":1}`, ""},
		"an image":          {"call a_b", `"result":{"content":[{"type":"image","data":"AA=="}]}`, 0, `"AA=="`, ""},
		"as JSON":           {"call a_b {} -o json", `"result":{` + text("x") + `}`, 0, `"content":[`, ""},
		"a tool's error":    {"call a_b {}", `"result":{"isError":true,` + text("no table") + `}`, 1, "", "no table"},
		"refused":           {"call a_b {}", `"result":{"isError":true,` + text("denied: no") + `,"_meta":{"io.bailiwick/error":{"code":"denied"}}}`, 3, "", "denied: no"},
		"waiting":           {"call a_b {}", `"result":{"isError":true,` + text("waiting") + `,"_meta":{"io.bailiwick/error":{"code":"not_finished"}}}`, 4, "", "waiting"},
		"unknown":           {"call a_b {}", `"error":{"code":-32602,"message":"unknown tool","data":{"code":"denied","hint":"do not retry"}}`, 3, "", "unknown tool; do not retry"},
		"the service away":  {"call a_b {}", `"error":{"code":-32603,"message":"the call was not made"}`, 1, "", "was not made"},
		"control sequences": {"call a_b {}", `"error":{"code":-32603,"message":"a\u001b[2Jb"}`, 1, "", "a[2Jb"},
		"no object":         {"call a_b [1]", "", 2, "", "not a JSON object"},
		"null":              {"call a_b null", "", 2, "", "not a JSON object"},
		"no JSON":           {"call a_b {x}", "", 2, "", "not a JSON object"},
		"no command":        {"", "", 2, "", "give a command"},
		"another command":   {"drop", "", 2, "", "no such command"},
		"no question":       {"ask", "", 2, "", "wrong arguments for ask"},
		"an unknown flag":   {"ask q --force", "", 2, "", "no such flag"},
		"a flag of another": {"report x -o json", "", 2, "", "wrong arguments"},
		"no value":          {"ask q --option", "", 2, "", "needs a value"},
		"help":              {"help", "", 0, "bailiwick-tool call", ""},
		"help of a command": {"call --help", "", 0, "bailiwick-tool call", ""},
	} {
		status, out, errs := try(t, answers(c.result, nil), "", strings.Fields(c.args)...)
		if status != c.status || !strings.Contains(out, c.out) || !strings.Contains(errs, c.errs) || c.status != 0 && errs == "" || strings.Contains(errs, "\x1b") {
			t.Errorf("%s: status %d, %q, %q", name, status, out, errs)
		}
	}
}

func TestRequestsAreThoseOfTheStatelessRevision(t *testing.T) {
	for name, c := range map[string]struct {
		args, in string
		want     string
		params   string
	}{
		"slash":    {"call|warehouse/query|{\"sql\": 1}", "", "tools/call warehouse_query ", `"arguments":{"sql":1}`},
		"stdin":    {"call|a_b|-", `{"big":true}`, "tools/call a_b ", `"arguments":{"big":true}`},
		"ask":      {"ask|Which one?|--option|red|--option=blue", "", "tools/call ask ", `"options":["red","blue"],"question":"Which one?"`},
		"report":   {"report|--|-half", "", "tools/call report ", `"text":"-half"`},
		"no input": {"call|a_b", "", "tools/call a_b ", `"arguments":{}`},
	} {
		var last string
		status, _, errs := try(t, answers(`"result":{"content":[]}`, &last), c.in, strings.Split(c.args, "|")...)
		if status != 0 || !strings.HasPrefix(last, c.want) || !strings.Contains(last, c.params) || !strings.Contains(last, `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`) {
			t.Errorf("%s: %d %s %s", name, status, last, errs)
		}
	}
}

func TestListHasOneLineForEachTool(t *testing.T) {
	pages := func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		result := `"result":{"tools":[{"name":"ask","description":"Ask.\nMore."}],"nextCursor":"2"}`
		if strings.Contains(string(b), `"cursor":"2"`) {
			result = `"result":{"tools":[{"name":"warehouse_query","description":"Query\tit."}]}`
		}
		answers(result, nil)(w, r)
	}
	if status, out, errs := try(t, pages, "", "list"); status != 0 || out != "ask              Ask.\nwarehouse_query  Query it.\n" {
		t.Errorf("%d %q %s", status, out, errs)
	}
	_, out, _ := try(t, pages, "", "list", "-o", "json")
	var list struct{ Tools []tool }
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Tools) != 2 {
		t.Errorf("%v %s", err, out)
	}
}

// Progress goes to standard error, and an event stream that ends early is a failure.
func TestEventStreamsAreRead(t *testing.T) {
	const progress = "event: message\r\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"message\":\"waits\"}}\r\n\r\n"
	stream := func(rest string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, ": comment\n\n"+progress+rest)
		}
	}
	status, out, errs := try(t, stream("data: {\"jsonrpc\":\"2.0\",\"id\":1,\ndata: \"result\":{\"content\":[{\"type\":\"text\",\"text\":\"done\"}]}}\n\n"), "", "call", "a_b")
	if status != 0 || out != "done\n" || !strings.Contains(errs, "waits") {
		t.Errorf("%d %q %q", status, out, errs)
	}
	if status, _, errs = try(t, stream(""), "", "call", "a_b"); status != 1 || !strings.Contains(errs, "not known whether") {
		t.Errorf("%d %q", status, errs)
	}
	if status, _, errs = try(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "nothing here", http.StatusNotFound) }, "", "list"); status != 1 || !strings.Contains(errs, "status 404: nothing here") {
		t.Errorf("%d %q", status, errs)
	}
}
