package evidence

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// cost is what a bomb took. Units are what the meter counted, allocated what the
// runtime did, which knows nothing of the meter.
type cost struct {
	size, units, allocated float64
	stopped                bool
}

// costOf reads and verifies a bomb as bailiwick-verify does. What a bundle cannot
// contain is verified as it is.
func costOf(t testing.TB, x bomb, check func(b *bundle.Bundle, trust Trust) *report.Work) (c cost) {
	t.Helper()
	var raw bytes.Buffer
	writable := bundle.Write(&raw, x.b) == nil
	c.size = float64(max(raw.Len(), int(x.b.Size())))
	before, after := runtime.MemStats{}, runtime.MemStats{}
	runtime.ReadMemStats(&before)
	b, err := x.b, error(nil)
	if writable {
		b, err = bundle.Read(&raw, bundle.Limits{})
	}
	if err == nil {
		if w := check(b, x.trust); w != nil {
			c.units, c.stopped = float64(w.Units), w.Units > w.UnitLimit || w.Memory > w.MemoryLimit
		}
	}
	runtime.ReadMemStats(&after)
	c.allocated = float64(after.TotalAlloc - before.TotalAlloc)
	return c
}

func verifyBomb(b *bundle.Bundle, trust Trust) *report.Work {
	r := Verify(b, trust, Options{})
	return r.Work
}

// grows reports whether a cost grows faster than the size. A bomb of four times the
// size costs sixteen times as much if it is quadratic.
func grows(small, large cost) bool {
	size := large.size / small.size
	const base = 4 << 20 // below that, caches and buffers of fixed size dominate
	return large.units > 1.7*size*small.units+base || large.allocated > 1.7*size*small.allocated+base
}

// Bombs cost no more than evidence of their size: most are verified, and the others
// are refused with a row that says so.
//
// proves R-A7
func TestBombsCostWhatTheirSizeAllows(t *testing.T) {
	for name, build := range bombs() {
		small, large := costOf(t, build(t, 30), verifyBomb), costOf(t, build(t, 120), verifyBomb)
		if grows(small, large) {
			t.Errorf("%s: %+v, and %+v", name, small, large)
		}
		if limit := workBase + workPerByte*large.size; large.units > limit && !large.stopped {
			t.Errorf("%s: %.0f units of %.0f", name, large.units, limit)
		}
		t.Logf("%-42s %7.0f kB %6.1f units/B %6.1f allocated/B stopped %v", name, large.size/1000, large.units/large.size, large.allocated/large.size, large.stopped)
	}
}

// The control: the check finds a verifier that decodes a document wherever it is
// named.
func TestGrowthIsDetected(t *testing.T) {
	naive := func(b *bundle.Bundle, _ Trust) *report.Work {
		for _, e := range b.Entries {
			entry, err := record.DecodeEntry(e.Leaf)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := seal.Payload(b.Documents[entry.Refs[record.RefManifest]], seal.Manifest); err == nil {
				continue
			}
		}
		return nil
	}
	if small, large := costOf(t, oneManifest(t, 30), naive), costOf(t, oneManifest(t, 120), naive); !grows(small, large) {
		t.Errorf("a quadratic verifier is not detected: %+v, and %+v", small, large)
	}
}

// A verifier that stops proves nothing, wherever it stops, and says why.
//
// proves R-A7
func TestNothingIsProvedWhenTheWorkIsUsedUp(t *testing.T) {
	s := newSample(t)
	b := must(bundle.Read(bytes.NewReader(s.file), bundle.Limits{}))
	whole := s.report.Work
	for step := range int64(60) {
		for _, m := range []*meter{
			{workLimit: whole.Units * step / 60, memoryLimit: whole.Memory},
			{workLimit: whole.Units, memoryLimit: whole.Memory * step / 60},
		} {
			r := verifyWith(b, s.trust, s.options, agreements(), m)
			row := r.Row(report.RowCompleteness)
			if !r.Failed() || r.Good(report.ClaimNone) || r.Claim != report.ClaimNone || row.Status != report.Fail || !strings.Contains(row.Why, "stopped: ") || r.Ran != nil {
				t.Fatalf("step %d:\n%s", step, r.Text())
			}
			for _, row := range r.Rows {
				if row.Status == report.Pass {
					t.Fatalf("step %d: %s passes", step, row.Row)
				}
			}
		}
	}
	// The control: with exactly its work, it verifies, each time.
	for range 20 {
		r := verifyWith(b, s.trust, s.options, agreements(), &meter{workLimit: whole.Units, memoryLimit: whole.Memory})
		if !r.Good(s.report.Claim) || r.Work.Units != whole.Units || r.Work.Memory != whole.Memory {
			t.Fatalf("%+v, want %+v\n%s", r.Work, whole, r.Text())
		}
	}
}

// Honest evidence takes far less than its size allows.
//
// proves R-A7
func TestHonestEvidenceIsFarBelowTheBound(t *testing.T) {
	s := newSample(t)
	w := s.report.Work
	if perByte := float64(w.Units) / float64(w.Bytes); perByte > workPerByte/3 {
		t.Errorf("%.1f units a byte", perByte)
	}
	if perByte := float64(w.Memory) / float64(w.Bytes); perByte > memoryPerByte/2 {
		t.Errorf("%.1f bytes a byte", perByte)
	}
	t.Logf("%+v", w)
}

// No input costs more than its size allows.
func FuzzWorkPerByte(f *testing.F) {
	add := func(raw []byte, trust Trust) {
		b, err := trust.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, raw)
	}
	s := newSample(f)
	add(s.file, s.trust)
	all := bombs()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		var raw bytes.Buffer
		if x := all[name](f, 5); bundle.Write(&raw, x.b) == nil {
			add(raw.Bytes(), x.trust)
		}
	}
	f.Fuzz(func(t *testing.T, trusted, raw []byte) {
		trust, err := ParseTrust(trusted)
		if err != nil {
			return
		}
		before, after := runtime.MemStats{}, runtime.MemStats{}
		runtime.ReadMemStats(&before)
		b, err := bundle.Read(bytes.NewReader(raw), bundle.Limits{Memory: 64 << 20, Content: 1 << 20, Entries: 10_000, Members: 10_000})
		if err == nil {
			// Without the base, so that small inputs can be too expensive.
			m := newMeter(sizeOf(b, &Options{}))
			m.workLimit, m.memoryLimit = m.workLimit-workBase+1<<20, m.memoryLimit-memoryBase+1<<20
			verifyWith(b, trust, Options{}, agreements(), m)
		}
		runtime.ReadMemStats(&after)
		if got, want := after.TotalAlloc-before.TotalAlloc, padded*uint64(16<<20+256*(len(raw)+len(trusted))); got > want {
			t.Errorf("%d bytes allocated for %d, want at most %d", got, len(raw), want)
		}
	})
}

// The document says the bound that the verifier has.
func TestDocumentStatesTheBoundOfWork(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/evidence.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(doc)), " ")
	for _, want := range []string{
		fmt.Sprintf("%d units for each byte, plus 33,554,432", workPerByte),
		fmt.Sprintf("%d bytes for each byte plus %d MiB, never more than %d GiB", memoryPerByte, memoryBase>>20, memoryMost>>30),
		fmt.Sprintf("| %d GiB, 2,000,000 entries", bundle.DefaultLimits().Memory>>30),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("docs/evidence.md does not say %q", want)
		}
	}
	if workBase != 33_554_432 {
		t.Error("docs/evidence.md states another base")
	}
}
