package tlog

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/audit"
	"github.com/bailiwick-dev/bailiwick/internal/note"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// million is how long a log the figures are of.
const million = 1_000_000

// fill writes entries of about 1 KiB.
func (w *world) fill(b *testing.B, count int) {
	b.Helper()
	pad := strings.Repeat("x", 850)
	for w.n < count {
		list := make([]audit.Item, 2000)
		for i := range list {
			list[i].Entry = record.Entry{Kind: record.KindServiceStopped, Detail: record.ServiceStop{Reason: fmt.Sprintf("entry %d %s", w.n+i, pad)}}
		}
		must(b, w.ledger.CommitAll(b.Context(), list, nil))
		w.n += len(list)
	}
}

// BenchmarkMillion prints what a log of a million entries costs: building its
// tree, opening it, proving one entry, and holding all of it against the table,
// beside hashing as many bytes with nothing around it.
func BenchmarkMillion(b *testing.B) {
	w := newWorld(b)
	w.fill(b, million)
	began := time.Now()
	must(b, w.open(b, func(c *Config) { c.Interval = 200 * time.Millisecond }))
	must(b, w.log.Wait(b.Context(), million))
	built := time.Since(began)
	_, c := w.log.Latest()
	w.close()
	b.Run("build", func(b *testing.B) {
		b.ReportMetric(built.Seconds(), "s/million")
		b.ReportMetric(million/built.Seconds(), "entries/s")
		b.ReportMetric(0, "ns/op")
	})
	b.Run("raw-hashing", func(b *testing.B) {
		leaf := make([]byte, 1024)
		var node [65]byte
		for b.Loop() {
			for range million {
				sum := sha256.Sum256(leaf)
				copy(node[1:], sum[:])
				_ = sha256.Sum256(node[:])
			}
		}
		b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/million")
	})
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			must(b, w.open(b))
			w.close()
		}
		b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/million")
	})
	must(b, w.open(b))
	b.Run("check", func(b *testing.B) {
		for b.Loop() {
			if n, err := w.log.Check(b.Context()); err != nil || n != million {
				b.Fatal(n, err)
			}
		}
		b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/million")
	})
	b.Run("prove", func(b *testing.B) {
		for i := uint64(0); b.Loop(); i += 7919 {
			if _, err := w.log.InclusionProof(b.Context(), i%million, million); err != nil {
				b.Fatal(err)
			}
		}
	})
	p, err := w.log.InclusionProof(b.Context(), 48211, million)
	must(b, err)
	list, err := w.ledger.Leaves(b.Context(), 48211, 1)
	must(b, err)
	b.Run("verify-proof", func(b *testing.B) {
		for b.Loop() {
			must(b, note.VerifyInclusion(c, 48211, list[0].Hash, p))
		}
	})
}

// BenchmarkCovered is from an entry's commit to its checkpoint, one at a time.
func BenchmarkCovered(b *testing.B) {
	for _, idle := range []time.Duration{0, 250 * time.Millisecond} {
		b.Run("after-"+idle.String(), func(b *testing.B) {
			w := newWorld(b)
			must(b, w.open(b, func(c *Config) { c.Interval = 200 * time.Millisecond }))
			var waited time.Duration
			for b.Loop() {
				time.Sleep(idle)
				began := time.Now()
				w.grow(b, 1)
				must(b, w.log.Wait(b.Context(), uint64(w.n)))
				waited += time.Since(began)
			}
			b.ReportMetric(float64(waited.Milliseconds())/float64(b.N), "ms/entry")
			b.ReportMetric(0, "ns/op")
		})
	}
}
