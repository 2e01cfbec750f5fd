package audit

import (
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// million is the length of the log that BenchmarkMillion measures.
const million = 1_000_000

// fill writes entries of about 1 KiB.
func (w *world) fill(b *testing.B, count int) {
	b.Helper()
	pad := strings.Repeat("x", 850)
	for w.n < count {
		list := make([]Item, 2000)
		for i := range list {
			list[i].Entry = record.Entry{Kind: record.KindServiceStopped, Detail: record.ServiceStop{Reason: fmt.Sprintf("entry %d %s", w.n+i, pad)}}
		}
		must(b, w.ledger.CommitAll(b.Context(), list, nil))
		w.n += len(list)
	}
}

// BenchmarkMillion measures a log of a million entries: building, opening and
// checking its tree and proving an entry, beside plain hashing of as many bytes.
func BenchmarkMillion(b *testing.B) {
	w := newWorld(b)
	w.fill(b, million)
	began := time.Now()
	must(b, w.open(b, func(c *TreeConfig) { c.Interval = 200 * time.Millisecond }))
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
			must(b, logproof.VerifyInclusion(c, 48211, list[0].Hash, p))
		}
	})
}

// BenchmarkCovered measures the time from an entry's commit to its checkpoint, one
// at a time: immediately after another, and after a pause longer than the interval.
func BenchmarkCovered(b *testing.B) {
	for _, idle := range []bool{false, true} {
		b.Run(map[bool]string{false: "at-once", true: "idle"}[idle], func(b *testing.B) {
			w := newWorld(b)
			quiet := make(chan struct{}, 1)
			must(b, w.open(b, func(c *TreeConfig) {
				c.Interval = 200 * time.Millisecond
				c.idle = func() {
					select {
					case quiet <- struct{}{}:
					default:
					}
				}
			}))
			var waited time.Duration
			for b.Loop() {
				if idle {
					<-quiet
				}
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

// sign is the time of a checkpoint.
type sign struct {
	size uint64
	at   time.Time
}

// signs records every checkpoint, up to one that covers the size from the channel.
func (t *Tree) signs(until <-chan uint64) (list []sign) {
	end := uint64(math.MaxUint64)
	for {
		t.mu.Lock()
		have, changed := t.latest.Size, t.changed
		t.mu.Unlock()
		if len(list) == 0 || list[len(list)-1].size < have {
			list = append(list, sign{have, time.Now()})
		}
		if have >= end {
			return list
		}
		select {
		case <-changed:
		case end = <-until:
			until = nil
		}
	}
}

// BenchmarkLag measures the time from an entry's commit to its checkpoint under
// full load by several writers of 1 KiB entries. The aim is one second.
func BenchmarkLag(b *testing.B) {
	for _, writers := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("writers-%d", writers), func(b *testing.B) {
			w := newWorld(b)
			must(b, w.open(b, func(c *TreeConfig) { c.Interval = 0 }))
			durable := make([]time.Time, b.N)
			until, came := make(chan uint64, 1), make(chan []sign, 1)
			go func() { came <- w.log.signs(until) }()
			pad := strings.Repeat("x", 850)
			var next atomic.Int64
			var all sync.WaitGroup
			b.ResetTimer()
			for range writers {
				all.Go(func() {
					for next.Add(1) <= int64(b.N) {
						seq, err := w.ledger.Record(b.Context(), record.Entry{Kind: record.KindServiceStopped, Detail: record.ServiceStop{Reason: pad}}, nil)
						if err != nil {
							b.Error(err)
							return
						}
						durable[seq] = time.Now() // each goroutine has its own
					}
				})
			}
			all.Wait()
			b.StopTimer()
			until <- uint64(b.N)
			report(b, durable, <-came)
		})
	}
}

// report prints the times from commit to checkpoint.
func report(b *testing.B, durable []time.Time, list []sign) {
	lags, late := make([]time.Duration, len(durable)), 0
	for i, at := range durable {
		for list[0].size <= uint64(i) {
			list = list[1:]
		}
		if lags[i] = max(0, list[0].at.Sub(at)); lags[i] > time.Second {
			late++
		}
	}
	slices.Sort(lags)
	for name, i := range map[string]int{"p50-ms": len(lags) / 2, "p99-ms": len(lags) * 99 / 100, "max-ms": len(lags) - 1} {
		b.ReportMetric(float64(lags[i].Microseconds())/1000, name)
	}
	b.ReportMetric(float64(late)*100/float64(len(lags)), "%over-1s")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "entries/s")
}
