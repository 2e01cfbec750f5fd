package server

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/httpguard"
)

// Bounds of remote callers.
const (
	maxRemote      = 1024 // connections
	maxOfAddress   = 512  // of one address: an office is one
	slowWrite      = 30 * time.Second
	socketBuffer   = 64 << 10 // of the kernel, for each direction; the default grows to megabytes
	anonymousRate  = 5        // requests without a caller, a second, of one address
	anonymousBurst = 50
	principalRate  = 100 // requests a second of one principal
	principalBurst = 400
	principalOpen  = 256 // at a time
	maxTracked     = 4096
)

// Remote serves the API over TLS. A caller there has no account: it is who its handle says,
// or no principal: such a caller can only log in.
type Remote struct {
	Listener net.Listener
	TLS      *tls.Config
}

// ServeRemote answers on l until Shutdown.
func (s *Server) ServeRemote(r Remote) error {
	r.TLS = r.TLS.Clone()
	r.TLS.MinVersion, r.TLS.NextProtos = tls.VersionTLS13, []string{"http/1.1"}
	return s.remote.serve(&remoteListener{Listener: r.Listener, secure: r.TLS, bounds: s.callers.remote})
}

// remoteConn is a connection over TLS whose peer reads and writes in time. Only requests
// whose framing is unambiguous pass.
type remoteConn struct {
	*httpguard.Conn
	address netip.Addr
	closing sync.Once
	bounds  *bounds
}

// Close frees the place of the connection.
func (c *remoteConn) Close() error {
	c.closing.Do(func() { c.bounds.leave(c.address) })
	return c.Conn.Close()
}

// timed bounds how long a peer takes to accept what is written to it.
type timed struct{ net.Conn }

func (t timed) Write(p []byte) (int, error) {
	if err := t.SetWriteDeadline(time.Now().Add(slowWrite)); err != nil { //nolint:forbidigo // sockets go by the clock of the machine
		return 0, err
	}
	return t.Conn.Write(p)
}

type remoteListener struct {
	net.Listener
	secure *tls.Config
	bounds *bounds
}

// Accept returns the next connection that there is room for.
func (l *remoteListener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if tcp, ok := raw.(*net.TCPConn); ok {
			_ = tcp.SetReadBuffer(socketBuffer)
			_ = tcp.SetWriteBuffer(socketBuffer)
		}
		address := addressOf(raw)
		if !l.bounds.enter(address) {
			_ = raw.Close()
			continue
		}
		return &remoteConn{Conn: httpguard.NewConn(tls.Server(timed{raw}, l.secure)), address: address, bounds: l.bounds}, nil
	}
}

// addressOf returns the address that bounds count by: an IPv6 site is one.
func addressOf(c net.Conn) netip.Addr {
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	a := at.Addr().Unmap().WithZone("")
	if a.Is6() {
		if site, err := a.Prefix(64); err == nil {
			return site.Masked().Addr()
		}
	}
	return a
}

// bounds counts remote connections by address, and requests by address and principal.
type bounds struct {
	now func() time.Time

	mu         sync.Mutex
	open       map[netip.Addr]int           // connections; guarded by mu
	total      int                          // guarded by mu
	anonymous  map[netip.Addr]*rate.Limiter // guarded by mu
	principals map[api.Principal]*share     // guarded by mu
}

type share struct {
	*rate.Limiter
	open int
}

func newBounds(now func() time.Time) *bounds {
	return &bounds{now: now, open: map[netip.Addr]int{}, anonymous: map[netip.Addr]*rate.Limiter{}, principals: map[api.Principal]*share{}}
}

func (b *bounds) enter(a netip.Addr) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.total >= maxRemote || b.open[a] >= maxOfAddress {
		return false
	}
	b.open[a]++
	b.total++
	return true
}

func (b *bounds) leave(a netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total--
	if b.open[a]--; b.open[a] <= 0 {
		delete(b.open, a)
	}
}

// admit reports whether an address may make one more request without a caller.
func (b *bounds) admit(a netip.Addr) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if len(b.anonymous) >= maxTracked {
		for other, l := range b.anonymous {
			if l.TokensAt(now) >= anonymousBurst {
				delete(b.anonymous, other)
			}
		}
	}
	l := b.anonymous[a]
	if l == nil {
		if len(b.anonymous) >= maxTracked {
			return false
		}
		l = rate.NewLimiter(anonymousRate, anonymousBurst)
		b.anonymous[a] = l
	}
	return l.AllowN(now, 1)
}

// begin reports whether a principal may make one more request; the caller calls end.
// Principals are the operators' and the catalog's, so they are few.
func (b *bounds) begin(p api.Principal) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.principals[p]
	if s == nil {
		s = &share{Limiter: rate.NewLimiter(principalRate, principalBurst)}
		b.principals[p] = s
	}
	if s.open >= principalOpen || !s.AllowN(b.now(), 1) {
		return false
	}
	s.open++
	return true
}

func (b *bounds) end(p api.Principal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.principals[p].open--
}

// establishRemote returns the caller of a request over TLS. Without a handle it has no principal,
// who may only log in or exchange a token.
func (c *callers) establishRemote(r *http.Request, p peer, call api.Call) (caller, error) {
	if r.Header.Get("Origin") != "" {
		return caller{}, c.refuse(r.Context(), refusal{via: "tls", claimed: p.from, err: unestablished(errBrowser)})
	}
	handles := r.Header.Values(api.SessionHeader)
	if len(handles) > 0 {
		who, err := c.byHandle(r, handles, p)
		if err != nil && !c.remote.admit(p.address) {
			return caller{}, tooMany()
		}
		return who, err
	}
	if call.Class() == api.ClassSession {
		return caller{}, nil // exchange counts the tokens that it refuses
	}
	if !c.remote.admit(p.address) {
		return caller{}, tooMany()
	}
	switch call.Class() {
	case api.ClassLogin:
		return caller{}, nil
	case api.ClassRuntime, api.ClassOperator, api.ClassSession, api.ClassSessions:
	}
	err := api.Errorf(api.CodeUnauthenticated, "a remote caller needs a session or a token").WithHint("run: bailiwick login")
	return caller{}, c.refuse(r.Context(), refusal{via: "tls", claimed: p.from, err: err})
}

func tooMany() error {
	return api.Errorf(api.CodeThrottled, "too many requests").WithHint("wait some seconds")
}
