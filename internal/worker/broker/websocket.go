package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// upgrade relays a connection that has become a WebSocket, until one side ends it.
func (l *leg) upgrade(w http.ResponseWriter, resp *http.Response, q *request) error {
	up, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		return errors.New("the answer switches protocols without a connection")
	}
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	end := sync.OnceFunc(func() { _, _ = c.Close(), up.Close() })
	defer end()
	defer context.AfterFunc(l.b.ctx, end)()
	l.idle.Stop()
	l.idle = time.AfterFunc(l.b.cfg.bounds.idle, end)
	head := &http.Response{StatusCode: resp.StatusCode, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}}
	l.copyHeader(head.Header, resp.Header)
	head.Header.Set("Connection", "Upgrade")
	head.Header.Set("Upgrade", "websocket")
	if err := errors.Join(c.SetDeadline(time.Time{}), head.Write(c)); err != nil {
		return err
	}
	back := make(chan error, 1)
	go func() {
		err := l.copyBody(&counted{l.countReceived, c}, up)
		end()
		back <- err
	}()
	_, err = io.Copy(&frames{w: &counted{l.countSent, up}, q: q}, rw.Reader)
	end()
	other := <-back
	if why, ok := errors.AsType[*refusal](err); ok {
		return why
	}
	if l.b.ctx.Err() != nil {
		return errEnded
	}
	_ = other // one side ends the connection, which fails the other direction
	return nil
}

// counted counts what is written to w.
type counted struct {
	count func(n int) error
	w     io.Writer
}

func (c *counted) Write(p []byte) (int, error) {
	if err := c.count(len(p)); err != nil {
		return 0, err
	}
	return c.w.Write(p)
}

// frames writes the frames of a WebSocket client (RFC 6455 §5.2). It fails before the
// first byte of a placeholder in their payloads.
type frames struct {
	w io.Writer
	q *request

	head  []byte // of the current frame, while it is incomplete
	left  uint64 // bytes of its payload to come
	key   [4]byte
	pos   int    // in key
	raw   []byte // not yet written
	clear []byte // the payload in raw
	at    []int  // where each byte of clear is in raw
}

func (f *frames) Write(p []byte) (int, error) {
	for i, b := range p {
		f.raw = append(f.raw, b)
		if f.left == 0 {
			f.header(b)
			continue
		}
		f.clear = append(f.clear, b^f.key[f.pos&3])
		f.at = append(f.at, len(f.raw)-1)
		f.pos++
		f.left--
		if len(f.raw) < guardBuffer && i+1 < len(p) {
			continue
		}
		if err := f.flush(); err != nil {
			return 0, err
		}
	}
	return len(p), f.flush()
}

// header takes a byte of a frame's header.
func (f *frames) header(b byte) {
	f.head = append(f.head, b)
	if len(f.head) < 2 {
		return
	}
	size, extended := uint64(f.head[1]&0x7f), 0
	switch size {
	case 126:
		extended = 2
	case 127:
		extended = 8
	}
	masked := 0
	if f.head[1]&0x80 != 0 {
		masked = 4
	}
	if len(f.head) < 2+extended+masked {
		return
	}
	switch extended {
	case 2:
		size = uint64(binary.BigEndian.Uint16(f.head[2:]))
	case 8:
		size = binary.BigEndian.Uint64(f.head[2:])
	}
	f.key, f.pos, f.left = [4]byte{}, 0, size
	copy(f.key[:masked], f.head[2+extended:])
	f.head = f.head[:0]
}

// flush writes what cannot be a part of a placeholder.
func (f *frames) flush() error {
	safe, h := f.q.v.placeholders.next(f.clear, false)
	if h != nil {
		return f.q.judge(h.text, "WebSocket", nil)
	}
	n := len(f.raw)
	if safe < len(f.clear) {
		n = f.at[safe]
	}
	if _, err := f.w.Write(f.raw[:n]); err != nil {
		return err
	}
	f.raw = append(f.raw[:0], f.raw[n:]...)
	f.clear = append(f.clear[:0], f.clear[safe:]...)
	rest := f.at[safe:]
	for i := range rest {
		rest[i] -= n
	}
	f.at = append(f.at[:0], rest...)
	if len(f.raw) > 2*guardBuffer {
		return errors.New("the WebSocket has too many frames without a payload")
	}
	return nil
}
