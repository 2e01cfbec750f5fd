package strictyaml

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// A file of the largest size takes memory, and so work, in proportion to its size,
// whatever its form.
//
// proves R-B1
func TestWorkIsBoundedByTheSize(t *testing.T) {
	repeat := func(s string, size int) string { return strings.Repeat(s, size/len(s)) }
	for name, of := range map[string]func(size int) string{
		"nested lists":    func(n int) string { return repeat("[", n) },
		"nested mappings": func(n int) string { return repeat("{a: ", n) },
		"nested blocks":   func(n int) string { return repeat("- ", n) },
		"keys": func(n int) string {
			var b strings.Builder
			for i := 0; b.Len() < n; i++ {
				fmt.Fprintf(&b, "k%d: 1\n", i)
			}
			return b.String()
		},
		"comments":           func(n int) string { return repeat("# c\n", n) + "a: 1\n" },
		"comments and items": func(n int) string { return repeat("# c\n- a\n", n) },
		"empty lines":        func(n int) string { return repeat("\n", n) + "a: 1\n" },
		"a long text":        func(n int) string { return "a: \"" + repeat("x", n) + "\"\n" },
		"escapes":            func(n int) string { return "a: \"" + repeat(`\x41`, n) + "\"\n" },
		"a folded text":      func(n int) string { return "a: >\n" + repeat("  x\n\n", n) },
		"aliases":            func(n int) string { return "a: &a [x, x]\nb: [" + repeat("*a, ", n) + "]\n" },
		"tags":               func(n int) string { return repeat("- !t x\n", n) },
		"a long number":      func(n int) string { return "a: " + repeat("9", n) + "\n" },
		"brackets and keys":  func(n int) string { return "[" + repeat("a: b, ", n) + "]" },
	} {
		spent := func(size int) float64 {
			text := []byte(of(size))
			before, after := runtime.MemStats{}, runtime.MemStats{}
			runtime.ReadMemStats(&before)
			var p Parser
			p.Document(text)
			runtime.ReadMemStats(&after)
			return float64(after.TotalAlloc - before.TotalAlloc)
		}
		small, large := spent(MaxBytes/16), spent(MaxBytes/2)
		if large > 16*small+1<<20 || large > 400*MaxBytes {
			t.Errorf("%s: %.0f bytes for %d, %.0f for %d", name, small, MaxBytes/16, large, MaxBytes/2)
		}
	}
}
