package toolcall

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/tool/toolclient"
)

// source is a server for one owner: its session, if it has one.
type source struct {
	pool    *Pool
	key     key
	order   *order
	slots   chan struct{}   // one for each parallel call
	waiting chan struct{}   // one for each call that has or awaits a slot
	ctx     context.Context //nolint:containedctx // of its sessions, also while they open; Pool.ctx is its parent
	stop    context.CancelFunc

	calls int // guarded by pool.mu
	idle  *time.Timer

	mu       sync.Mutex
	ended    bool      // guarded by mu
	live     *live     // the last session; guarded by mu
	work     *work     // under way; guarded by mu
	failures int       // since the last answer; guarded by mu
	retryAt  time.Time // guarded by mu
	closed   []Change  // tools that differ from their pins; guarded by mu
	changes  int       // of closed; guarded by mu
}

// maxChanges bounds how often a server may change what differs from its pins, which is
// logged. A tool that is closed after that stays closed.
const maxChanges = 32

// live is a session that was opened.
type live struct {
	host    *host
	session *toolclient.Session
	calls   sync.WaitGroup // that use it
	opened  time.Time
	checked time.Time // guarded by source.mu
	stale   bool      // the server says that its tools have changed; guarded by source.mu
}

// work opens a session, or reads the definitions of one again.
type work struct {
	done chan struct{}
	err  error // set before done is closed
}

func newSource(p *Pool, k key, o *order) *source {
	most := cmp.Or(o.server.Parallel, api.DefaultToolParallel)
	ctx, stop := context.WithCancel(p.ctx)
	return &source{pool: p, key: k, order: o, ctx: ctx, stop: stop, slots: make(chan struct{}, most), waiting: make(chan struct{}, most+maxWaiting)}
}

func (s *source) name() string { return string(s.order.server.Name) }

// enter waits for a place among the parallel calls.
func (s *source) enter(ctx context.Context) error {
	select {
	case s.waiting <- struct{}{}:
	default:
		s.done()
		return unsent("server %s has too many calls waiting; try again later", s.name())
	}
	select {
	case s.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		<-s.waiting
		s.done()
		return unsent("server %s was busy with other calls until the time was up", s.name())
	}
}

func (s *source) leave() {
	<-s.slots
	<-s.waiting
	s.done()
}

// done ends a call, and after the last one waits for the next for a while.
func (s *source) done() {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	s.calls--
	if s.calls > 0 || s.key.dispatch != "" {
		return
	}
	if s.idle == nil {
		s.idle = time.AfterFunc(s.pool.cfg.Idle, func() { s.pool.dismiss(s) })
		return
	}
	s.idle.Reset(s.pool.cfg.Idle)
}

// ready returns a session whose definitions were compared with their pins. The caller
// ends its use with calls.Done.
func (s *source) ready(ctx context.Context) (*live, error) {
	const tries = 4
	for range tries {
		l, w, err := s.current()
		if l != nil || err != nil {
			return l, err
		}
		select {
		case <-w.done:
			if w.err != nil {
				return nil, w.err
			}
		case <-ctx.Done():
			return nil, unsent("server %s was not ready in time", s.name())
		}
	}
	return nil, unsent("server %s keeps changing its tools", s.name())
}

// current returns the session, or what has to be done first.
func (s *source) current() (*live, *work, error) {
	now := s.pool.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	alive := s.live != nil && s.live.session.Err() == nil
	switch {
	case s.ended:
		return nil, nil, unsent("the service is stopping server %s", s.name())
	case s.work != nil:
		return nil, s.work, nil
	case alive && !s.live.stale && now.Sub(s.live.checked) < recheckTime:
		s.live.calls.Add(1)
		return s.live, nil, nil
	case !alive && now.Before(s.retryAt):
		return nil, nil, unsent("server %s failed and is started again in %s; the service's log has the reason", s.name(), max(time.Second, s.retryAt.Sub(now).Round(time.Second)))
	}
	return nil, s.begin(alive), nil
}

// begin starts work. The caller holds mu.
func (s *source) begin(alive bool) *work {
	w := &work{done: make(chan struct{})}
	s.work = w
	l := s.live
	s.pool.busy.Go(func() {
		if alive {
			w.err = s.check(l)
		} else {
			w.err = s.open()
		}
		s.mu.Lock()
		s.work = nil
		s.mu.Unlock()
		close(w.done)
	})
	return w
}

// open opens a session and compares its definitions.
func (s *source) open() error {
	ctx := s.ctx
	l, err := s.connect(ctx)
	if err != nil {
		s.failed(ctx, "a tool server could not be started", err)
		return unsent("server %s could not be started or reached; the service's log has the reason", s.name())
	}
	s.mu.Lock()
	ended := s.ended
	if !ended {
		s.live = l
	}
	s.mu.Unlock()
	if ended {
		_ = l.session.Close()
		return unsent("the service is stopping server %s", s.name())
	}
	s.pool.busy.Go(func() { s.watch(ctx, l) })
	return s.check(l)
}

// connect opens a session in a tool host.
func (s *source) connect(ctx context.Context) (*live, error) {
	h, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	l := &live{host: h, opened: s.pool.cfg.Now()}
	if l.session, err = h.Open(ctx, func() { s.changed(l) }); err != nil {
		if errors.Is(err, toolclient.ErrCredential) || h.Err() != nil {
			s.pool.retire(h) // others share it: it has an older credential, or has ended
		}
		h.release()
		return nil, err
	}
	s.pool.busy.Go(func() { <-l.session.Ended(); h.release() })
	return l, nil
}

