package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// gate admits requests. Once closed it admits none, so a request is either
// served to its end or refused before it has any effect. It can close automatically
// after an idle time (R-D1).
type gate struct {
	now  func() time.Time
	idle time.Duration // 0: it never closes automatically

	// leaving is done when the gate closes. It cancels requests that only read,
	// because they may last as long as a dispatch.
	leaving context.Context //nolint:containedctx // the lifetime of the gate, not of a request
	leave   context.CancelFunc

	mu     sync.Mutex
	inside int       // requests under way; guarded by mu
	quiet  time.Time // of the last activity; guarded by mu
	used   bool      // there has been a request; guarded by mu
	lasts  bool      // idle shutdown is off; guarded by mu
	closed bool      // guarded by mu
	idled  bool      // it closed automatically; guarded by mu

	standIn http.Handler // guarded by mu
}

func newGate(now func() time.Time, idle time.Duration) *gate {
	g := &gate{now: now, idle: idle, quiet: now(), lasts: idle <= 0}
	g.leaving, g.leave = context.WithCancel(context.Background())
	return g
}

// enter admits a request, unless the gate is closed. The caller calls exit
// afterwards.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside++
	return true
}

// instead returns what answers requests that are not admitted, or nil.
func (g *gate) instead() http.Handler {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.standIn
}

// exit ends a request. A passive one, such as a look at the status, does not
// count as activity.
func (g *gate) exit(passive bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if !passive {
		g.quiet, g.used = g.now(), true
	}
}

// firstTime is the least idle time before the first request: on a busy machine
// the client that started the service takes a while to connect.
const firstTime = 5 * time.Second

// end returns when the gate closes if no request arrives. The caller holds mu.
func (g *gate) end() time.Time {
	if !g.used {
		return g.quiet.Add(max(g.idle, firstTime))
	}
	return g.quiet.Add(g.idle)
}

// close closes the gate. standIn answers what is not admitted; nil: it is refused.
func (g *gate) close(standIn http.Handler) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.standIn = standIn
	g.closed = true
	g.leave()
}

// closeIfIdle closes the gate if there has been no request and no worker for the
// idle time. A broken service, which only a restart can repair, does not wait:
// its workers continue without it.
func (g *gate) closeIfIdle(working, broken bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	if working {
		g.quiet = now
	}
	if g.lasts || g.closed || g.inside > 0 || !broken && now.Before(g.end()) {
		return false
	}
	g.closed, g.idled = true, true
	g.leave()
	return true
}

// stay turns off the idle shutdown. It fails once the gate has closed.
func (g *gate) stay() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lasts = g.lasts || !g.closed
	return !g.closed
}

// oneShot returns when the service shuts down if idle; nil if it never does. The
// request that asks is inside and does not count.
func (g *gate) oneShot(working bool) *api.OneShot {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lasts {
		return nil
	}
	o := &api.OneShot{IdleSeconds: g.idle.Seconds()}
	if !working && g.inside <= 1 {
		at := g.end().UTC()
		o.EndsAt = &at
	}
	return o
}

// admit lets requests through the gate.
func (s *Server) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.gate.enter() {
			if h := s.gate.instead(); h != nil {
				h.ServeHTTP(w, r)
				return
			}
			s.fail(w, r, caller{}, errLeaving)
			return
		}
		defer s.gate.exit(r.URL.Path == api.CallStatus.Path() || !strings.HasPrefix(r.URL.Path, "/v1/"))
		if r.Method == http.MethodGet {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(s.gate.leaving, cancel)()
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}

// errLeaving refuses a request that reaches a closed gate.
var errLeaving = errors.New("the gate is closed")

func errShuttingDown() *api.Error {
	return api.Errorf(api.CodeUnavailable, "the service is shutting down; this request had no effect").WithHint("run the command again; if the service was stopped, start it first")
}

// awaitIdle shuts the service down after the idle time, and returns once the
// gate is closed.
func (s *Server) awaitIdle() {
	t := time.NewTicker(min(max(s.cfg.Idle/20, 5*time.Millisecond), time.Second))
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if s.gate.closeIfIdle(s.cfg.Dispatch.Running() > 0, s.cfg.Broken != nil && s.cfg.Broken()) {
				s.cfg.Stop()
				return
			}
		case <-s.gate.leaving.Done():
			return
		}
	}
}

// Stays reports whether the server does not shut down when idle.
func (s *Server) Stays() bool { return s.gate.oneShot(false) == nil }

// StoppedBecause returns the reason of the shutdown, for the log.
func (s *Server) StoppedBecause() string {
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	if s.gate.idled {
		return "idle for " + s.gate.idle.String()
	}
	return "requested"
}
