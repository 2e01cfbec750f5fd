package blob

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
)

// errNotHeld is a fault of ours: see Config.Swept.
var errNotHeld = errors.New("put without Hold: a sweep could remove it before anything refers to it")

// holds is what must not be removed although nothing refers to it yet.
//
// Content that is there already is not written again, so whoever puts it
// relies on a file that a sweep may be about to remove. A digest is therefore
// held before the store is looked at, until whatever refers to it is durable;
// and a sweep spares what was held at any time since it began, because its
// list of what is referred to is no older than that.
type holds struct {
	mu    sync.Mutex
	held  map[api.Digest]int // by how many; guarded by mu
	sweep *Sweep             // that is under way, or nil; guarded by mu
}

// hold is one caller's.
type hold struct {
	of  *holds
	all map[api.Digest]bool // guarded by of.mu
}

type holdKey struct{}

// Hold returns a context under which what is put stays until release, whether
// or not anything refers to it. Callers release when what refers to it is
// durable, or never will be.
func (s *Store) Hold(ctx context.Context) (held context.Context, release func()) {
	h := &hold{of: &s.holds, all: map[api.Digest]bool{}}
	return context.WithValue(ctx, holdKey{}, h), h.release
}

// take is called before the store is looked at for d.
func (s *Store) take(ctx context.Context, d api.Digest) error {
	h, _ := ctx.Value(holdKey{}).(*hold)
	if h == nil || h.of != &s.holds {
		if s.cfg.Swept {
			return fmt.Errorf("content store %s: %w", s.cfg.Dir, errNotHeld)
		}
		return nil
	}
	s.holds.mu.Lock()
	defer s.holds.mu.Unlock()
	if h.all == nil {
		return fmt.Errorf("content store %s: %w", s.cfg.Dir, errNotHeld)
	}
	if !h.all[d] {
		h.all[d] = true
		s.holds.add(d)
	}
	return nil
}

// Claim holds content that is there already, as putting it would, and returns
// its size.
func (s *Store) Claim(ctx context.Context, d api.Digest) (int64, error) {
	if err := s.take(ctx, d); err != nil {
		return 0, err
	}
	return s.Stat(ctx, d)
}

// add is called with mu held.
func (o *holds) add(d api.Digest) {
	if o.held == nil {
		o.held = map[api.Digest]int{}
	}
	o.held[d]++
	if o.sweep != nil {
		o.sweep.spared[d] = true
	}
}

func (h *hold) release() {
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	for d := range h.all {
		if h.of.held[d]--; h.of.held[d] == 0 {
			delete(h.of.held, d)
		}
	}
	h.all = nil
}
