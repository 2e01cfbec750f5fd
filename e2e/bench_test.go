package e2e

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

// BenchmarkDispatch measures the overhead of one dispatch, end to end: a
// request on the socket, a worker, a jail, an agent that does nothing, and the
// durable end, on a repository of three files.
func BenchmarkDispatch(b *testing.B) {
	w := newWorld(b, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n", "b.txt": "two\n", "c/d.txt": "three\n"})
	w.catalog(
		subagent{name: "nothing", script: "true"},
		subagent{name: "edits", script: "echo changed > a.txt"},
		subagent{name: "verified", script: "echo changed > a.txt", more: "    verify: {command: [\"true\"]}\n"},
	)
	w.up()
	conn := client.New(client.Config{Socket: w.path("run/bailiwick/api.sock"), UIDs: []int{os.Getuid()}})
	defer conn.Close()
	for _, c := range []struct {
		name     string
		subagent api.Name
		source   *api.SourceRequest
	}{
		{"NoOp", "nothing", &api.SourceRequest{Name: "repo"}},
		{"NoOpWithoutSource", "nothing", nil},
		{"OneLinePatch", "edits", &api.SourceRequest{Name: "repo"}},
		{"OneLinePatchVerified", "verified", &api.SourceRequest{Name: "repo"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			steps := map[string]time.Duration{}
			var took []time.Duration
			for b.Loop() {
				from := time.Now()
				d, err := conn.Runtime().Dispatch(b.Context(), api.DispatchRequest{Subagent: c.subagent, Source: c.source})
				if err != nil {
					b.Fatal(err)
				}
				if d, err = conn.Runtime().Describe(b.Context(), d.ID, time.Minute); err != nil || d.State != api.EventFinished {
					b.Fatalf("%s %s: %v", d.State, d.Message, err)
				}
				took = append(took, time.Since(from))
				for _, s := range d.Outcome.Steps {
					steps[s.Name] += time.Duration(s.Seconds * float64(time.Second))
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(0, "ns/op")
			for name, total := range steps {
				b.ReportMetric(float64(total.Microseconds())/1000/float64(len(took)), name+"-ms")
			}
		})
	}
}

// BenchmarkDispatchesAtOnce measures the overhead of many no-op dispatches
// requested at the same moment: in total, per dispatch, and as a rate per
// second.
func BenchmarkDispatchesAtOnce(b *testing.B) {
	w := newWorld(b, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n", "b.txt": "two\n", "c/d.txt": "three\n"})
	w.catalog(subagent{name: "nothing", script: "true"})
	w.up()
	conn := client.New(client.Config{Socket: w.path("run/bailiwick/api.sock"), UIDs: []int{os.Getuid()}})
	defer conn.Close()
	run := func() (time.Duration, error) {
		from := time.Now()
		d, err := conn.Runtime().Dispatch(b.Context(), api.DispatchRequest{Subagent: "nothing", Source: &api.SourceRequest{Name: "repo"}})
		if err != nil {
			return 0, err
		}
		if d, err = conn.Runtime().Describe(b.Context(), d.ID, time.Minute); err == nil && d.State != api.EventFinished {
			err = fmt.Errorf("%s %s", d.State, d.Message)
		}
		return time.Since(from), err
	}
	for _, n := range []int{1, 8, 64} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			var took []time.Duration
			var total time.Duration
			for b.Loop() {
				each := make([]time.Duration, n)
				errs := make([]error, n)
				from := time.Now()
				var all sync.WaitGroup
				for i := range n {
					all.Go(func() { each[i], errs[i] = run() })
				}
				all.Wait()
				total += time.Since(from)
				if err := errors.Join(errs...); err != nil {
					b.Fatal(err)
				}
				took = append(took, each...)
			}
			slices.Sort(took)
			ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
			b.ReportMetric(ms(took[len(took)/2]), "p50-ms")
			b.ReportMetric(ms(took[len(took)*99/100]), "p99-ms")
			b.ReportMetric(ms(total)/float64(len(took)), "ms/dispatch")
			b.ReportMetric(float64(len(took))/total.Seconds(), "dispatches/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}
