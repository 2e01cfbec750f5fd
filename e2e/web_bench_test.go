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

// BenchmarkPageOfALargeLog measures the log of an agent that printed 300,000 lines: the first
// paint of its page and of a search over all lines, a jump to a line until its text is there,
// the frames while the log is scrolled and while it stands still, and the memory of
// bailiwick-web.
func BenchmarkPageOfALargeLog(b *testing.B) {
	w, dispatch := viewed(b)
	p := w.servePage()
	t := p.signedIn()
	took := map[string][]float64{}
	for b.Loop() {
		for _, name := range []string{"open", "find"} { // the first opening reads the log from the service
			p.at(t, dispatch+map[string]string{"open": "/log", "find": "/log?find=line+299987+of"}[name])
			var ms float64
			const painted = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
			t.await(painted)
			t.eval(painted, &ms)
			took[name] = append(took[name], ms)
		}
		p.at(t, dispatch+"/log")
		for _, line := range []int{299_999, 150_000, 75_000, 225_000, 30_000} {
			var ms float64
			t.eval(fmt.Sprintf(jumpScript, line), &ms)
			took["jump"] = append(took["jump"], ms)
		}
		for name, pixels := range map[string]int{"frame": 400, "still": 0} {
			var frames []float64
			t.eval(fmt.Sprintf(framesScript, pixels), &frames)
			took[name] = append(took[name], frames...)
		}
	}
	for name, ms := range took {
		slices.Sort(ms)
		b.ReportMetric(ms[len(ms)/2], name+"-ms")
		if name == "frame" || name == "still" {
			b.ReportMetric(ms[len(ms)*99/100], name+"-p99-ms")
		}
	}
	b.ReportMetric(float64(peak(child(b, p.cmd.Process.Pid)))/(1<<10), "web-MB")
	b.ReportMetric(0, "ns/op")
}

// jumpScript leads to a line of a log as a link does, and returns the milliseconds until its
// text is drawn.
const jumpScript = `new Promise((done) => {
  const from = performance.now(), line = %d;
  location.hash = "#L" + line;
  const look = () => document.querySelector("#L" + line + " code") ? done(performance.now() - from) : requestAnimationFrame(look);
  look();
})`

// framesScript scrolls a log by some pixels each frame, and returns the milliseconds of each
// frame.
const framesScript = `new Promise((done) => {
  const region = document.getElementById("log"), took = [];
  let before = 0;
  const step = (now) => {
    took.push(now - before);
    before = now;
    region.scrollTop += %d;
    if (took.length <= 500) {
      requestAnimationFrame(step);
    } else {
      done(took.slice(1));
    }
  };
  requestAnimationFrame(step);
})`

// updateScript shows a page again, as static/live.js does, and returns the milliseconds.
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
