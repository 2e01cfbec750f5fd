package blob

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
)

// errUnprotected is a programming error: see Config.Swept.
var errUnprotected = errors.New("put without Protect: a sweep could remove it before anything refers to it")

// protections are the blobs that a sweep must not remove although nothing
// refers to them yet.
//
// Put does not write content again that exists, so it may rely on a file that a
// sweep is about to remove. A digest is therefore protected before Put looks at
// the store, until what refers to it is durable; and a sweep keeps whatever was
// protected at any time since it began, because its list of references is no
// older than that.
type protections struct {
	mu     sync.Mutex
	counts map[api.Digest]int // guarded by mu
	sweep  *Sweep             // in progress, or nil; guarded by mu
}

// protection is that of one Protect.
type protection struct {
	in      *protections
	digests map[api.Digest]bool // nil once released; guarded by in.mu
}

type protectionKey struct{}

// Protect returns a context under which blobs that are put are safe from sweeps
// until release, referred to or not. Callers release when the reference is
// durable, or never will be.
func (s *Store) Protect(ctx context.Context) (protected context.Context, release func()) {
	p := &protection{in: &s.protections, digests: map[api.Digest]bool{}}
	return context.WithValue(ctx, protectionKey{}, p), p.release
}

// protect is called before the store is searched for d.
func (s *Store) protect(ctx context.Context, d api.Digest) error {
	p, _ := ctx.Value(protectionKey{}).(*protection)
	if p == nil || p.in != &s.protections {
		if s.cfg.Swept {
			return fmt.Errorf("content store %s: %w", s.cfg.Dir, errUnprotected)
		}
		return nil
	}
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	if p.digests == nil {
		return fmt.Errorf("content store %s: %w", s.cfg.Dir, errUnprotected)
	}
	if !p.digests[d] {
		p.digests[d] = true
		p.in.add(d)
	}
	return nil
}

// Claim protects a blob that exists, as putting it would, and returns its size.
func (s *Store) Claim(ctx context.Context, d api.Digest) (int64, error) {
	if err := s.protect(ctx, d); err != nil {
		return 0, err
	}
	return s.Stat(ctx, d)
}

// add is called with mu held.
func (p *protections) add(d api.Digest) {
	if p.counts == nil {
		p.counts = map[api.Digest]int{}
	}
	p.counts[d]++
	if p.sweep != nil {
		p.sweep.protected[d] = true
	}
}

func (p *protection) release() {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	for d := range p.digests {
		if p.in.counts[d]--; p.in.counts[d] == 0 {
			delete(p.in.counts, d)
		}
	}
	p.digests = nil
}
