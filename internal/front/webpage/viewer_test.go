package webpage

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// The scripts of the page make no HTML from text, and its templates have neither inline
// script nor style: the policy would refuse them, in some browsers only.
func TestViewersNeedNoExceptionOfThePolicy(t *testing.T) {
	check := func(name, text string, banned ...string) {
		for _, word := range banned {
			if strings.Contains(text, word) {
				t.Errorf("%s has %q", name, word)
			}
		}
	}
	for pattern, banned := range map[string][]string{
		"static/*.js":  {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "setAttribute(\"style\"", "DOMParser"},
		"html/*.html":  {" style=", "<style", " onclick=", " onload=", "javascript:"},
		"static/*.css": {"url(", "@import"},
	} {
		names, err := fs.Glob(files, pattern)
		if err != nil || len(names) == 0 {
			t.Fatal(pattern, err)
		}
		for _, name := range names {
			b, err := files.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			check(name, string(b), banned...)
		}
	}
}

// svgOf returns the drawing in a page after reading it as XML.
func svgOf(t *testing.T, body string) string {
	t.Helper()
	_, rest, ok := strings.Cut(body, "<svg")
	svg, _, closed := strings.Cut(rest, "</svg>")
	if !ok || !closed {
		t.Fatalf("no drawing in %.500s", body)
	}
	svg = "<svg" + svg + "</svg>"
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return svg
		} else if err != nil {
			t.Fatalf("%v in %.2000s", err, svg)
		}
	}
}

// The graph has a node for each task, the table says the same, and both can be filtered
// without script.
func TestTheGraphAndItsTableSayTheSame(t *testing.T) {
	w := newWorld(t, nil)
	run := api.Run{RunID: "r-one", State: api.RunRunning, Queue: "q", Principal: "local:ann", Plan: api.DigestOf(nil), Total: 4, Counts: map[api.TaskState]int{api.TaskDone: 1, api.TaskFailed: 1, api.TaskRunning: 2}, Tasks: []api.RunTask{
		{Task: "a", State: api.TaskDone, Subagent: "fixer", DispatchID: "d-one"},
		{Task: "b", State: api.TaskRunning, Subagent: "fixer", After: []api.TaskID{"a"}},
		{Task: "b[x]", State: api.TaskRunning, Subagent: "fixer", GrewFrom: "b", After: []api.TaskID{"a"}},
		{Task: "c", State: api.TaskFailed, Subagent: "other", Message: "<script>alert(1)</script>\u202e", After: []api.TaskID{"a"}},
	}}
	w.service.answer("GET /v1/runtime/runs/r-one", run)
	got := w.want("the graph", sent{path: "/runs/r-one/graph"}, 200, `data-task="b[x]"`, "&lt;script&gt;alert(1)&lt;/script&gt;U&#43;202E", "running, 1 grown", "4 tasks match")
	svg := svgOf(t, got.body)
	if n := strings.Count(svg, `class="node`); n != 3 {
		t.Errorf("%d nodes, want 3: %s", n, svg)
	}
	if n := strings.Count(svg, `class="edge`); n != 2 {
		t.Errorf("%d edges, want 2", n)
	}
	if strings.Contains(got.body, "<script>alert") || strings.Contains(got.body, "\u202e") {
		t.Error("text of others is not escaped")
	}
	got = w.want("opened", sent{path: "/runs/r-one/graph?open=b"}, 200)
	if n := strings.Count(svgOf(t, got.body), `class="node`); n != 4 {
		t.Errorf("opened: %d nodes, want 4", n)
	}
	got = w.want("traced", sent{path: "/runs/r-one/graph?trace=b"}, 200, `class="traced"`, "Task b", "Show the 1 tasks that grew from it")
	if n := strings.Count(svgOf(t, got.body), `class="edge on"`); n != 1 {
		t.Errorf("traced: %d edges, want 1", n)
	}
	got = w.want("filtered", sent{path: "/runs/r-one/graph?state=failed"}, 200, "1 tasks match", `data-task="c"`)
	if strings.Contains(got.body, `data-task="a"`) {
		t.Error("the filter shows other tasks")
	}
	for query, want := range map[string]int{"trace=nobody": 404, "state=odd": 400, "from=0": 400, "from=x": 400, strings.Repeat("open=x&", maxOpen+1): 400} {
		w.want(query, sent{path: "/runs/r-one/graph?" + query}, want)
	}
	run.Tasks[0].After = []api.TaskID{"c"}
	w.service.answer("GET /v1/runtime/runs/r-one", run)
	got = w.want("a cycle", sent{path: "/runs/r-one/graph"}, 200, "form a cycle", "4 tasks match")
	if strings.Contains(got.body, "<svg") {
		t.Error("a cycle is drawn")
	}
}

