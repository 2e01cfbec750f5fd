package mcpserve

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

const (
	// sessionTime is how long a session that nobody uses lasts, and how long
	// what it declared of its ceiling holds after that.
	sessionTime = time.Hour
	// maxSessions is of one owner; the one that was used longest ago goes.
	maxSessions = 64
)

// owner is to whom sessions belong: a principal by one of its tokens, so that
// two clients of one principal have nothing of each other's.
type owner struct {
	principal api.Principal
	token     [sha256.Size]byte // hash; zero where another issuer renews the tokens of one client
}

// sessions are the Mcp-Session-Ids of revisions that have them, and what was
// declared in opening them. Only who has shown a good token has any.
type sessions struct {
	now func() time.Time

	mu     sync.Mutex
	byID   map[string]*httpSession // guarded by mu
	owners map[owner]*ownership    // guarded by mu
}

type httpSession struct {
	id       string
	owner    owner
	declared *api.Tier
	used     time.Time
}

// ownership outlives the sessions: an owner that ends one, opens others or
// speaks without any does not get rid of what it declared (R-T5).
type ownership struct {
	sessions map[*httpSession]bool
	declared map[api.Tier]time.Time // when a session that declared it was used last
}

func newSessions(now func() time.Time) *sessions {
	return &sessions{now: now, byID: map[string]*httpSession{}, owners: map[owner]*ownership{}}
}

// begin opens a session and returns its id: 128 random bits.
func (s *sessions) begin(o owner, declared *api.Tier) string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	h := &httpSession{id: hex.EncodeToString(random[:]), owner: o, declared: declared}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	own := s.owners[o]
	if own == nil {
		own = &ownership{sessions: map[*httpSession]bool{}, declared: map[api.Tier]time.Time{}}
		s.owners[o] = own
	}
	if len(own.sessions) >= maxSessions {
		oldest := h
		for other := range own.sessions {
			if oldest == h || other.used.Before(oldest.used) {
				oldest = other
			}
		}
		s.remove(oldest)
	}
	s.byID[h.id] = h
	own.sessions[h] = true
	s.touch(h)
	return h.id
}

// sessionState says what an id is to an owner.
type sessionState int

const (
	sessionUnknown sessionState = iota // there is none, or none any more
	sessionForeign                     // it is somebody else's
	sessionOwn
)

// use finds the session of an id and notes that it is used.
func (s *sessions) use(o owner, id string) sessionState {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	h := s.byID[id]
	switch {
	case h == nil:
		return sessionUnknown
	case h.owner != o:
		return sessionForeign
	}
	s.touch(h)
	return sessionOwn
}

// end ends a session of o's.
func (s *sessions) end(o owner, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.byID[id]; h != nil && h.owner == o {
		s.remove(h)
	}
}

// ceiling is the lowest that o has declared and that still holds; nil: none.
func (s *sessions) ceiling(o owner) *api.Tier {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	var lowest *api.Tier
	if own := s.owners[o]; own != nil {
		for t := range own.declared {
			lowest = lower(lowest, &t)
		}
	}
	return lowest
}

// touch notes that h is used; mu is held.
func (s *sessions) touch(h *httpSession) {
	h.used = s.now()
	if h.declared != nil {
		s.owners[h.owner].declared[*h.declared] = h.used
	}
}

// remove forgets a session, not what it declared; mu is held.
func (s *sessions) remove(h *httpSession) {
	delete(s.byID, h.id)
	delete(s.owners[h.owner].sessions, h)
}

// sweep forgets what has not been used for its time; mu is held. There are few.
func (s *sessions) sweep() {
	old := s.now().Add(-sessionTime)
	for _, h := range s.byID {
		if !h.used.After(old) {
			s.remove(h)
		}
	}
	for o, own := range s.owners {
		for t, used := range own.declared {
			if !used.After(old) {
				delete(own.declared, t)
			}
		}
		if len(own.sessions)+len(own.declared) == 0 {
			delete(s.owners, o)
		}
	}
}
