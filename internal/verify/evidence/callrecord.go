package evidence

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// CallRecords are the records of tool calls in the content of a bundle. Watch fills them
// while bundle.Read reads.
type CallRecords struct {
	of    map[api.Digest]*callRecord
	lines int // of all
}

// callRecord is what is kept of an api.ToolCallLine for each line.
type callRecord struct {
	all     *CallRecords
	lines   []callLine
	rest    []byte // of a line that has not ended
	other   bool   // it is no record of calls
	dropped bool   // there are too many to compare
}

type callLine struct {
	attempt           int
	number            int64
	tool, state       string
	arguments, answer api.Digest // empty: not kept
}

const (
	// maxCallLine is more than a call with its arguments and its answer takes.
	maxCallLine = 4 << 20
	// maxCallLines bounds what is kept of all records. Further ones are not compared.
	maxCallLines = 1 << 18
)

// Watch returns what reads a content as a record of tool calls, if it is one.
func (r *CallRecords) Watch(d api.Digest) io.Writer {
	if r.of == nil {
		r.of = map[api.Digest]*callRecord{}
	}
	c := &callRecord{all: r}
	r.of[d] = c
	return c
}

// Write implements io.Writer. It does not fail.
func (c *callRecord) Write(p []byte) (int, error) {
	n := len(p)
	for !c.other && !c.dropped && len(p) > 0 {
		line, rest, whole := bytes.Cut(p, []byte("\n"))
		c.rest = append(c.rest, line...)
		p = rest
		switch begins := []byte(`{"attempt":`); {
		case !bytes.HasPrefix(c.rest, begins[:min(len(begins), len(c.rest))]), len(c.rest) > maxCallLine:
			c.other, c.rest, c.lines = true, nil, nil
		case whole && c.all.lines >= maxCallLines:
			c.dropped, c.rest, c.lines = true, nil, nil
		case whole:
			c.line()
		}
	}
	return n, nil
}

func (c *callRecord) line() {
	var l api.ToolCallLine
	if json.Unmarshal(c.rest, &l) != nil {
		c.other, c.rest, c.lines = true, nil, nil
		return
	}
	out := callLine{attempt: l.Attempt, number: l.Number, tool: l.Tool, state: l.State}
	if len(l.Arguments) > 0 {
		out.arguments = api.DigestOf(l.Arguments)
	}
	if len(l.Answer) > 0 {
		out.answer = api.DigestOf(l.Answer)
	}
	c.lines, c.rest = append(c.lines, out), nil
	c.all.lines++
}

// compareCalls compares the records of calls in the content of the bundle with the
// entries, and returns of how many calls it has arguments or answers.
func compareCalls(dispatches []*history, records *CallRecords, row *report.Finding) (compared int) {
	if records == nil {
		return 0
	}
	for _, h := range dispatches {
		for _, a := range h.attempts {
			if a.end == nil || a.end.Refs[record.RefCalls] == "" {
				continue
			}
			c := records.of[a.end.Refs[record.RefCalls]]
			if c == nil || c.dropped {
				continue
			}
			n, err := a.compareCalls(c)
			if err != nil {
				row.Fail("dispatch %s attempt %d: the record of its calls: %v", h.id, a.number, err)
			}
			compared += n
		}
	}
	return compared
}

func (a *attempt) compareCalls(c *callRecord) (compared int, err error) {
	if c.other || len(c.rest) > 0 {
		return 0, errors.New("it cannot be read")
	}
	next := 0
	states, answers := map[int64]string{}, map[int64]api.Digest{}
	for _, e := range a.calls {
		switch d := e.Detail.(type) {
		case record.ToolCall:
			if next >= len(c.lines) {
				return compared, fmt.Errorf("call %d is missing", d.Number)
			}
			l := c.lines[next]
			next++
			if l.attempt != e.Attempt || l.number != d.Number || !record.SameText(l.tool, e.Tool) || (l.state == "denied") != (e.Kind == record.KindToolDenied) {
				return compared, fmt.Errorf("line %d is not call %d of %s", next, d.Number, record.Word(e.Tool))
			}
			if want := e.Refs[record.RefArguments]; want != "" && l.arguments != "" {
				if compared++; l.arguments != want {
					return compared, fmt.Errorf("call %d has other arguments", d.Number)
				}
			}
			states[d.Number], answers[d.Number] = l.state, l.answer
		case record.ToolReturn:
			if want := e.Refs[record.RefReturned]; want != "" && answers[d.Number] != "" && answers[d.Number] != want {
				return compared, fmt.Errorf("call %d returned another answer", d.Number)
			}
			if (states[d.Number] == "unknown") != (e.Kind == record.KindToolUnknown) {
				return compared, fmt.Errorf("call %d is %s, which differs from entry #%d", d.Number, record.Word(states[d.Number]), e.seq)
			}
		}
	}
	if next < len(c.lines) {
		return compared, fmt.Errorf("it has %d calls, the log %d", len(c.lines), next)
	}
	return compared, nil
}
