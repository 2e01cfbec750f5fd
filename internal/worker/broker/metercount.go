package broker

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/eventstream"
)

// maxInflated bounds what the count unpacks of one compressed answer.
const maxInflated = 256 << 20

// counter reads a copy of an answer for what it says of its usage. It is a stream of
// events or one JSON document, whatever its headers say.
type counter struct {
	err error // why counting ended early

	mu   sync.Mutex // guards said
	said said
	read func([]byte, *said)

	kind   byte // of the answer: 0 while only white space came, e for events, else j
	events eventstream.Splitter
	whole  bytes.Buffer // of a JSON document
	unpack *unpacker    // of a compressed answer
}

// newCounter returns a counter of an answer in a Content-Encoding. It unpacks at most
// inflated bytes of a compressed one.
func newCounter(a api.ModelAPI, encoding string, inflated int) (*counter, error) {
	c := &counter{read: readerOf(a)}
	c.events.Most = maxCounted
	c.events.Event = func(data []byte) error {
		c.read(data, &c.said)
		return nil
	}
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "identity":
	case "gzip", "x-gzip":
		c.unpack = newUnpacker(c.take, inflated)
	default:
		return nil, fmt.Errorf("the answer has the encoding %.40q, although identity was asked for, and cannot be counted", encoding)
	}
	return c, nil
}

// write takes a piece of the answer. Its error says that the answer cannot be counted
// any more.
func (c *counter) write(p []byte) error {
	if c.err == nil && c.unpack != nil {
		c.err = c.unpack.write(p)
	} else if c.err == nil {
		c.err = c.take(p)
	}
	return c.err
}

// close ends the answer.
func (c *counter) close() {
	if c.unpack != nil {
		if err := c.unpack.close(); c.err == nil {
			c.err = err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.kind {
	case 'e':
		_ = c.events.Close() // a last event counts without the empty line after it: the server has sent it
	case 'j':
		c.document(c.whole.Bytes())
	}
	c.whole = bytes.Buffer{}
}

// state returns what the answer has said so far.
func (c *counter) state() said {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said
}

// take reads a piece of the answer as it is without compression.
func (c *counter) take(p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kind == 0 {
		start := bytes.TrimLeft(p, " \t\r\n")
		switch {
		case len(start) == 0:
			return nil
		case start[0] == '{', start[0] == '[':
			c.kind = 'j'
		default:
			c.kind = 'e'
		}
	}
	if c.kind == 'e' {
		if _, err := c.events.Write(p); err != nil {
			return errTooLarge
		}
		return nil
	}
	if c.whole.Len()+len(p) > maxCounted {
		return errTooLarge
	}
	c.whole.Write(p)
	return nil
}

// document reads a JSON document, or each of a list, as gemini sends without events.
func (c *counter) document(b []byte) {
	if b[0] != '[' {
		c.read(b, &c.said)
		return
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	if _, err := dec.Token(); err != nil {
		return
	}
	for dec.More() {
		var each json.RawMessage
		if dec.Decode(&each) != nil {
			return // it broke off here
		}
		c.read(each, &c.said)
	}
}

// unpacker unpacks gzip as it arrives.
type unpacker struct {
	in   *io.PipeWriter
	done chan error
}

func newUnpacker(take func([]byte) error, most int) *unpacker {
	r, w := io.Pipe()
	u := &unpacker{in: w, done: make(chan error, 1)}
	go func() {
		err := unpackTo(r, take, most)
		_ = r.CloseWithError(err) // the writer gets it; nil reads as a closed pipe
		u.done <- err
	}()
	return u
}

func unpackTo(r io.Reader, take func([]byte) error, most int) error {
	z, err := gzip.NewReader(r)
	if err != nil {
		return fmt.Errorf("the compressed answer cannot be counted: %w", err)
	}
	buf := make([]byte, 32<<10)
	for total := 0; ; {
		n, err := z.Read(buf)
		if total += n; total > most {
			return errTooLarge
		}
		if taken := take(buf[:n]); taken != nil {
			return taken
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil // a break is the relay's to report
		}
		if err != nil {
			return fmt.Errorf("the compressed answer cannot be counted: %w", err)
		}
	}
}

func (u *unpacker) write(p []byte) error {
	_, err := u.in.Write(p)
	return err
}

// close waits until all is unpacked.
func (u *unpacker) close() error {
	_ = u.in.Close() // never fails
	return <-u.done
}
