package audit

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

var benchEntries = flag.Int("entries", 1_000_000, "how long a log BenchmarkQuery reads")

// BenchmarkQuery reads the first page of 100 entries for each filter from a long
// log, oldest first and newest first.
func BenchmarkQuery(b *testing.B) {
	n := *benchEntries
	l, _ := clocked(b, func(i int) time.Time { return now().Add(time.Duration(i) * 10 * time.Millisecond) })
	written(b, l, n, mixed)
	// The rare entries are at one end, so the other direction scans all.
	written(b, l, 1, func(int) record.Entry {
		e := stopped()
		e.Decision = record.NoDecided
		return e
	})
	middle := now().Add(time.Duration(n/2) * 10 * time.Millisecond)
	for _, c := range []struct {
		name string
		q    Query
	}{
		{"all", Query{}},
		{"principal", Query{Principal: "agent:a1"}},
		{"principal-unknown", Query{Principal: "agent:nobody"}},
		{"run", Query{Run: "r-0007"}},
		{"task", Query{Task: "t-1"}},
		{"dispatch", Query{Dispatch: "d-000777"}},
		{"role", Query{Role: "quality"}},
		{"tool", Query{Tool: "warehouse/1"}},
		{"kind", Query{Kind: record.KindDispatchDenied}},
		{"kind-seldom", Query{Kind: record.KindServiceStopped}},
		{"kinds-12", Query{Kinds: record.Kinds()[:12]}},
		{"decision-deny", Query{Decision: record.Deny}},
		{"decision-allow", Query{Decision: record.Allow}},
		{"since", Query{Since: middle}},
		{"until", Query{Until: middle}},
		{"a-minute", Query{Since: middle, Until: middle.Add(time.Minute)}},
		{"principal-kind-since", Query{Principal: "agent:a1", Kind: record.KindDispatchDenied, Since: middle}},
		{"often-and-never", Query{Principal: "agent:a1", Kind: record.KindServiceStopped}},
		{"often-and-often-never-both", Query{Role: "quality", Kind: record.KindDispatchAccepted}}, // the worst case
	} {
		for order, newest := range map[string]bool{"/oldest": false, "/newest": true} {
			b.Run(c.name+order, func(b *testing.B) {
				q := c.q
				q.Newest = newest
				var took []time.Duration
				for b.Loop() {
					from := time.Now()
					if _, err := l.List(b.Context(), q); err != nil {
						b.Fatal(err)
					}
					took = append(took, time.Since(from))
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			})
		}
	}
}
