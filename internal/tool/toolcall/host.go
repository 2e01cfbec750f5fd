package toolcall

import (
	"context"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/tool/toolclient"
)

// host is a tool host that sources use. A server that runs in a jail has one for each
// session, a server over HTTP one for all.
type host struct {
	*toolclient.Host

	pool  *Pool
	key   api.Digest // of a host that is shared; else empty
	once  sync.Once
	err   error // of its start; set by once
	users int   // guarded by pool.mu
}

// placeTime is how long a server waits for a place among the processes of the pool.
const placeTime = 30 * time.Second

// start returns a tool host for a source, which has to release it.
func (s *source) start(ctx context.Context) (*host, error) {
	p, key := s.pool, api.Digest("")
	if s.order.server.HTTP != nil {
		key = s.order.digest
	}
	p.mu.Lock()
	h := p.hosts[key]
	if h == nil {
		h = &host{pool: p, key: key}
		if key != "" {
			p.hosts[key] = h
		}
	}
	h.users++
	p.mu.Unlock()
	h.once.Do(func() { h.Host, h.err = p.startHost(ctx, s.order) })
	if h.err != nil {
		h.release()
		return nil, h.err
	}
	return h, nil
}

// startHost waits for a place for a process and starts a tool host.
func (p *Pool) startHost(ctx context.Context, o *order) (*toolclient.Host, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, placeTime, errFull)
	defer cancel()
	select {
	case p.places <- struct{}{}:
	case <-waiting.Done():
		return nil, context.Cause(waiting)
	}
	h, err := toolclient.Start(ctx, p.cfg.Client, p.resolve(o))
	if err != nil {
		<-p.places
	}
	return h, err
}

// retire lets no further session use a host.
func (p *Pool) retire(h *host) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hosts[h.key] == h {
		delete(p.hosts, h.key)
	}
}

// release ends a host with its last user.
func (h *host) release() {
	h.pool.mu.Lock()
	h.users--
	last := h.users == 0
	if (last || h.err != nil) && h.pool.hosts[h.key] == h {
		delete(h.pool.hosts, h.key)
	}
	h.pool.mu.Unlock()
	if last && h.err == nil {
		_ = h.Close()
		<-h.pool.places
	}
}
