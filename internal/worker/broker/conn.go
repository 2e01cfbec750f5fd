package broker

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
)

// agentListener yields a bounded number of connections at once.
type agentListener struct {
	net.Listener
	b *Broker
}

func (l *agentListener) Accept() (net.Conn, error) {
	select {
	case l.b.slots <- struct{}{}:
	case <-l.b.ctx.Done():
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err == nil {
		conn := &agentConn{Conn: c, b: l.b}
		if l.b.adopt(conn) {
			return conn, nil
		}
		_, err = c.Close(), net.ErrClosed
	}
	<-l.b.slots
	return nil, err
}

// adopt notes an open connection. It is false after Close.
func (b *Broker) adopt(c *agentConn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.conns[c] = struct{}{}
		b.busy.Add(1)
	}
	return !b.closed
}

// agentConn is a connection from the jail. Its server reads one request at a time, so
// the fields below Conn are written before the first request is handled.
type agentConn struct {
	net.Conn
	b    *Broker
	once sync.Once

	requests int // handled so far

	looked bool
	early  []byte // read from Conn and not yet from c
	head   head   // of the first request
}

// Close closes c and frees its slot.
func (c *agentConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.b.mu.Lock()
		delete(c.b.conns, c)
		c.b.mu.Unlock()
		<-c.b.slots
		c.b.busy.Done()
	})
	return err
}

// Read looks at the header of the first request before its server does.
func (c *agentConn) Read(p []byte) (int, error) {
	if !c.looked {
		c.looked = true
		if err := c.look(); err != nil {
			return 0, err
		}
	}
	if len(c.early) > 0 {
		n := copy(p, c.early)
		c.early = c.early[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

func (c *agentConn) look() error {
	buf := make([]byte, 4<<10)
	for {
		n, err := c.Conn.Read(buf)
		c.early = append(c.early, buf[:n]...)
		news := c.early[max(0, len(c.early)-n-3):]
		if bytes.Contains(news, []byte("\n\r\n")) || bytes.Contains(news, []byte("\n\n")) || len(c.early) > maxHead {
			c.head = parseHead(c.early)
			return nil
		}
		if errors.Is(err, io.EOF) && len(c.early) > 0 {
			return nil // the server says what is wrong
		}
		if err != nil {
			return err
		}
	}
}

// buffered returns what was read from the socket and not yet from c.
func (c *agentConn) buffered() []byte { return c.early }

// inside is the listener of the tunnels whose requests the broker serves itself.
type inside struct {
	ctx   context.Context
	conns chan net.Conn
}

func (l *inside) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (*inside) Close() error   { return nil }
func (*inside) Addr() net.Addr { return &net.TCPAddr{} }

// give hands c to the server.
func (l *inside) give(c net.Conn) error {
	select {
	case l.conns <- c:
		return nil
	case <-l.ctx.Done():
		_ = c.Close()
		return errEnded
	}
}

type connKey struct{}

// withConn notes the connection of a request: an *agentConn or a *tunnelConn.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// server returns an HTTP server with the bounds of an attempt. A handler has ended
// before Close returns.
func (b *Broker) server(h http.HandlerFunc) *http.Server {
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !b.enter() {
				panic(http.ErrAbortHandler)
			}
			defer b.busy.Done()
			if b.ledger.full() {
				panic(http.ErrAbortHandler)
			}
			select {
			case b.active <- struct{}{}:
				defer func() { <-b.active }()
				h(w, r)
			case <-r.Context().Done():
			}
		}),
		ReadHeaderTimeout: b.cfg.bounds.head,
		IdleTimeout:       b.cfg.bounds.idle,
		MaxHeaderBytes:    maxHead,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), // the record has what matters
		ConnContext:       withConn,
		BaseContext:       func(net.Listener) context.Context { return b.ctx },
	}
}