// A run of 10,000 tasks is answered with what needs a reader; the rest is in the table,
// by pages.
func TestALargeRunIsPaged(t *testing.T) {
	w := newWorld(t, nil)
	run := api.Run{RunID: "r-one", State: api.RunRunning, Queue: "q", Principal: "local:ann", Plan: api.DigestOf(nil), Total: 10_000}
	for i := range 10_000 {
		task := api.RunTask{Task: api.TaskID(fmt.Sprintf("t%d", i)), State: api.TaskDone, Subagent: api.Name(fmt.Sprintf("s%d", i))}
		if i >= 100 {
			task.After = []api.TaskID{run.Tasks[i-100].Task}
		}
		run.Tasks = append(run.Tasks, task)
	}
	run.Tasks[4321].State = api.TaskFailed
	w.service.answer("GET /v1/runtime/runs/r-one", run)
	got := w.want("the first page", sent{path: "/runs/r-one/graph"}, 200, "too large to draw at once", "10000 tasks match", `rel="next"`)
	svg := svgOf(t, got.body)
	if n := strings.Count(svg, `class="node`); !strings.Contains(svg, "task t4321,") || n > 50 {
		t.Errorf("%d nodes", n)
	}
	if len(got.body) > 1<<20 {
		t.Errorf("%d bytes", len(got.body))
	}
	w.want("a page", sent{path: "/runs/r-one/graph?from=9801"}, 200, `data-task="t9999"`, `rel="prev"`)
	w.want("on demand", sent{path: "/runs/r-one/graph?trace=" + url.QueryEscape("t9999")}, 200, "task t9999,", "Task t9999")
}

// ended has the service answer with a dispatch that has ended, with a log and a patch.
func (w *world) ended(log []api.Chunk, patch string) {
	w.t.Helper()
	at := w.now()
	d := api.Dispatch{
		ID: "d-one", State: api.EventFinished, Attempt: 1, Principal: "local:ann", Subagent: "fixer", Role: "quality", Tier: api.Observe, Target: "local",
		Manifest: api.DigestOf(nil), AcceptedAt: at, EndedAt: &at, Mode: "same-user", Outcome: &api.ResultSummary{Patch: &api.Artifact{Digest: api.DigestOf([]byte(patch)), Size: int64(len(patch))}},
	}
	w.service.answer("GET /v1/runtime/dispatches/d-one", d)
	var b strings.Builder
	for _, c := range log {
		text, err := json.Marshal(c)
		if err != nil {
			w.t.Fatal(err)
		}
		b.Write(append(text, '\n'))
	}
	w.service.answer("GET /v1/runtime/dispatches/d-one/log", b.String())
	w.service.answer("GET /v1/runtime/dispatches/d-one/patch", patch)
}

func (w *world) now() time.Time { return time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC) }

// The log is shown by pages with numbers to link to, found in on the server over all
// lines, and harmless: markup is text, and controls are spelled out.
func TestTheLogIsPagedAndSearched(t *testing.T) {
	w := newWorld(t, nil)
	var b strings.Builder
	for i := range 1200 {
		fmt.Fprintf(&b, "line %d\n", i+1)
	}
	b.WriteString("<script>alert(1)</script>\x1b[2J\u202e\n")
	text := b.String()
	w.ended([]api.Chunk{{Data: []byte(text)}, {Offset: int64(len(text)), Data: []byte("checked\n"), Verify: true}, {Offset: int64(len(text)) + 8, Ended: true}}, "")
	got := w.want("the first page", sent{path: "/dispatches/d-one/log"}, 200, `id="L1"`, `id="L500"`, "1202 lines", `data-total="1202"`)
	if strings.Contains(got.body, `id="L501"`) {
		t.Error("a page has more lines than it may have")
	}
	got = w.want("the last page", sent{path: "/dispatches/d-one/log?from=1001"}, 200, "&lt;script&gt;alert(1)", `title="escape, which commands a terminal">U&#43;001B</span>`, "U&#43;202E", `<span class="who">verify </span>`, `rel="prev"`)
	if strings.Contains(got.body, "<script>alert") || strings.ContainsAny(got.body, "\x1b\u202e") {
		t.Error("a line of the log is not escaped")
	}
	w.want("a search", sent{path: "/dispatches/d-one/log?find=LINE+1200"}, 200, "1 lines with", `?find=LINE&#43;1200&amp;from=1001#L1200`)
	w.want("a search for a control", sent{path: "/dispatches/d-one/log?find=U%2B001B"}, 200, "1 lines with")
	w.want("nothing found", sent{path: "/dispatches/d-one/log?find=absent"}, 200, "0 lines with")
	got = w.want("lines for the script", sent{path: "/dispatches/d-one/log/lines?from=1201"}, 200, `"total":1202`, `"ended":true`, `"kind":"verify"`, `"text":"U+001B"`)
	if got.header.Get("Content-Type") != "application/json; charset=utf-8" || strings.Contains(got.body, "<script>") {
		t.Errorf("%s: %s", got.header.Get("Content-Type"), got.body)
	}
	got = w.want("the exact bytes", sent{path: "/dispatches/d-one/log/raw"}, 200, "\x1b[2J\u202e\nchecked\n")
	if !strings.HasPrefix(got.header.Get("Content-Disposition"), "attachment") || !strings.HasPrefix(got.header.Get("Content-Security-Policy"), "sandbox;") {
		t.Errorf("the raw log is not an attachment in a sandbox: %v", got.header)
	}
	for query, status := range map[string]int{"from=0": 400, "from=x": 400, "attempt=x": 400, "find=" + strings.Repeat("x", 1001): 400} {
		w.want(query, sent{path: "/dispatches/d-one/log?" + query}, status)
	}
	if calls := w.service.calls("d-one/log?"); len(calls) != 2 { // the page once, the raw log once
		t.Errorf("the log was read with %q", calls)
	}
}

