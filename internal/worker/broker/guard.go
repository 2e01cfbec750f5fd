package broker

import (
	"io"
	"strings"
	"sync/atomic"

	"github.com/bailiwick-dev/bailiwick/internal/base/redact"
)

// guard reads a body of the agent. It fails before the first byte of a placeholder,
// and holds back only what may be the start of one.
type guard struct {
	io.ReadCloser
	q      *request
	before func() // a read
	count  func(n int) error
	buf    []byte // read, and not yet given out
	safe   int    // bytes of buf that may be given out
	err    error  // of the reader, once buf is empty
	found  atomic.Pointer[error]
}

// refused says why the body is refused, or returns nil. It may be called meanwhile; a
// nil guard refuses nothing.
func (g *guard) refused() error {
	if g == nil || g.found.Load() == nil {
		return nil
	}
	return *g.found.Load()
}

// guardBuffer is how much a guard reads at once.
const guardBuffer = 32 << 10

func (g *guard) Read(p []byte) (int, error) {
	for g.safe == 0 {
		switch {
		case g.refused() != nil:
			return 0, g.refused()
		case g.err != nil && len(g.buf) == 0:
			return 0, g.err
		}
		g.fill()
	}
	n := copy(p, g.buf[:g.safe])
	g.buf, g.safe = g.buf[n:], g.safe-n
	return n, nil
}

func (g *guard) fill() {
	if g.err == nil {
		next := make([]byte, len(g.buf)+guardBuffer)
		copy(next, g.buf)
		g.before()
		n, err := g.ReadCloser.Read(next[len(g.buf):])
		g.buf, g.err = next[:len(g.buf)+n], err
		if err := g.count(n); err != nil {
			g.err = err
		}
	}
	safe, h := g.q.v.placeholders.next(g.buf, g.err != nil)
	if g.safe = safe; h != nil {
		err := g.q.judge(h.text, "body", nil)
		g.found.Store(&err)
	}
}

// redactor writes what a server answers. It puts a text of the same length in place of
// each value of a secret, so lengths that were announced stay true.
type redactor struct {
	w    io.Writer
	s    *scan
	hold []byte
}

func (r *redactor) Write(p []byte) (int, error) {
	data := p
	if len(r.hold) > 0 {
		data = append(r.hold, p...)
	}
	rest, err := r.pass(data, false)
	r.hold = append([]byte(nil), rest...)
	return len(p), err
}

// Close writes what was held back.
func (r *redactor) Close() error {
	_, err := r.pass(r.hold, true)
	r.hold = nil
	return err
}

// pass writes data without values. It returns the end that may be the start of one.
func (r *redactor) pass(data []byte, final bool) ([]byte, error) {
	for len(data) > 0 {
		safe, h := r.s.next(data, final)
		if safe > 0 {
			if _, err := r.w.Write(data[:safe]); err != nil {
				return nil, err
			}
		}
		if h == nil {
			return data[safe:], nil
		}
		if _, err := io.WriteString(r.w, mask(h.end-h.start)); err != nil {
			return nil, err
		}
		data = data[h.end:]
	}
	return nil, nil
}

// mask is a text of n bytes that stands for a value.
func mask(n int) string {
	if n < len(redact.Mark) {
		return strings.Repeat("*", n)
	}
	return redact.Mark + strings.Repeat("*", n-len(redact.Mark))
}

// clean returns text without values of secrets.
func (v *vault) clean(text string) string {
	var out strings.Builder
	r := &redactor{w: &out, s: v.values}
	_, _ = r.Write([]byte(text)) // a builder takes everything
	_ = r.Close()
	return out.String()
}
