package dispatch

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// flushTime is how long answers may take to reach the worker when the service stops.
const flushTime = 2 * time.Second

// serveConn serves h on conn, which speaks unencrypted HTTP/2, until either ends. When ctx
// ends it calls last, which reports whether it answered what is out; that reaches the
// worker before the connection is closed.
func serveConn(ctx context.Context, conn net.Conn, h http.Handler, last func() bool) {
	one := &oneConn{Conn: conn, closed: make(chan struct{})}
	accept := &oneListener{conn: one, first: make(chan struct{}, 1), done: make(chan struct{})}
	accept.first <- struct{}{}
	srv := &http.Server{
		Handler: h, Protocols: new(http.Protocols), ReadHeaderTimeout: toolPing,
		HTTP2:       &http.HTTP2Config{SendPingTimeout: toolPing, PingTimeout: toolPing, WriteByteTimeout: toolPing},
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), // the worker's connection, which it may break
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	srv.Protocols.SetUnencryptedHTTP2(true)
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		if last() {
			short, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
			defer cancel()
			_ = srv.Shutdown(short)
		}
		_ = one.Close()
	})
	_ = srv.Serve(accept) // until the connection is closed, or Shutdown
	if !stop() {
		<-stopped
	}
	_ = srv.Close()
}

// oneConn is a connection that says when it is closed.
type oneConn struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

// Close closes the connection.
func (c *oneConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// oneListener is a listener that yields one connection.
type oneListener struct {
	conn  *oneConn
	first chan struct{}
	once  sync.Once
	done  chan struct{}
}

// Accept returns the connection once, and fails when that or the listener is closed.
func (l *oneListener) Accept() (net.Conn, error) {
	select {
	case <-l.first:
		return l.conn, nil
	case <-l.conn.closed:
	case <-l.done:
	}
	return nil, net.ErrClosed
}

// Addr implements net.Listener.
func (l *oneListener) Addr() net.Addr { return l.conn.LocalAddr() }

// Close closes the listener only.
func (l *oneListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}
