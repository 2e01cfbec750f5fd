package launch

import (
	"os"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
)

// BenchmarkStart compares the start of a program by the launcher, until the program runs, with a
// plain start of the same program.
func BenchmarkStart(b *testing.B) {
	b.Run("plain", func(b *testing.B) {
		w := newWorld(b)
		for b.Loop() {
			p, err := account.Start(account.Program{Path: w.cfg.Worker, Args: []string{"--attempt", "/"}})
			must(b, err)
			b.StopTimer()
			_, err = p.Wait()
			must(b, err)
			b.StartTimer()
		}
	})
	b.Run("same-user", func(b *testing.B) { benchmarkStart(b, newWorld(b), nil) })
	if os.Geteuid() == 0 {
		b.Run("system", func(b *testing.B) {
			w, p := newSystemWorld(b)
			benchmarkStart(b, w, p)
		})
	}
}

func benchmarkStart(b *testing.B, w *world, p *people) {
	b.Helper()
	l := w.launcher()
	if p != nil {
		p.given(l)
	}
	for b.Loop() {
		b.StopTimer()
		m := w.manifest("edit")
		a := w.attempt(m)
		b.StartTimer()
		proc, err := l.Worker(b.Context(), a)
		must(b, err)
		b.StopTimer()
		must(b, proc.Wait())
		if p != nil {
			must(b, l.sys.blocks.end(Running{m.ID, m.Attempt}))
		}
		b.StartTimer()
	}
}
