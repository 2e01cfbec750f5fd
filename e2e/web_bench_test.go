package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// BenchmarkPageOfALargeRun measures the page with a run of 10,000 tasks: the first paint
// of the run and of its graph, reading it again as live updates do, and the memory of
// bailiwick-web while 20 tabs follow 500 tasks to their end.
func BenchmarkPageOfALargeRun(b *testing.B) {
	w := orchestrated(b, 0)
	tasks := []api.PlanTask{shellTask("hold", awaitGate("go"))}
	for i := range 9_999 {
		tasks = append(tasks, shellTask(api.TaskID(fmt.Sprintf("t%04d", i)), "true", after("hold")))
	}
	id := w.submit(planned("large", tasks...))
	w.begunTask(id, "hold")
	p := w.servePage()
	t := p.signedIn()

	painted := map[string][]time.Duration{}
	for b.Loop() {
		for name, path := range map[string]string{"run": "/runs/large", "graph": "/runs/large/graph", "update": "/runs/large"} {
			if t.visit(p.origin+path) != 200 {
				b.Fatalf("%s:\n%s", path, t.text("body"))
			}
			ms := "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
			if name == "update" {
				ms = updateScript
			} else {
				t.await(ms)
			}
			var took float64
			t.eval(ms, &took)
			painted[name] = append(painted[name], time.Duration(took*float64(time.Millisecond)))
		}
	}
	for name, took := range painted {
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, name+"-ms")
	}
	for range 19 {
		p.at(p.open(), "/runs/large")
	}
	w.open("go")
	w.awaitEvent(id, func() func(api.RunEvent) bool {
		done := 0
		return func(e api.RunEvent) bool {
			if e.Event == "task.done" {
				done++
			}
			return done > 500
		}
	}())
	b.ReportMetric(float64(peak(child(b, p.cmd.Process.Pid)))/(1<<10), "web-MB")
	b.ReportMetric(0, "ns/op")
	w.must("run", "cancel", string(id), "--reason", "measured")
}

// updateScript shows a page anew, as static/live.js does, and returns the milliseconds.
const updateScript = `new Promise((done) => {
  const from = performance.now();
  const request = new XMLHttpRequest();
  request.open("GET", location.href);
  request.responseType = "document";
  request.onload = () => {
    document.getElementById("main").replaceChildren(...request.response.getElementById("main").childNodes);
    document.body.offsetHeight; // lays it out
    done(performance.now() - from);
  };
  request.send();
})`

// child returns the process that pid executed.
func child(t testing.TB, pid int) (child int) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // of each thread
	must(t, err)
	for _, list := range lists {
		text, err := os.ReadFile(list)
		must(t, err)
		if _, err := fmt.Sscan(string(text), &child); err == nil {
			return child
		}
	}
	t.Fatalf("process %d has no child", pid)
	return 0
}
