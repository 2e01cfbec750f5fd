package evidence

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// recordOf is the lines of the record of an attempt's calls, as the service keeps it.
func (s *story) recordOf(attempt int) (list []api.ToolCallLine) {
	for i := range s.entries {
		e := &s.entries[i]
		switch d := e.Detail.(type) {
		case record.ToolCall:
			if e.Attempt != attempt {
				continue
			}
			l := api.ToolCallLine{Attempt: e.Attempt, Number: d.Number, Tool: e.Tool, State: "running"}
			if e.Kind == record.KindToolDenied {
				l.State = "denied"
			}
			for _, known := range [][]byte{argumentsOf(e.Tool, 0), argumentsOf("", 0)} {
				if api.DigestOf(known) == e.Refs[record.RefArguments] {
					l.Arguments = known
				}
			}
			list = append(list, l)
		case record.ToolReturn:
			if e.Attempt != attempt {
				continue
			}
			l := &list[d.Number-1]
			if l.State = "unknown"; e.Kind == record.KindToolReturned {
				l.State, l.Answer = "returned", json.RawMessage("{}")
			}
		}
	}
	return list
}

// The record of the calls in the content of a bundle has the calls, arguments and answers
// of the log. Content that is not there is not compared.
//
// proves R-G4
func TestRecordsOfCallsAreThoseOfTheLog(t *testing.T) {
	s := newStory(t)
	c := toolCalls(s)[0]
	verify := func(change func(list []api.ToolCallLine) []api.ToolCallLine) report.Report {
		records := &CallRecords{}
		for attempt := 1; attempt <= 2; attempt++ {
			w := records.Watch(api.DigestOf(fmt.Appendf(nil, "calls of d-01/%d", attempt)))
			list := s.recordOf(attempt)
			if attempt == 1 {
				list = change(list)
			}
			for i := range list {
				b, err := json.Marshal(list[i])
				s.must(err)
				for _, part := range [][]byte{b[:5], b[5:], []byte("\n")} { // as a reader may split it
					_, err = w.Write(part)
					s.must(err)
				}
			}
		}
		return Verify(reread(t, s.bundle(c)), s.trust(), Options{Calls: records})
	}
	same := func(list []api.ToolCallLine) []api.ToolCallLine { return list }
	if r := verify(same); r.Failed() || !strings.Contains(r.Row(report.RowTools).Why, "; arguments and answers of 12 calls are those in the log") {
		t.Errorf("the control:\n%s", r.Text())
	}
	if r := verify(func(list []api.ToolCallLine) []api.ToolCallLine {
		for i := range list {
			list[i].Arguments, list[i].Answer = nil, nil
		}
		return list
	}); r.Failed() {
		t.Errorf("without arguments and answers:\n%s", r.Text())
	}
	for name, change := range map[string]func(list []api.ToolCallLine) []api.ToolCallLine{
		"no call":  func(list []api.ToolCallLine) []api.ToolCallLine { return list[1:] },
		"one less": func(list []api.ToolCallLine) []api.ToolCallLine { return list[:len(list)-1] },
		"one more": func(list []api.ToolCallLine) []api.ToolCallLine { return append(list, list[0]) },
		"other arguments": func(list []api.ToolCallLine) []api.ToolCallLine {
			list[0].Arguments = json.RawMessage(`{"x":1}`)
			return list
		},
		"another answer": func(list []api.ToolCallLine) []api.ToolCallLine {
			list[0].Answer = json.RawMessage(`{"x":1}`)
			return list
		},
		"another tool":   func(list []api.ToolCallLine) []api.ToolCallLine { list[0].Tool = "report"; return list },
		"allowed":        func(list []api.ToolCallLine) []api.ToolCallLine { list[2].State = "returned"; return list },
		"unknown":        func(list []api.ToolCallLine) []api.ToolCallLine { list[0].State = "unknown"; return list },
		"of another try": func(list []api.ToolCallLine) []api.ToolCallLine { list[0].Attempt = 2; return list },
	} {
		if r := verify(change); r.Row(report.RowTools).Status != report.Fail {
			t.Errorf("%s:\n%s", name, r.Text())
		}
	}
}

// Other content is not kept while it is read, and no content takes much memory.
func TestOtherContentIsNoRecordOfCalls(t *testing.T) {
	records := &CallRecords{}
	for i, content := range []string{"", "diff --git", `{"attempt":`, `{"attempt":` + strings.Repeat("1", maxCallLine+1), `{"attempt":}` + "\n", "\n"} {
		d := api.DigestOf([]byte(content))
		if _, err := records.Watch(d).Write([]byte(content)); err != nil || len(records.of[d].lines) != 0 || len(records.of[d].rest) > 100 {
			t.Errorf("%d: %d lines, %d bytes, %v", i, len(records.of[d].lines), len(records.of[d].rest), err)
		}
	}
	records.lines = maxCallLines
	w := records.Watch("sha256:x")
	if _, err := w.Write([]byte(`{"attempt":1}` + "\n")); err != nil || !records.of["sha256:x"].dropped {
		t.Errorf("%+v, %v", records.of["sha256:x"], err)
	}
	v := newVerification(&bundle.Bundle{}, Trust{}, Options{}, newMeter(0))
	if n := compareCalls(v.ordered, v.options.Calls, &report.Finding{}); n != 0 {
		t.Errorf("%d", n)
	}
}
