package server

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// gate is where requests come in. Once it is closed none does, so that a
// request is served whole or is refused before it has any effect; it can
// close by itself when nobody has been there for a while (R-D1).
type gate struct {
	now  func() time.Time
	idle time.Duration // 0: it does not close by itself

	// leaving ends when the gate closes. Requests that only read heed it, since
	// they may go on for as long as a dispatch does.
	leaving context.Context //nolint:containedctx // the life of the gate, not of a call
	leave   context.CancelFunc

	mu     sync.Mutex
	inside int       // requests under way; guarded by mu
	quiet  time.Time // when somebody was there last; guarded by mu
	needed bool      // somebody has been there; guarded by mu
	lasts  bool      // it does not close by itself any more; guarded by mu
	closed bool      // guarded by mu
	alone  bool      // it closed by itself; guarded by mu
}

func newGate(now func() time.Time, idle time.Duration) *gate {
	g := &gate{now: now, idle: idle, quiet: now(), lasts: idle <= 0}
	g.leaving, g.leave = context.WithCancel(context.Background())
	return g
}

// enter reports whether a request may come in. Then the caller calls exit.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside++
	return true
}

// exit is the end of a request. One that merely looked at how the service is
// does not keep it.
func (g *gate) exit(looked bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if !looked {
		g.quiet, g.needed = g.now(), true
	}
}

// firstTime is how long the gate stays open at least for whoever had the
// service started: on a busy machine the first request takes a while to come.
const firstTime = 5 * time.Second

// end is when the gate closes if nobody comes. The caller holds mu.
func (g *gate) end() time.Time {
	if !g.needed {
		return g.quiet.Add(max(g.idle, firstTime))
	}
	return g.quiet.Add(g.idle)
}

// close lets nobody in any more.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.leave()
}

// closeIfIdle closes the gate when nobody is there and has not been for the
// idle time; working says that a worker is, and broken that only the next
// service can serve again: then the time does not matter, and a worker goes on
// without this one. What comes in later is refused, and nothing can have come
// in between.
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
	g.closed, g.alone = true, true
	g.leave()
	return true
}

// stay keeps the gate from closing by itself. It fails when that has happened.
func (g *gate) stay() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lasts = g.lasts || !g.closed
	return !g.closed
}

// oneShot says how long the service stays; nil when it lasts. The request
// that asks is inside and does not count.
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

const statusPath = "/v1/operator/status"

// admit lets requests through the gate.
func (s *Server) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.gate.enter() {
			s.fail(w, r, errEnding())
			return
		}
		defer s.gate.exit(r.URL.Path == statusPath || !strings.HasPrefix(r.URL.Path, "/v1/"))
		if r.Method == http.MethodGet {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(s.gate.leaving, cancel)()
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}

func errEnding() *api.Error {
	return api.Errorf(api.CodeUnavailable, "the service is ending and takes no more requests; this one had no effect").WithHint("run the command again, after bailiwick up where the service was stopped")
}

// awaitIdle closes the gate and ends the service when nobody is there for the
// idle time, or returns when the gate was closed otherwise.
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

// StoppedBecause says why the service stops, for the log.
func (s *Server) StoppedBecause() string {
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	if s.gate.alone {
		return "idle for " + s.gate.idle.String()
	}
	return "asked to"
}

// stay makes a service that ends when it is idle one that lasts.
func (s *Server) stay(w http.ResponseWriter, _ *http.Request, _ caller) error {
	if !s.gate.stay() {
		return errEnding()
	}
	return answer(w, http.StatusOK, struct{}{})
}
