package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// BenchmarkReuse measures a run of pure tasks, each with an input of its own, and the same
// run again, which has all results from the first: per task, from the request to the end of
// the run, and the processor time of the service, whose workers are not in it.
func BenchmarkReuse(b *testing.B) {
	const tasks = 50
	w := newWorld(b, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n", "b.txt": "two\n", "c/d.txt": "three\n"})
	w.catalog(subagent{name: "pure", script: "mkdir -p outputs; echo x >> a.txt; cat inputs/input.json > outputs/out", more: "    effect: pure\n    input: {type: object, properties: {n: {type: string}}}\n"})
	w.upRuns()
	w.downAtEnd()
	face, service := w.conn().Runtime(), w.status().PID
	run := func(id api.RunID, round, hits int) (took, cpu time.Duration) {
		p := api.Plan{ID: id}
		for i := range tasks {
			p.Tasks = append(p.Tasks, api.PlanTask{
				ID: api.TaskID(fmt.Sprintf("t%d", i)), Subagent: "pure", Source: &api.SourceRequest{Name: "repo"}, Input: fmt.Appendf(nil, `{"n":"%d-%d"}`, round, i),
			})
		}
		from, before := time.Now(), cpuOf(b, service)
		_, err := face.Submit(b.Context(), request(b, p))
		must(b, err)
		must(b, face.WatchRun(b.Context(), id, "", func(api.RunEvent) error { return nil }))
		took, cpu = time.Since(from), cpuOf(b, service)-before
		r, err := face.Run(b.Context(), id, "", tasks)
		must(b, err)
		for i := range r.Tasks {
			if r.Tasks[i].Reused != nil {
				hits--
			}
		}
		if r.State != api.RunDone || hits != 0 {
			b.Fatalf("%+v, %d hits too few", r, hits)
		}
		return took, cpu
	}
	var took, cpu [2]time.Duration
	n := 0
	for b.Loop() {
		for i, hits := range []int{0, tasks} {
			t, c := run(api.RunID(fmt.Sprintf("r-%d-%d", n, i)), n, hits)
			took[i], cpu[i] = took[i]+t, cpu[i]+c
		}
		n++
	}
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 / float64(n*tasks) }
	b.ReportMetric(each(took[0]), "run-ms/task")
	b.ReportMetric(each(took[1]), "hit-ms/task")
	b.ReportMetric(float64(took[0])/float64(took[1]), "x-faster")
	b.ReportMetric(each(cpu[0]), "run-service-cpu-ms")
	b.ReportMetric(each(cpu[1]), "hit-service-cpu-ms")
	b.ReportMetric(0, "ns/op")
}
