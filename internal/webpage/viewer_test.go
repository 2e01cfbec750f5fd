package webpage

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"strings"
	"testing"

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