// watch waits for the end of a session.
func (s *source) watch(ctx context.Context, l *live) {
	<-l.session.Ended()
	s.mu.Lock()
	wanted := !s.ended
	s.mu.Unlock()
	if wanted {
		s.failed(ctx, "a tool server has ended", l.session.Err())
	}
}

// changed notes that the server says that its tools have changed.
func (s *source) changed(l *live) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.stale || s.live != l {
		l.stale = true
		return
	}
	l.stale = true
	time.AfterFunc(changeTime, func() { // a call does not wait for it
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.live == l && l.stale && s.work == nil && !s.ended && l.session.Err() == nil {
			s.begin(true)
		}
	})
}

// changeTime is how long after a notice the definitions are read without a call.
const changeTime = time.Second

// check reads the definitions, and closes tools that differ from their pins.
func (s *source) check(l *live) error {
	s.mu.Lock()
	l.stale = false // a notice from here on is about what is not read yet
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.pool.ctx, checkTime)
	defer cancel()
	offer, err := l.session.Offer(ctx)
	if err != nil {
		s.log(ctx, "the definitions of a tool server could not be read", err)
		_ = l.session.Close() // and watch puts off the next start
		return unsent("server %s does not list its tools; the service's log has the reason", s.name())
	}
	closed := differing(s.order.server, offer.Tools)
	s.mu.Lock()
	l.checked = s.pool.cfg.Now()
	before := s.closed
	if !slices.Equal(before, closed) {
		s.changes++
	}
	if s.changes > maxChanges {
		closed = stay(before, closed)
	}
	s.closed = closed
	s.mu.Unlock()
	s.pool.read(s.key.server, closed)
	if s.pool.cfg.Listed != nil && !slices.EqualFunc(before, closed, func(a, b Change) bool { return a.Tool == b.Tool }) {
		s.pool.cfg.Listed(s.order.server.Name, s.key.dispatch)
	}
	closed = slices.DeleteFunc(slices.Clone(closed), func(c Change) bool { return slices.Contains(before, c) })
	if len(closed) == 0 {
		return nil
	}
	for _, c := range closed {
		s.pool.cfg.Logger.WarnContext(ctx, "a tool is closed: its definition differs from its pin in the catalog", slog.String("server", s.name()), slog.String("tool", c.Tool))
	}
	if s.pool.cfg.Changed != nil {
		s.pool.cfg.Changed(s.order.server.Name, closed)
	}
	return nil
}

// stay adds to the tools that were closed before those that are closed now.
func stay(before, now []Change) []Change {
	all := slices.Clone(before)
	for _, c := range now {
		if !slices.ContainsFunc(before, func(b Change) bool { return b.Tool == c.Tool }) {
			all = append(all, c)
		}
	}
	return all
}

const checkTime = 30 * time.Second

// differing lists the allowed tools whose definition is not the pinned one, sorted.
func differing(server api.ToolServer, now []api.ToolDefinition) []Change {
	var closed []Change
	for _, a := range server.Allow {
		c := Change{Tool: a.Tool, Pinned: digestIn(server.Definitions, a.Tool), Found: digestIn(now, a.Tool)}
		if c.Pinned == "" || c.Pinned != c.Found {
			closed = append(closed, c)
		}
	}
	slices.SortFunc(closed, func(a, b Change) int { return strings.Compare(a.Tool, b.Tool) })
	return closed
}

// digestIn returns the digest of the definition with a name; empty without one that can
// be read.
func digestIn(list []api.ToolDefinition, name string) api.Digest {
	i := slices.IndexFunc(list, func(d api.ToolDefinition) bool { return d.Name == name })
	if i < 0 {
		return ""
	}
	digest, err := catalog.DefinitionDigest(list[i])
	if err != nil {
		return ""
	}
	return digest
}

const (
	firstPause = time.Second
	lastPause  = time.Minute
)

// failed logs a failure for a person, and puts off the next start. A server that has
// ended for the first time is started again at once.
func (s *source) failed(ctx context.Context, what string, err error) {
	s.mu.Lock()
	s.failures++
	pause := min(lastPause, firstPause<<min(s.failures-1, 6))
	if s.failures == 1 && s.live != nil {
		pause = 0
	}
	s.retryAt = s.pool.cfg.Now().Add(pause)
	s.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	if s.pool.cfg.Failed != nil {
		s.pool.cfg.Failed(s.order.server.Name)
	}
	s.pool.cfg.Logger.WarnContext(ctx, what, slog.String("server", s.name()), slog.Any("err", err), slog.String("stderr", saidBy(err)), slog.Duration("retry", pause)) //nolint:sloglint // what is one of four constants
}

// answered notes that the server works.
func (s *source) answered() {
	s.mu.Lock()
	s.failures = 0
	s.mu.Unlock()
}

// end ends the session for good.
func (s *source) end() {
	s.mu.Lock()
	s.ended = true
	l := s.live
	s.mu.Unlock()
	if s.idle != nil {
		s.idle.Stop()
	}
	s.stop() // one that opens is not waited for
	if l != nil {
		_ = l.session.Close()
	}
}

// alive reports whether there is a session.
func (s *source) alive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live != nil && s.live.session.Err() == nil
}
