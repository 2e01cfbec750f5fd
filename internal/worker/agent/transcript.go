package agent

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
)

// Bounds of what is read from a program's event stream.
const (
	maxLine  = 4 << 20 // of one event; a longer one is only in the transcript
	maxText  = 16 << 10
	maxShort = 200 // characters of a tool call in the log
	maxSaid  = 4 << 10
)

// Report is what a program's event stream says. All of it is the agent's word.
type Report struct {
	Text    string // the final text
	Session string // id of the program's own session
	Error   string // why the program failed, in its own words

	message string // whose text Text is
}

// addText continues Text, within its bound.
func (r *Report) addText(s string) { r.Text = cuttext.Text(r.Text+s, maxText) }

// Reader reads a program's event stream: a JSON document a line. It writes a short
// line for each event to a log, and lines that are no events as they are.
type Reader struct {
	adapter *Adapter
	log     io.Writer
	line    []byte
	long    bool // the rest of the line is left out
	report  Report
}

// NewReader returns a reader of the adapter's program that writes to log.
func (a *Adapter) NewReader(log io.Writer) *Reader { return &Reader{adapter: a, log: log} }

// Write takes a part of the stream. It fails only where the log does.
func (r *Reader) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		part, after, whole := bytes.Cut(rest, []byte("\n"))
		rest = after
		if room := maxLine - len(r.line); len(part) > room {
			part, r.long = part[:room], true
		}
		r.line = append(r.line, part...)
		if !whole {
			break
		}
		if err := r.end(); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// end reads the line that is complete.
func (r *Reader) end() error {
	line, long := bytes.TrimSpace(r.line), r.long
	r.line, r.long = r.line[:0], false
	if cap(r.line) > maxLine/8 {
		r.line = nil // do not keep the memory of a long one
	}
	switch {
	case long:
		return r.say("(an event of more than 4 MiB)")
	case len(line) == 0:
		return nil
	case line[0] != '{' || !json.Valid(line):
		return r.say(string(line))
	}
	short, err := r.adapter.read(line, &r.report)
	if err != nil {
		return nil //nolint:nilerr // an event of another shape says nothing
	}
	return r.say(strings.TrimSuffix(short, "\n"))
}

func (r *Reader) say(text string) error {
	if text == "" {
		return nil
	}
	_, err := io.WriteString(r.log, cuttext.Text(text, maxSaid)+"\n")
	return err
}

// Close reads a last line without an end, and returns what the stream said.
func (r *Reader) Close() (Report, error) {
	err := r.end()
	report := r.report
	report.Text, report.Error, report.Session = cuttext.Text(report.Text, maxText), cuttext.Text(report.Error, maxShort*4), cuttext.Text(report.Session, maxShort)
	return report, err
}

// lines are the lines of the log for one event.
type lines struct{ strings.Builder }

func (l *lines) text(s string) {
	if s = strings.TrimSpace(s); s != "" {
		_, _ = l.WriteString(s + "\n") // a builder takes everything
	}
}

func (l *lines) failed(s string) { l.text("error: " + s) }

// tool says which tool is called with what.
func (l *lines) tool(name string, input json.RawMessage) {
	l.text("> " + oneLine(name+" "+argument(input)))
}

// argument returns what a person wants to see of a tool's input.
func argument(input json.RawMessage) string {
	var text string
	if json.Unmarshal(input, &text) == nil {
		return text
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(input, &members) != nil {
		return string(input)
	}
	for _, name := range []string{"command", "cmd", "file_path", "filePath", "absolute_path", "path", "pattern", "query", "url", "description", "prompt"} {
		if json.Unmarshal(members[name], &text) == nil && text != "" {
			return text
		}
	}
	return string(input)
}

// oneLine is s on one line of at most maxShort characters.
func oneLine(s string) string {
	return cuttext.Characters(strings.Join(strings.Fields(cuttext.Text(s, maxSaid)), " "), maxShort)
}

// firstOf returns the first text that is not empty.
func firstOf(texts ...string) string {
	if i := slices.IndexFunc(texts, func(s string) bool { return strings.TrimSpace(s) != "" }); i >= 0 {
		return strings.TrimSpace(texts[i])
	}
	return ""
}
