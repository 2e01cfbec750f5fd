package mcpserve

import (
	"container/list"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// guard is one client's connection. It passes on what framing lets through.
type guard struct {
	net.Conn // plain, or TLS over raw
	raw      net.Conn
	floor    *floor
	place    *list.Element // among those that have not shown a token; owned by floor
	owner    api.Principal // whose place it is kept for; owned by floor

	// One reader at a time: net/http sees to that.
	framing *framing
	refused error
}

// Read returns an error from where the request is refused on, to which
// net/http answers 400 when it is this request's turn.
func (g *guard) Read(p []byte) (int, error) {
	if g.refused != nil {
		return 0, g.refused
	}
	n, err := g.Conn.Read(p)
	if passed, bad := g.framing.take(p[:n]); bad != nil {
		g.refused = bad
		if passed == 0 {
			return 0, bad
		}
		return passed, nil
	}
	return n, err
}

// Write gives each piece of an answer its time, so that who does not read ends
// nothing but his own connection.
func (g *guard) Write(p []byte) (int, error) {
	if err := g.SetWriteDeadline(g.floor.now().Add(g.floor.writeTime)); err != nil {
		return 0, err
	}
	return g.Conn.Write(p)
}

// CloseWrite says that nothing more comes, which lets net/http say why before
// the connection breaks.
func (g *guard) CloseWrite() error {
	if c, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

// Close ends the connection and frees its place.
func (g *guard) Close() error {
	g.floor.leave(g)
	return g.Conn.Close()
}

// floor holds all connections of all listeners, and no more than max. When it
// is full, one that comes takes the place of the one that has been there
// longest without having shown a good token: a flood drives out itself, and
// nobody who has shown one. When all have, the one that comes is refused. Of
// one principal only share keep their places, whatever it shows on others: it
// could have all of them otherwise.
type floor struct {
	max       int
	share     int
	writeTime time.Duration
	now       func() time.Time

	mu      sync.Mutex
	open    int                   // guarded by mu
	unknown *list.List            // of *guard, in the order they came; guarded by mu
	kept    map[api.Principal]int // places that are kept; guarded by mu
}

// socketBuffer is what the system keeps of one connection, in each direction.
const socketBuffer = 128 << 10

func newFloor(limit, share int, writeTime time.Duration, now func() time.Time) *floor {
	return &floor{max: limit, share: share, writeTime: writeTime, now: now, unknown: list.New(), kept: map[api.Principal]int{}}
}

// enter takes a connection in, or returns nil when there is no place.
func (f *floor) enter(raw net.Conn, secure *tls.Config) *guard {
	if tcp, ok := raw.(*net.TCPConn); ok {
		// Or the system lends each of them megabytes.
		_ = tcp.SetReadBuffer(socketBuffer)
		_ = tcp.SetWriteBuffer(socketBuffer)
	}
	g := &guard{Conn: raw, raw: raw, floor: f, framing: newFraming()}
	if secure != nil {
		g.Conn = tls.Server(raw, secure)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open >= f.max {
		oldest := f.unknown.Front()
		if oldest == nil {
			return nil
		}
		out := oldest.Value.(*guard)
		f.remove(out)
		_ = out.raw.Close() // not that of TLS, which waits to say goodbye
	}
	f.open++
	g.place = f.unknown.PushBack(g)
	return g
}

// knows keeps the place of a connection that has shown a good token of p.
func (f *floor) knows(g *guard, p api.Principal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if g.place != nil && g.place.Value != nil && f.kept[p] < f.share {
		f.unknown.Remove(g.place)
		g.place.Value = nil
		g.owner = p
		f.kept[p]++
	}
}

func (f *floor) leave(g *guard) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remove(g)
}

// remove is done once for each; mu is held.
func (f *floor) remove(g *guard) {
	if g.place == nil {
		return
	}
	if g.place.Value != nil {
		f.unknown.Remove(g.place)
	} else if f.kept[g.owner]--; f.kept[g.owner] == 0 {
		delete(f.kept, g.owner)
	}
	g.place = nil
	f.open--
}

// listener takes connections onto a floor.
type listener struct {
	net.Listener
	floor  *floor
	secure *tls.Config // nil: plain
}

// Accept waits for a connection that has a place.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if g := l.floor.enter(raw, l.secure); g != nil {
			return g, nil
		}
		_ = raw.Close()
	}
}
