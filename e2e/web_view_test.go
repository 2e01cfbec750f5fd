package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/webpage"
)

// large is how many lines the log of these tests has.
const large = 300_000

// viewers serves the page over a service that has one run and one dispatch of a size that
// no test could make by running agents, and signs a browser in.
func viewers(t *testing.T) (*tab, string) {
	t.Helper()
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	patch := "diff --git a/x.go b/x.go\n--- a/x.go\n+++ b/x.go\n@@ -1,2 +1,2 @@ func main\n a\n-b\n+if ok { // \u202e } \u2066\n" +
		"diff --git a/.github/workflows/ci.yml b/.github/workflows/ci.yml\nnew file mode 100755\n--- /dev/null\n+++ b/.github/workflows/ci.yml\n@@ -0,0 +1 @@\n+on: push\n"
	var log bytes.Buffer
	for i := range large {
		fmt.Fprintf(&log, "line %d of the log <b>\x1b[0m\n", i+1)
	}
	run := api.Run{RunID: "r-view", State: api.RunRunning, Queue: "q", Principal: "local:ann", Plan: api.DigestOf(nil), SubmittedAt: at, Total: 40, Counts: map[api.TaskState]int{api.TaskRunning: 40}}
	for i := range 40 {
		task := api.RunTask{Task: api.TaskID(fmt.Sprintf("task-%d", i)), State: api.TaskStates()[i%10], Subagent: api.Name(fmt.Sprintf("s%d", i)), DispatchID: "d-view", Attempts: 1}
		if i > 2 {
			task.After = []api.TaskID{run.Tasks[i/2].Task, run.Tasks[i/3].Task}
		}
		run.Tasks = append(run.Tasks, task)
	}
	dispatch := api.Dispatch{
		ID: "d-view", State: api.EventFinished, Attempt: 1, Principal: "local:ann", Subagent: "fixer", Role: "quality", Tier: api.Observe, Target: "local", Manifest: api.DigestOf(nil), AcceptedAt: at, EndedAt: &at, Mode: "same-user",
		Outcome: &api.ResultSummary{Patch: &api.Artifact{Digest: api.DigestOf([]byte(patch)), Size: int64(len(patch))}},
	}
	answers := http.NewServeMux()
	answers.HandleFunc("GET /v1/runtime/runs/r-view", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(run) })
	answers.HandleFunc("GET /v1/runtime/dispatches/d-view", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(dispatch) })
	answers.HandleFunc("GET /v1/runtime/dispatches/d-view/patch", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, patch) })
	answers.HandleFunc("GET /v1/runtime/dispatches/d-view/log", func(w http.ResponseWriter, _ *http.Request) {
		enc, offset := json.NewEncoder(w), int64(0)
		for part := range slices.Chunk(log.Bytes(), 64<<10) {
			_ = enc.Encode(api.Chunk{Offset: offset, Data: part})
			offset += int64(len(part))
		}
		_ = enc.Encode(api.Chunk{Offset: offset, Data: []byte("checked\n"), Verify: true})
		_ = enc.Encode(api.Chunk{Offset: offset + 8, Ended: true})
	})
	answers.HandleFunc("GET /v1/operator/log", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("follow") != "true" {
			_ = json.NewEncoder(w).Encode(api.LogLine{Seq: 7, Text: "entry", Leaf: []byte("{}")})
			return
		}
		_ = http.NewResponseController(w).Flush() // and no further entries
		<-r.Context().Done()
	})
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	must(t, err)
	server := &http.Server{Handler: answers, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	conn := client.New(client.Config{Socket: filepath.Join(dir, "s"), UIDs: []int{os.Getuid()}})
	t.Cleanup(conn.Close)
	ctx, cancel := context.WithCancel(t.Context())
	listening, ended := make(chan webpage.Invitation, 1), make(chan error, 1)
	go func() {
		ended <- webpage.Serve(ctx, webpage.Config{
			Conn: conn, UID: os.Getuid(), Now: time.Now, Logger: slog.New(slog.DiscardHandler), Address: "127.0.0.1:0", Control: filepath.Join(dir, "c"),
			Listening: func(i webpage.Invitation) { listening <- i },
		})
	}()
	t.Cleanup(func() {
		cancel()
		must(t, <-ended)
	})
	invitation := <-listening
	origin := strings.TrimSuffix(invitation.URL, "/")
	tab := newBrowser(t).open()
	tab.visit(origin + "/runs/r-view/graph")
	tab.fill("input[name=code]", invitation.Code)
	if status := tab.loads("the graph", func() { tab.press("Enter") }); status != http.StatusOK {
		t.Fatalf("after the code: status %d: %s", status, tab.text("body"))
	}
	tab.b.note(func() { tab.console = nil }) // the login has status 401
	return tab, origin
}

