// Package eventstream reads streams of server-sent events, as the HTML standard defines
// them. It keeps no more than the unfinished event, within a bound that its caller sets,
// and takes time that is linear in the stream. It never reads by itself: what arrives is
// written to a Splitter.
package eventstream

import (
	"bytes"
	"errors"
)

// ErrTooLarge is the error of an event larger than Splitter.Most.
var ErrTooLarge = errors.New("an event of the stream is too large")

// Splitter splits a stream into events, whatever the borders of its writes. It needs only
// their data. A line ends with LF, CR or CRLF.
type Splitter struct {
	// Most bounds an event, in bytes.
	Most int
	// Event gets the data of each event that has any, maybe empty; valid until it
	// returns. Its error is that of Write.
	Event func(data []byte) error
	// Other gets the length of each line without data, such as a comment. nil: they are
	// passed over. Its error is that of Write.
	Other func(size int) error

	line  []byte // the unfinished line
	data  []byte // of the unfinished event
	has   bool   // there is data, maybe empty
	cr    bool   // the last byte was CR: an LF belongs to it
	begun bool   // the first line has been seen
}

// Write takes a part of the stream. After an error the stream cannot be continued.
func (s *Splitter) Write(part []byte) (int, error) {
	p := part
	if s.cr && len(p) > 0 {
		s.cr = false
		if p[0] == '\n' {
			p = p[1:]
		}
	}
	returns := bytes.IndexByte(p, '\r') >= 0
	for len(p) > 0 {
		end := endOfLine(p, returns)
		if end < 0 {
			s.line = append(s.line, p...)
			break
		}
		line := p[:end]
		if len(s.line) > 0 {
			s.line = append(s.line, line...)
			line = s.line
		}
		if err := s.take(line); err != nil {
			return 0, err
		}
		s.line = s.line[:0]
		switch {
		case p[end] == '\r' && end+1 == len(p):
			s.cr = true
		case p[end] == '\r' && p[end+1] == '\n':
			end++
		}
		p = p[end+1:]
		if len(s.data) > s.Most {
			return 0, ErrTooLarge
		}
	}
	if len(s.line)+len(s.data) > s.Most {
		return 0, ErrTooLarge
	}
	return len(part), nil
}

// endOfLine returns where the first line of p ends, or -1. returns says whether p may
// have a CR.
func endOfLine(p []byte, returns bool) int {
	end := bytes.IndexByte(p, '\n')
	if !returns {
		return end
	}
	first := p
	if end >= 0 {
		first = p[:end]
	}
	if cr := bytes.IndexByte(first, '\r'); cr >= 0 {
		return cr
	}
	return end
}

// take reads one line.
func (s *Splitter) take(line []byte) error {
	if !s.begun {
		s.begun = true
		line = bytes.TrimPrefix(line, []byte("\ufeff"))
	}
	rest, ok := bytes.CutPrefix(line, []byte("data"))
	switch {
	case len(line) == 0 && s.has:
		return s.dispatch()
	case !ok || len(rest) > 0 && rest[0] != ':':
		if s.Other != nil {
			return s.Other(len(line))
		}
		return nil
	}
	rest = bytes.TrimPrefix(bytes.TrimPrefix(rest, []byte(":")), []byte(" "))
	if s.has {
		s.data = append(s.data, '\n')
	}
	s.data, s.has = append(s.data, rest...), true
	return nil
}

func (s *Splitter) dispatch() error {
	data, has := s.data, s.has
	s.data, s.has = s.data[:0], false
	if !has {
		return nil
	}
	return s.Event(data)
}

// Close ends the stream. It gives Event also an event without the empty line after it.
func (s *Splitter) Close() error {
	var err error
	if len(s.line) > 0 {
		err = s.take(s.line)
	}
	if err == nil {
		err = s.dispatch()
	}
	s.line, s.data = nil, nil
	return err
}
