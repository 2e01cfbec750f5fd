package evidence

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// large is a run of n tasks that are all done.
func large(b *testing.B, n int) sample {
	b.Helper()
	s := newStory(b)
	var doc strings.Builder
	doc.WriteString(`{"id":"r1","source":{"name":"app"},"tasks":[`)
	for i := range n {
		if i > 0 {
			doc.WriteByte(',')
		}
		fmt.Fprintf(&doc, `{"id":"t%d","subagent":"code","env":["plain"],"capabilities":["tools"]}`, i)
	}
	doc.WriteString("]}")
	s.submit(doc.String(), "", 0)
	for i := range n {
		w := &work{id: api.DispatchID(fmt.Sprintf("t-%05d", i)), run: "r1", task: api.TaskID(fmt.Sprintf("t%d", i)), fence: uint64(i + 1)} //nolint:gosec // G115: an index
		s.fire(w, 1)
		s.finish(w, api.EventFinished, "")
		s.step(record.KindTaskDone, w, 1, record.TaskStep{})
	}
	s.settle("r1", record.RunEnd{State: "done", Done: int64(n)})
	return sample{file: file(b, s.bundle(bundle.Case{Run: "r1"})), trust: s.trust()}
}

// The aim is less than 2 s for 10,000 tasks. Beside the time, which the rest of
// the machine has a part in, it prints the processor time, how many times that
// of hashing the bundle's bytes and of decoding its documents and leaves once
// each it is, as they took in the same run, and what the signatures alone cost.
func BenchmarkVerify(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("tasks=%d", n), func(b *testing.B) {
			s := large(b, n)
			b.SetBytes(int64(len(s.file)))
			var last *bundle.Bundle
			rounds := 0
			begin := processor(b)
			for b.Loop() {
				bundle, err := bundle.Read(bytes.NewReader(s.file), bundle.Limits{})
				if err != nil {
					b.Fatal(err)
				}
				if r := Verify(bundle, s.trust, Options{}); r.Failed() {
					b.Fatal(r.Text())
				}
				last = bundle
				rounds++
			}
			took := (processor(b) - begin) / time.Duration(rounds)
			b.ReportMetric(took.Seconds(), "cpu-s")
			b.ReportMetric(float64(took)/float64(spent(b, func() { _ = sha256.Sum256(s.file) })), "x-hash")
			b.ReportMetric(float64(took)/float64(spent(b, func() { decoded(b, last) })), "x-decode")
			b.ReportMetric(spent(b, func() { verified(b, 3*n) }).Seconds(), "signatures-cpu-s")
		})
	}
}

// mapped is a run over n items that is done: of a plan that grew by them, or of one that
// was submitted with a task for each.
func mapped(b *testing.B, n int, grows bool) sample {
	b.Helper()
	s := newStory(b)
	values := make([]string, n)
	tasks := []string{"a"}
	for i := range values {
		values[i] = fmt.Sprintf(`"item-%d"`, i)
		if !grows {
			tasks = append(tasks, fmt.Sprintf(`part-item-%d ,"input":{"v":%s},"depends_on":["a"]`, i, values[i]))
		}
	}
	if grows {
		tasks = append(tasks, fmt.Sprintf(`part ,"for_each":{"from":"a","items":"$.files[*]","max":%d},"input":{"v":"{{each.value}}"}`, n))
	}
	list := "[" + strings.Join(values, ",") + "]"
	s.submit(plannedAs("", tasks...), "", 0)
	s.carry(of("a", 1), `{"files":`+list+`}`)
	name, done := "part-item-%d", int64(1+n)
	if grows {
		name, done = "part[item-%d]", done+1
		s.sprout(control("part"), 0, plan.Growth{Cause: plan.CauseForEach, Task: "part", Items: itemsOf(b, list)}, int64(n), done)
	}
	for i, v := range values {
		s.carry(child(api.TaskID(fmt.Sprintf(name, i)), uint64(i+2), `{"v":`+v+`}`), "") //nolint:gosec // G115: an index
	}
	if grows {
		s.step(record.KindTaskDone, control("part"), 0, record.TaskStep{})
	}
	s.settle("r1", record.RunEnd{State: "done", Done: done})
	return sample{file: file(b, s.bundle(bundle.Case{Run: "r1"})), trust: s.trust()}
}

