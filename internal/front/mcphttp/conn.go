package mcphttp

import (
	"container/list"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/httpguard"
)

// conn is one client connection, plain or TLS over raw.
type conn struct {
	*httpguard.Conn

	raw   net.Conn
	pool  *pool
	place *list.Element // in pool.anonymous; its Value is nil once pinned; nil once closed; guarded by pool.mu
	owner api.Principal // that the connection is pinned for; guarded by pool.mu
}

// Write gives each write its own deadline, so that a client that does not read
// loses its connection.
func (c *conn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(c.pool.now().Add(c.pool.writeTime)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// Close closes the connection and frees its place.
func (c *conn) Close() error {
	c.pool.mu.Lock()
	c.pool.remove(c)
	c.pool.mu.Unlock()
	return c.Conn.Close()
}

// pool bounds the connections of all listeners to max. When it is full, a new
// connection evicts the oldest one that has not presented a valid token, so
// that a flood evicts only itself; when all have, the new one is refused. At
// most perPrincipal connections of one principal are protected from eviction,
// because one client could otherwise occupy all of them.
type pool struct {
	max          int
	perPrincipal int
	writeTime    time.Duration
	now          func() time.Time

	mu        sync.Mutex
	open      int                   // guarded by mu
	anonymous *list.List            // of *conn, oldest first; guarded by mu
	pinned    map[api.Principal]int // protected connections; guarded by mu
}

// socketBuffer is the kernel buffer of one connection in each direction, in
// bytes. The default grows to megabytes.
const socketBuffer = 128 << 10

func newPool(limit, perPrincipal int, writeTime time.Duration, now func() time.Time) *pool {
	return &pool{max: limit, perPrincipal: perPrincipal, writeTime: writeTime, now: now, anonymous: list.New(), pinned: map[api.Principal]int{}}
}

// add returns the connection of an accepted socket, or nil if the pool is full.
func (p *pool) add(raw net.Conn, secure *tls.Config) *conn {
	if tcp, ok := raw.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(socketBuffer)
		_ = tcp.SetWriteBuffer(socketBuffer)
	}
	c := &conn{raw: raw, pool: p}
	if secure != nil {
		c.Conn = httpguard.NewConn(tls.Server(raw, secure))
	} else {
		c.Conn = httpguard.NewConn(raw)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open >= p.max {
		oldest := p.anonymous.Front()
		if oldest == nil {
			return nil
		}
		evicted := oldest.Value.(*conn)
		p.remove(evicted)
		_ = evicted.raw.Close() // closing TLS would wait for its close_notify
	}
	p.open++
	c.place = p.anonymous.PushBack(c)
	return c
}

// pin protects a connection that has presented a valid token of principal.
func (p *pool) pin(c *conn, principal api.Principal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.place != nil && c.place.Value != nil && p.pinned[principal] < p.perPrincipal {
		p.anonymous.Remove(c.place)
		c.place.Value = nil
		c.owner = principal
		p.pinned[principal]++
	}
}

// remove frees the place of a connection; the second call does nothing. The
// caller holds mu.
func (p *pool) remove(c *conn) {
	if c.place == nil {
		return
	}
	if c.place.Value != nil {
		p.anonymous.Remove(c.place)
	} else if p.pinned[c.owner]--; p.pinned[c.owner] == 0 {
		delete(p.pinned, c.owner)
	}
	c.place = nil
	p.open--
}

// listener accepts connections into a pool.
type listener struct {
	net.Listener
	pool   *pool
	secure *tls.Config // nil: plain HTTP
}

// Accept waits for a connection that the pool has room for.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.pool.add(raw, l.secure); c != nil {
			return c, nil
		}
		_ = raw.Close()
	}
}
