package audit

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// BenchmarkCheck verifies a whole log. The aim is 30 s for 1,000,000 entries on an
// idle machine. It also prints the processor time per million entries, and its
// ratio to that of only reading and hashing them.
func BenchmarkCheck(b *testing.B) {
	n := *benchEntries
	l, _ := clocked(b, func(i int) time.Time { return now().Add(time.Duration(i) * 10 * time.Millisecond) })
	written(b, l, n, mixed)
	rounds := 0
	begin := processor(b)
	for b.Loop() {
		if got, err := l.Check(context.Background()); err != nil || got != uint64(n) { //nolint:gosec // G115: a count
			b.Fatal(got, err)
		}
		rounds++
	}
	took := (processor(b) - begin) / time.Duration(rounds)
	begin = processor(b)
	err := l.store.Read(context.Background(), func(v *store.View) error { return checkRange(v, 0, uint64(n), uint64(n)) }) //nolint:gosec // G115: a count
	if err != nil {
		b.Fatal(err)
	}
	least := processor(b) - begin
	begin = processor(b)
	if err := l.store.Check(context.Background()); err != nil {
		b.Fatal(err)
	}
	million := 1e6 / float64(n)
	b.ReportMetric(took.Seconds()*million, "cpu-s/million")
	b.ReportMetric((processor(b)-begin).Seconds()*million, "pages-cpu-s/million")
	b.ReportMetric(float64(took)/float64(max(1, least)), "x-hashed")
}

// processor returns the processor time of this process so far.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
