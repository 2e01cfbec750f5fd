package toolcall

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/tool/toolclient"
)

// Config configures a Pool.
type Config struct {
	Client  toolclient.Config
	Catalog Files // of capabilities
	Secrets Secrets
	Logger  *slog.Logger
	Now     func() time.Time
	// Changed is called when tools of a server differ from their pins in
	// another way. It must not call the pool.
	Changed func(server api.Name, closed []Change)
	// Listed is called when other tools of a server are closed than before, in the session of
	// a dispatch, or of all for "". It must return at once.
	Listed func(server api.Name, dispatch api.DispatchID)
	Failed func(server api.Name) // called when a server could not be started or has ended, for metrics; may be nil
	Idle   time.Duration         // after which a shared session is ended; 0: 10 minutes
	Most   int                   // processes at once; 0: 256
}

// Change is a tool that is closed, since its definition differs from its pin.
type Change struct {
	Tool          string     // by its server's name
	Pinned, Found api.Digest // of the definitions; empty: none
}

// Files reads the catalog's files; a blob.Store does.
type Files interface {
	Get(ctx context.Context, d api.Digest, limit int64) ([]byte, error)
}

// Secrets finds the value of a reference; see secret.Store.
type Secrets interface {
	Resolve(ctx context.Context, ref string) (string, error)
}

// Bounds of a pool.
const (
	defaultIdle = 10 * time.Minute
	defaultMost = 256
	maxWaiting  = 64              // calls that wait for one of a server's parallel ones
	recheckTime = 5 * time.Minute // after which the definitions of a server are read again
)

// Pool has the sessions of servers. Create one with New.
type Pool struct {
	cfg    Config
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	busy   sync.WaitGroup
	places chan struct{} // one for each process

	mu      sync.Mutex
	closed  bool
	sources map[key]*source
	hosts   map[api.Digest]*host // of servers over HTTP, by key.server
	known   map[api.Digest]known // by key.server; only servers with closed tools
}

// known is what the last reading of a server's definitions found.
type known struct {
	closed []Change
	at     time.Time
}

// key says who shares a session.
type key struct {
	server   api.Digest     // of everything that the server is made of
	dispatch api.DispatchID // "" for all
}

func keyOf(o *order, dispatch api.DispatchID) key {
	if o.server.Session == api.SessionShared || o.server.Run != nil {
		dispatch = ""
	}
	return key{o.digest, dispatch}
}

// New returns a pool without sessions. The caller must Close it.
func New(cfg Config) *Pool {
	cfg.Idle, cfg.Most = cmp.Or(cfg.Idle, defaultIdle), cmp.Or(cfg.Most, defaultMost)
	if cfg.Now == nil {
		cfg.Now = time.Now //nolint:forbidigo // the default clock
	}
	if cfg.Client.Said == nil {
		cfg.Client.Said = func(server api.Name, line string) {
			cfg.Logger.Warn("a tool server", slog.String("server", string(server)), slog.String("says", line)) //nolint:sloglint // there is no context
		}
	}
	p := &Pool{cfg: cfg, places: make(chan struct{}, cfg.Most), sources: map[key]*source{}, hosts: map[api.Digest]*host{}, known: map[api.Digest]known{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Call implements Caller.
func (p *Pool) Call(ctx context.Context, c Call) (Answer, error) {
	o, err := p.order(c)
	if err != nil {
		return Answer{}, unsent("server %s is not in the catalog of this dispatch", c.Owner.Server)
	}
	if ctx.Err() != nil { // nothing may start a server for a dispatch that has ended
		return Answer{}, unsent("the call was cancelled")
	}
	s, err := p.source(o, c.Owner.Dispatch)
	if err != nil {
		return Answer{}, err
	}
	limit := time.Duration(cmp.Or(o.server.Timeout, api.DefaultToolTimeout))
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &lateError{limit})
	defer cancel()
	if err := s.enter(ctx); err != nil {
		return Answer{}, err
	}
	defer s.leave()
	if o.server.Run != nil {
		return s.run(ctx, c)
	}
	return s.call(ctx, c)
}

// lateError is why a call ends that takes too long.
type lateError struct{ limit time.Duration }

func (e *lateError) Error() string { return fmt.Sprintf("no answer within %s", e.limit) }

// source returns the place of a server for one owner.
func (p *Pool) source(o *order, dispatch api.DispatchID) (*source, error) {
	k := keyOf(o, dispatch)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, unsent("the service is stopping")
	}
	s := p.sources[k]
	if s == nil {
		s = newSource(p, k, o)
		p.sources[k] = s
	}
	s.calls++ // so that it is not removed before enter
	return s, nil
}

// Closed implements Caller.
func (p *Pool) Closed(owner Owner) []string {
	o, err := p.order(Call{Owner: owner})
	if err != nil {
		return nil
	}
	p.mu.Lock()
	s := p.sources[keyOf(o, owner.Dispatch)]
	p.mu.Unlock()
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, c := range s.closed {
		names = append(names, c.Tool)
	}
	return names
}

// ClosedSince returns when the definitions of a server were read last, in whichever
// session, if a tool was closed then; else the zero time.
func (p *Pool) ClosedSince(revision Revision, server api.Name, tool string) time.Time {
	o, err := p.order(Call{Owner: Owner{Server: server, Revision: revision}})
	if err != nil {
		return time.Time{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.known[o.digest]
	if !slices.ContainsFunc(k.closed, func(c Change) bool { return c.Tool == tool }) {
		return time.Time{}
	}
	return k.at
}

// read keeps what a reading of a server's definitions found.
func (p *Pool) read(server api.Digest, closed []Change) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(closed) == 0 {
		delete(p.known, server)
		return
	}
	p.known[server] = known{closed, p.cfg.Now()}
}

// End implements Caller.
func (p *Pool) End(id api.DispatchID) {
	p.end(func(s *source) bool { return id != "" && s.key.dispatch == id })
}

// Close ends all sessions and waits for them.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.end(func(*source) bool { return true })
	p.busy.Wait()
}

// end removes sources and ends their sessions, without waiting for it.
func (p *Pool) end(which func(*source) bool) {
	p.mu.Lock()
	var gone []*source
	for k, s := range p.sources {
		if which(s) {
			delete(p.sources, k)
			gone = append(gone, s)
		}
	}
	p.mu.Unlock()
	for _, s := range gone {
		p.busy.Go(s.end)
	}
}

// dismiss ends a source without calls.
func (p *Pool) dismiss(s *source) {
	p.end(func(other *source) bool { return other == s && s.calls == 0 })
}

// Sessions counts the sessions and running commands, for metrics.
func (p *Pool) Sessions() int {
	p.mu.Lock()
	all := make([]*source, 0, len(p.sources))
	for _, s := range p.sources {
		all = append(all, s)
	}
	p.mu.Unlock()
	return len(slices.DeleteFunc(all, func(s *source) bool { return !s.alive() }))
}
