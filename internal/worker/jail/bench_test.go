//go:build linux

package jail

import (
	"os/exec"
	"slices"
	"testing"
	"time"
)

// measure reports the middle and the worst hundredth of one start.
func measure(b *testing.B, start func() error) {
	b.Helper()
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		if err := start(); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	at := func(percent int) float64 { return float64(took[(len(took)-1)*percent/100].Microseconds()) / 1000 }
	b.ReportMetric(at(50), "p50-ms")
	b.ReportMetric(at(99), "p99-ms")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkStart is a whole life: start, /bin/true, close; beside a bare exec and bubblewrap with like mounts.
func BenchmarkStart(b *testing.B) {
	b.Run("exec", func(b *testing.B) {
		measure(b, func() error { return exec.Command("/bin/true").Run() })
	})
	b.Run("bubblewrap", func(b *testing.B) {
		if _, err := exec.LookPath("bwrap"); err != nil {
			b.Log("bubblewrap is not installed: no comparison")
			return
		}
		measure(b, func() error {
			return exec.Command("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/usr", "/usr",
				"--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
				"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "/bin/true").Run()
		})
	})
	life := func(spec Spec) func() error {
		return func() error {
			j, err := Start(b.Context(), spec)
			if err != nil {
				return err
			}
			if _, err := j.Run(b.Context(), Command{Argv: []string{"/bin/true"}}); err != nil {
				return err
			}
			return j.Close()
		}
	}
	b.Run("jail", func(b *testing.B) { measure(b, life(Spec{})) })
	b.Run("jail-without-cgroup", func(b *testing.B) { measure(b, life(Spec{noCgroup: true})) })
	b.Run("jail-with-listener", func(b *testing.B) { measure(b, life(Spec{Listen: true})) })
	b.Run("jail-with-workspace", func(b *testing.B) { measure(b, life(Spec{Lower: []string{b.TempDir()}})) })
}
