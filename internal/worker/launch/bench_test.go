package launch

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
)

// BenchmarkStart compares the start of a program by the launcher, until the program runs: a plain
// start of the same program, one by the launcher in its service's process, and one under a uid
// block. The three take turns, so that other load of the machine is the same for each.
func BenchmarkStart(b *testing.B) {
	w := newWorld(b)
	kinds := []starter{
		{"plain", func() (func(), func()) {
			var p *account.Process
			return func() {
					var err error
					p, err = account.Start(account.Program{Path: w.cfg.Worker, Args: []string{"--attempt", "/"}})
					must(b, err)
				}, func() {
					_, err := p.Wait()
					must(b, err)
				}
		}},
		launcherStarter(b, "same-user", w, w.launcher()),
	}
	if os.Geteuid() == 0 {
		w, p := newSystemWorld(b)
		kinds = append(kinds, launcherStarter(b, "system", w, p.given(w.launcher())))
	}
	took := make([][]time.Duration, len(kinds))
	for b.Loop() {
		for i, k := range kinds {
			start, end := k.prepare()
			at := time.Now()
			start()
			took[i] = append(took[i], time.Since(at))
			end()
		}
	}
	for i, k := range kinds {
		slices.Sort(took[i])
		for name, d := range map[string]time.Duration{"min": took[i][0], "median": took[i][len(took[i])/2]} {
			b.ReportMetric(float64(d.Microseconds())/1000, k.name+"-"+name+"-ms")
		}
	}
}

// starter prepares a start that is timed, and its end, which is not.
type starter struct {
	name    string
	prepare func() (start, end func())
}

func launcherStarter(b *testing.B, name string, w *world, l *Launcher) starter {
	b.Helper()
	return starter{name, func() (func(), func()) {
		m := w.manifest("edit")
		a := w.attempt(m)
		var p *Process
		return func() {
				var err error
				p, err = l.Worker(b.Context(), a)
				must(b, err)
			}, func() {
				must(b, p.Wait())
				if l.sys != nil {
					must(b, l.sys.blocks.end(Running{m.ID, m.Attempt}))
				}
			}
	}}
}