// A log that grows is read from where it ended, and again as a whole with its end:
// numbers of lines are final then.
func TestALogIsReadAgainWithItsEnd(t *testing.T) {
	w := newWorld(t, nil)
	w.ended(nil, "")
	first := `{"offset":0,"data":"b25lCg=="}` + "\n" // one
	w.service.answer("GET /v1/runtime/dispatches/d-one/log", first)
	w.want("running", sent{path: "/dispatches/d-one/log/lines?from=1"}, 200, `"total":1`, `"ended":false`)
	w.service.calls("")
	w.service.answer("GET /v1/runtime/dispatches/d-one/log", first+`{"offset":4,"data":"dHdvCg=="}`+"\n"+`{"offset":8,"ended":true}`+"\n")
	w.want("ended", sent{path: "/dispatches/d-one/log/lines?from=1"}, 200, `"total":2`, `"ended":true`, `"text":"two"`)
	if calls := w.service.calls("d-one/log?"); len(calls) != 2 || !strings.Contains(calls[0], "offset=4") || !strings.Contains(calls[1], "offset=0") {
		t.Errorf("the log was read with %q", calls)
	}
}

// A patch is shown by file, with what hides spelled out and what a reviewer should look
// at marked; large files are shown on demand.
func TestThePatchIsShownByFile(t *testing.T) {
	w := newWorld(t, nil)
	one := "diff --git a/x.go b/x.go\n--- a/x.go\n+++ b/x.go\n@@ -1,2 +1,2 @@ <b>\n a\n-b\n+<script>alert(1)</script>\u202e\n"
	ci := "diff --git a/.github/workflows/ci.yml b/.github/workflows/ci.yml\nnew file mode 100755\n--- /dev/null\n+++ b/.github/workflows/ci.yml\n@@ -0,0 +1 @@\n+on: push\n"
	big := "diff --git a/big b/big\n--- a/big\n+++ b/big\n@@ -0,0 +1,900 @@\n" + strings.Repeat("+folded\n", 900)
	w.ended(nil, one+ci+big)
	got := w.want("the patch", sent{path: "/dispatches/d-one/patch"}, 200, "3 files, 902 lines added, 1 removed", "&lt;script&gt;alert(1)&lt;/script&gt;<span class=\"hides\"", "U&#43;202E",
		"hidden characters</span>", ">CI</span>", ">executable</span>", `data-digest="`+string(api.DigestOf([]byte(one)))+`"`, `href="/dispatches/d-one/patch?file=3"`)
	if strings.Contains(got.body, "<script>alert") || strings.Contains(got.body, "\u202e") || strings.Contains(got.body, "folded") {
		t.Error("text is not escaped, or a large file is not folded")
	}
	got = w.want("a large file", sent{path: "/dispatches/d-one/patch?file=3"}, 200, "All 3 files")
	if n := strings.Count(got.body, ">folded<"); n != 900 {
		t.Errorf("%d lines, want 900", n)
	}
	w.want("no such file", sent{path: "/dispatches/d-one/patch?file=4"}, 404, "the patch has 3 files")
	got = w.want("the exact bytes", sent{path: "/dispatches/d-one/patch/raw"}, 200, "\u202e\n")
	if got.body != one+ci+big || !strings.HasPrefix(got.header.Get("Content-Disposition"), "attachment") || !strings.HasPrefix(got.header.Get("Content-Security-Policy"), "sandbox;") {
		t.Errorf("the raw patch is not exact, or no attachment in a sandbox: %v", got.header)
	}
	w.ended(nil, "")
	w.service.answer("GET /v1/runtime/dispatches/d-one/patch", api.Error{})
	w.want("no files", sent{path: "/dispatches/d-one/patch"}, 200)
}

// The pages of dispatches lead to their logs and patches.
func TestADispatchLinksToItsLogAndPatch(t *testing.T) {
	w := newWorld(t, nil)
	w.ended(nil, "x")
	w.want("the dispatch", sent{path: "/dispatches/d-one"}, 200, `href="/dispatches/d-one/log"`, `href="/dispatches/d-one/patch"`)
}
