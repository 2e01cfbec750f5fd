package broker

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// tunnelConn is the agent's end of a tunnel.
type tunnelConn struct {
	*agentConn

	to     target
	scheme string // of the requests in it, if the broker serves them
	early  []byte // read from r and given back
	r      *bufio.Reader
}

// hijack takes the connection of a CONNECT request from its server.
func hijack(w http.ResponseWriter, t target) (*tunnelConn, error) {
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	return &tunnelConn{agentConn: c.(*agentConn), to: t, r: rw.Reader}, nil
}

func (c *tunnelConn) Read(p []byte) (int, error) {
	if len(c.early) > 0 {
		n := copy(p, c.early)
		c.early = c.early[n:]
		return n, nil
	}
	return c.r.Read(p)
}

// buffered returns all that was read from the socket and not yet from c.
func (c *tunnelConn) buffered() []byte {
	rest, _ := c.r.Peek(c.r.Buffered())
	return bytes.Join([][]byte{c.early, rest, c.agentConn.buffered()}, nil)
}

// spliceStep is how many bytes a direction of a tunnel moves before they are counted.
const spliceStep = 4 << 20

// splice copies between the agent and t until both directions have ended, or one has
// failed, or none has moved a byte for the idle time. It closes both connections.
func (b *Broker) splice(x *exchange, t target, c *tunnelConn, up net.Conn) error {
	end := sync.OnceFunc(func() { _, _ = c.Close(), up.Close() })
	defer end()
	defer context.AfterFunc(b.ctx, end)()
	p := &pump{bounds: b.cfg.bounds, now: b.cfg.Now, move: func(n int64) error { return b.quota.bytes(t, n) }}
	p.touch()
	early := c.buffered()
	if err := p.first(up, early); err != nil {
		return err
	}
	x.line.Sent = int64(len(early))
	back := make(chan error, 1)
	var received int64
	go func() {
		n, err := p.run(c.Conn, up)
		if received = n; err != nil {
			end()
		}
		back <- err
	}()
	n, err := p.run(up, c.Conn)
	if x.line.Sent += n; err != nil {
		end()
	}
	other := <-back
	x.line.Received = received
	if b.ctx.Err() != nil {
		return errEnded
	}
	if err == nil || other != nil && errors.Is(err, net.ErrClosed) {
		return other
	}
	if other == nil && (errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)) {
		return nil // the host has said everything and closed before it heard the last bytes, as TLS peers do
	}
	return err
}

// errEnded says that an exchange was cut off by the end of the attempt.
var errEnded = errors.New("the attempt ended")

// pump moves the bytes of a tunnel. Between two TCP connections, the kernel does
// (splice), so they never enter this process.
type pump struct {
	bounds

	now  func() time.Time
	move func(n int64) error // counts bytes
	last atomic.Int64        // when a byte moved in either direction
}

func (p *pump) touch() { p.last.Store(p.now().UnixNano()) }

func (p *pump) first(dst net.Conn, b []byte) error {
	if err := dst.SetWriteDeadline(p.now().Add(p.write)); err != nil {
		return err
	}
	_, err := dst.Write(b)
	return errors.Join(err, p.move(int64(len(b))))
}

// run copies from src to dst and closes dst for writing at the end.
func (p *pump) run(dst, src net.Conn) (total int64, err error) {
	for {
		now := p.now()
		if err := errors.Join(src.SetReadDeadline(now.Add(p.idle)), dst.SetWriteDeadline(now.Add(p.write))); err != nil {
			return total, err
		}
		n, err := io.Copy(dst, io.LimitReader(src, spliceStep))
		total += n
		if n > 0 {
			p.touch()
			if err := p.move(n); err != nil {
				return total, err
			}
		}
		switch {
		case err == nil && n < spliceStep:
			closeWrite(dst)
			return total, nil
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded) || p.now().Sub(now) >= p.write:
			return total, err
		case p.now().UnixNano()-p.last.Load() >= int64(p.idle):
			return total, errIdle
		}
	}
}

var errIdle = errors.New("no byte for too long")

// closeWrite tells the reader of c that nothing follows. It may be gone already.
func closeWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
