package evidence

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/record"
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
	return sample{file: file(b, s.bundle(Case{Run: "r1"})), trust: s.trust()}
}

// The aim is less than 2 s for 10,000 tasks.
func BenchmarkVerify(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("tasks=%d", n), func(b *testing.B) {
			s := large(b, n)
			b.SetBytes(int64(len(s.file)))
			for b.Loop() {
				bundle, err := Read(bytes.NewReader(s.file), Limits{})
				if err != nil {
					b.Fatal(err)
				}
				if r := Verify(bundle, s.trust, Options{}); r.Failed() {
					b.Fatal(r.Text())
				}
			}
		})
	}
}
