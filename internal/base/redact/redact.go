// Package redact removes the values of secrets from what a worker keeps, in plain and
// encoded forms, also across the borders of writes.
//
// The forms are those that tools and formats produce by themselves: plain, base64 at
// each of the three alignments and in both alphabets, also with line breaks; hex in
// both cases, also in groups; percent-encoding of any or all bytes; HTML entities; and
// JSON or \x escapes of any or all characters, also nested once, or around HTML entities. Redaction is no boundary
// against an agent that encodes a value in its own way: only a brokered secret stays
// away from the agent.
//
// Seven views (see views) read the text once each, and one Aho-Corasick automaton
// searches each view, so the work for a byte has a constant bound on average.
//
// Carries R-D8.
package redact

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Mark replaces a value.
const Mark = "[redacted]"

// MinLength is the length in bytes below which a value is not looked for.
const MinLength = api.MinExposed

// Set finds the values of secrets in all their forms. It is safe for concurrent use.
// Of a value with several lines, such as a key in PEM, it also finds each line.
type Set struct{ auto *automaton }

// New returns the set of values. It ignores those shorter than MinLength.
func New(values []string) *Set {
	var needles [][]byte
	for _, v := range values {
		if len(v) < MinLength {
			continue
		}
		needles = append(needles, forms(v)...)
		for line := range strings.Lines(v) {
			line = strings.TrimSpace(line)
			if len(line) >= MinLength && line != v && !strings.HasPrefix(line, "-----") { // not a header of PEM, which is no secret
				needles = append(needles, forms(line)...)
			}
		}
	}
	if len(needles) == 0 {
		return &Set{}
	}
	return &Set{auto: newAutomaton(needles)}
}

// Bytes returns b without the values, and whether it had any. It returns b itself if
// it had none.
func (s *Set) Bytes(b []byte) ([]byte, bool) {
	var out bytes.Buffer
	w := s.Writer(&out)
	_, _ = w.Write(b) // a buffer takes everything
	_ = w.Close()
	if !w.Redacted() {
		return b, false
	}
	return out.Bytes(), true
}

// In reports whether a stream has a value. It reads no more than it has to.
func (s *Set) In(r io.Reader) (bool, error) {
	w := s.Writer(io.Discard)
	buf := make([]byte, chunk)
	for !w.Redacted() {
		n, err := r.Read(buf)
		_, _ = w.Write(buf[:n])
		if errors.Is(err, io.EOF) {
			return w.Redacted(), w.Close()
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// Empty reports whether s looks for nothing.
func (s *Set) Empty() bool { return s.auto == nil }

// Text returns t without the values.
func (s *Set) Text(t string) string {
	b, found := s.Bytes([]byte(t))
	if !found {
		return t
	}
	return string(b)
}

// Writer returns a writer that writes to w what it gets without the values. It holds
// back only bytes that may be the start of a value, until the next byte decides; Close
// writes them and leaves w open. It is not safe for concurrent use.
func (s *Set) Writer(w io.Writer) *Writer {
	out := &Writer{to: w}
	if s.auto != nil {
		out.stages, out.matchers = views(s.auto, out.match)
	}
	return out
}

// Writer redacts a stream. See Set.Writer.
type Writer struct {
	to       io.Writer
	err      error
	found    bool
	stages   []*stage // the first one takes the text; empty: nothing to redact
	matchers []*matcher

	text    []byte // the end of the stream
	offset  int64  // of text in the stream
	done    int64  // offset up to which the stream is written
	skip    int64  // offset up to which a written mark stands for it
	matches []span // not yet written; each starts at done or later
}

// span is a part of the stream: [start, end).
type span struct{ start, end int64 }

// chunk bounds how much text a Writer holds besides what may be a value.
const chunk = 32 << 10

// Redacted reports whether a value was found so far.
func (w *Writer) Redacted() bool { return w.found }

// Write redacts p and writes what is certain not to be a part of a value.
func (w *Writer) Write(p []byte) (int, error) {
	if w.stages == nil {
		return w.to.Write(p)
	}
	n := 0
	for part := range slices.Chunk(p, chunk) {
		if w.err != nil {
			return n, w.err
		}
		at := w.offset + int64(len(w.text))
		w.text = append(w.text, part...)
		for i, b := range part {
			w.stages[0].take(symbol{b, span{at + int64(i), at + int64(i) + 1}})
		}
		w.flush(w.held())
		n += len(part)
	}
	return n, w.err
}

// Close writes the text that was held back.
func (w *Writer) Close() error {
	for _, s := range w.stages {
		s.end()
	}
	w.flush(w.offset + int64(len(w.text)))
	return w.err
}

// match notes a value. Most matches of a repetitive text overlap the last one.
func (w *Writer) match(m span) {
	w.found = true
	if n := len(w.matches); n > 0 && m.start < w.matches[n-1].end && w.matches[n-1].start < m.end {
		last := &w.matches[n-1]
		*last = span{min(last.start, m.start), max(last.end, m.end)}
		return
	}
	w.matches = append(w.matches, m)
}

// held returns the offset before which no further match starts.
func (w *Writer) held() int64 {
	h := w.offset + int64(len(w.text))
	for _, s := range w.stages {
		h = min(h, s.held(h))
	}
	for _, m := range w.matchers {
		h = min(h, m.held(h))
	}
	return h
}

// flush writes the stream before offset h, with one mark for each group of matches
// that overlap.
func (w *Writer) flush(h int64) {
	slices.SortFunc(w.matches, func(a, b span) int { return int(a.start - b.start) })
	n := 0
	for _, m := range w.matches {
		if m.start >= h {
			break
		}
		if m.start >= w.skip {
			w.copy(m.start)
			w.write([]byte(Mark))
		}
		w.skip = max(w.skip, m.end)
		n++
	}
	w.matches = slices.Delete(w.matches, 0, n)
	w.copy(h)
}

// copy writes the text before offset h, without what a mark stands for. It drops the
// written text once that is the larger part, so that each byte is moved once on average.
func (w *Writer) copy(h int64) {
	if from := min(max(w.done, w.skip), h); from < h {
		w.write(w.text[from-w.offset : h-w.offset])
	}
	w.done = max(w.done, h)
	if n := w.done - w.offset; n > int64(len(w.text))/2 {
		w.text = append(w.text[:0], w.text[n:]...)
		w.offset = w.done
	}
}

func (w *Writer) write(b []byte) {
	if w.err == nil && len(b) > 0 {
		_, w.err = w.to.Write(b)
	}
}
