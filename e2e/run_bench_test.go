package e2e

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// BenchmarkRunOfJailedNoOps measures the overhead of the orchestrator with real
// workers: 200 jailed no-op dispatches as one run of 200 tasks, and the same
// 200 requested individually, as many at once as the run has slots.
func BenchmarkRunOfJailedNoOps(b *testing.B) {
	const tasks = 200
	slots := 2 * runtime.NumCPU()
	w := newWorld(b, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n", "b.txt": "two\n", "c/d.txt": "three\n"})
	w.catalog(subagent{name: "nothing", script: "true"})
	w.write("config/bailiwick/service.yaml", fmt.Sprintf("version: 1\norchestrator: {queues: {default: {slots: %d}}}\n", slots), 0o600)
	w.upRuns()
	w.downAtEnd()
	face := w.conn().Runtime()
	source := &api.SourceRequest{Name: "repo"}
	report := func(b *testing.B, total time.Duration, n int) {
		b.ReportMetric(float64(total.Microseconds())/1000/float64(n), "ms/dispatch")
		b.ReportMetric(float64(n)/total.Seconds(), "dispatches/s")
		b.ReportMetric(0, "ns/op")
	}
	for _, atOnce := range []int{1, slots} {
		b.Run(fmt.Sprintf("OneByOne/%dAtOnce", atOnce), func(b *testing.B) {
			var total time.Duration
			n := 0
			for b.Loop() {
				from := time.Now()
				todo := make(chan int, tasks)
				for i := range tasks {
					todo <- i
				}
				close(todo)
				var all sync.WaitGroup
				for range atOnce {
					all.Go(func() {
						for range todo {
							d, err := face.Dispatch(b.Context(), api.DispatchRequest{Subagent: "nothing", Source: source})
							if err == nil {
								d, err = face.Describe(b.Context(), d.ID, time.Minute)
							}
							if err != nil || d.State != api.EventFinished {
								b.Errorf("%s %s: %v", d.State, d.Message, err)
							}
						}
					})
				}
				all.Wait()
				total, n = total+time.Since(from), n+tasks
			}
			report(b, total, n)
		})
	}
	b.Run(fmt.Sprintf("AsARun/%dSlots", slots), func(b *testing.B) {
		var total time.Duration
		n := 0
		for b.Loop() {
			var p api.Plan
			for i := range tasks {
				p.Tasks = append(p.Tasks, api.PlanTask{ID: api.TaskID(fmt.Sprintf("t%d", i)), Subagent: "nothing", Source: source})
			}
			from := time.Now()
			run, err := face.Submit(b.Context(), request(b, p))
			if err == nil {
				err = face.WatchRun(b.Context(), run.RunID, "", func(api.RunEvent) error { return nil })
			}
			total, n = total+time.Since(from), n+tasks
			if err == nil {
				run, err = face.Run(b.Context(), run.RunID, "", 1)
			}
			if err != nil || run.State != api.RunDone {
				b.Fatalf("%+v: %v", run, err)
			}
		}
		report(b, total, n)
	})
}