// What it takes to verify a run that grew by 10,000 items, beside the same run submitted
// whole (less one task), in turn: processor time, and bytes that are allocated.
func BenchmarkVerifyGrown(b *testing.B) {
	of := [2]sample{mapped(b, api.MaxPlanTasks-1, false), mapped(b, api.MaxForEach, true)}
	var took [2]time.Duration
	var bytesOf [2]uint64
	rounds := 0
	round := func() {
		for i, s := range of {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			begin := processor(b)
			bundle, err := bundle.Read(bytes.NewReader(s.file), bundle.Limits{})
			if err != nil {
				b.Fatal(err)
			}
			if r := Verify(bundle, s.trust, Options{}); r.Failed() {
				b.Fatal(r.Text())
			}
			took[i] += processor(b) - begin
			runtime.ReadMemStats(&after)
			bytesOf[i] += after.TotalAlloc - before.TotalAlloc
		}
		rounds++
	}
	for b.Loop() {
		round()
	}
	for rounds < 3 {
		round()
	}
	b.ReportMetric(float64(len(of[1].file))/1e6, "MB")
	b.ReportMetric(float64(len(of[1].file))/float64(len(of[0].file)), "x-fixed-size")
	b.ReportMetric(took[1].Seconds()/float64(rounds), "cpu-s")
	b.ReportMetric(float64(took[1])/float64(took[0]), "x-fixed-cpu")
	b.ReportMetric(float64(bytesOf[1])/1e6/float64(rounds), "allocated-MB")
	b.ReportMetric(float64(bytesOf[1])/float64(bytesOf[0]), "x-fixed-allocated")
	b.ReportMetric(0, "ns/op")
}

// decoded decodes what is in a bundle with the standard library, once.
func decoded(b *testing.B, bundle *bundle.Bundle) {
	var texts [][]byte
	for _, doc := range bundle.Documents {
		texts = append(texts, doc)
	}
	for _, e := range bundle.Entries {
		texts = append(texts, e.Leaf)
	}
	for _, text := range texts {
		var v any
		if len(text) > 0 && text[0] == '{' && json.Unmarshal(text, &v) != nil {
			b.Fatalf("%.80q", text)
		}
	}
}

// verified verifies n signatures: a task has three.
func verified(b *testing.B, n int) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		b.Fatal(err)
	}
	message := make([]byte, 4<<10)
	sig := ed25519.Sign(private, message)
	for range n {
		if !ed25519.Verify(public, message, sig) {
			b.Fatal("a signature does not verify")
		}
	}
}

// processor is the processor time of this process so far.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func spent(b *testing.B, f func()) time.Duration {
	begin := processor(b)
	f()
	return max(1, processor(b)-begin)
}

// Bombs print what they take beside their size. A unit of work must not take more
// than the 20 ns by which docs/evidence.md states the bound in seconds.
func BenchmarkBombs(b *testing.B) {
	all := bombs()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b.Run(strings.ReplaceAll(name, " ", "-"), func(b *testing.B) {
			x := all[name](b, 100)
			var w *report.Work
			rounds := 0
			begin := processor(b)
			for b.Loop() {
				w = verifyBomb(x.b, x.trust)
				rounds++
			}
			took := (processor(b) - begin) / time.Duration(rounds)
			b.ReportMetric(float64(took.Microseconds())/1000, "cpu-ms")
			b.ReportMetric(float64(x.b.Size())/1000, "kB")
			b.ReportMetric(float64(took)/float64(w.Units), "ns/unit")
		})
	}
}