// The graph, the log and the patch have no violation of axe-core, in light and dark, wide
// and at 360 pixels, with script and without it, and no error in the console.
func TestViewersAreAccessible(t *testing.T) {
	tab, origin := viewers(t)
	for _, script := range []bool{true, false} {
		for _, path := range []string{"/runs/r-view/graph", "/runs/r-view/graph?trace=task-39", "/dispatches/d-view/log?find=line+30000", "/dispatches/d-view/patch"} {
			for _, scheme := range []string{"light", "dark"} {
				for _, width := range []int{1280, 360} {
					if !script && (scheme == "dark" || width == 1280) {
						continue // only what does not fit can differ
					}
					tab.script(script)
					tab.scheme(scheme)
					tab.size(width, 800)
					if status := tab.visit(origin + path); status != http.StatusOK {
						t.Errorf("%s: status %d", path, status)
					}
					name := fmt.Sprintf("%s, %s, %d pixels, script %v", path, scheme, width, script)
					if n := tab.wide(); n > 0 {
						t.Errorf("%s: %d pixels wider than the window", name, n)
					}
					if script {
						for _, v := range tab.axe() {
							t.Errorf("%s: %s", name, v)
						}
					}
				}
			}
		}
	}
	if found := tab.errors(); len(found) > 0 {
		t.Errorf("errors of the console: %q", found)
	}
}

// A log of 300,000 lines is one region, and only its rows in view exist. A link to a line
// leads there, at the end, too.
func TestALargeLogHasOnlyTheRowsInView(t *testing.T) {
	tab, origin := viewers(t)
	tab.visit(origin + "/dispatches/d-view/log#L150000")
	tab.awaitText("#L150000 code", "line 150000 of the log <b>U+001B[0m")
	tab.eval("document.getElementById('log').scrollTop = 1e9", nil)
	tab.awaitText(fmt.Sprintf("#L%d code", large+1), "checked")
	tab.awaitText(fmt.Sprintf("#L%d .who", large+1), "verify")
	if n := tab.count("#log li"); n > 200 || n < 10 {
		t.Errorf("%d rows", n)
	}
	if n := tab.count("#log b, #log script"); n > 0 {
		t.Errorf("the log made %d elements", n)
	}
	tab.eval("location.hash = '#L7'", nil)
	tab.await("document.querySelector('#L7.chosen-line code')?.textContent.startsWith('line 7 ')")
}

// The graph is one stop of the keyboard, and arrows move in it. A viewed file of a patch
// stays so, by its digest.
func TestViewersWorkByKeyboard(t *testing.T) {
	tab, origin := viewers(t)
	if n := tab.count("#graph .node[tabindex='0']"); n != 1 {
		t.Errorf("%d stops", n)
	}
	tab.eval("document.querySelector('#graph .node').focus()", nil)
	before := tab.value("document.activeElement.getAttribute('href')")
	tab.press("ArrowRight")
	if after := tab.value("document.activeElement.getAttribute('href')"); after == before || !strings.Contains(after, "trace=") {
		t.Errorf("the arrow leads from %s to %s", before, after)
	}
	tab.loads("the trace", func() { tab.press("Enter") })
	if tab.count(".chosen") != 1 || tab.count(".edge.on") == 0 {
		t.Errorf("no trace at %s", tab.value("location.href"))
	}
	tab.visit(origin + "/dispatches/d-view/patch")
	tab.click("#file-2 .viewed")
	tab.await("!document.querySelector('#file-2 details').open")
	tab.visit(origin + "/dispatches/d-view/patch")
	tab.await("document.querySelector('#file-2 .viewed').checked && !document.querySelector('#file-2 details').open && document.querySelector('#file-1 details').open")
}
