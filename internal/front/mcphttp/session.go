package mcphttp

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/mcpserve"
)

const (
	// sessionTime is how long an unused session lasts, and how long the ceiling
	// that it declared stays in force after its last use.
	sessionTime = time.Hour
	// maxSessions bounds the sessions of one owner; a further one replaces the
	// least recently used.
	maxSessions = 64
)

// owner is the client that a session belongs to: a principal and one of its
// tokens, so that two clients of one principal do not share sessions.
type owner struct {
	principal api.Principal
	token     [sha256.Size]byte // hash; zero for tokens of another issuer, which one client renews
}

// sessions keeps the Mcp-Session-Ids of protocol revisions that have them, and
// the ceilings declared by initialize. Only authenticated clients have any.
type sessions struct {
	now func() time.Time

	mu     sync.Mutex
	byID   map[string]*session  // guarded by mu
	owners map[owner]*ownership // guarded by mu
}

type session struct {
	id       string
	owner    owner
	declared *api.Tier
	used     time.Time
}

// ownership outlives its sessions: an owner cannot shed a declared ceiling by
// ending a session, opening another, or using none (R-T5).
type ownership struct {
	sessions map[*session]bool
	declared map[api.Tier]time.Time // last use of a session that declared it
}

func newSessions(now func() time.Time) *sessions {
	return &sessions{now: now, byID: map[string]*session{}, owners: map[owner]*ownership{}}
}

// begin opens a session and returns its id: 128 random bits.
func (s *sessions) begin(o owner, declared *api.Tier) string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	fresh := &session{id: hex.EncodeToString(random[:]), owner: o, declared: declared}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	own := s.owners[o]
	if own == nil {
		own = &ownership{sessions: map[*session]bool{}, declared: map[api.Tier]time.Time{}}
		s.owners[o] = own
	}
	if len(own.sessions) >= maxSessions {
		var oldest *session
		for other := range own.sessions {
			if oldest == nil || other.used.Before(oldest.used) {
				oldest = other
			}
		}
		s.remove(oldest)
	}
	s.byID[fresh.id] = fresh
	own.sessions[fresh] = true
	s.touch(fresh)
	return fresh.id
}

// sessionState is what a session id means to an owner.
type sessionState int

const (
	sessionUnknown sessionState = iota // not found, ended or expired
	sessionForeign                     // belongs to another owner
	sessionOwn
)

// use looks up a session id and records that it was used.
func (s *sessions) use(o owner, id string) sessionState {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	found := s.byID[id]
	switch {
	case found == nil:
		return sessionUnknown
	case found.owner != o:
		return sessionForeign
	}
	s.touch(found)
	return sessionOwn
}

// end ends a session of o.
func (s *sessions) end(o owner, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.byID[id]; found != nil && found.owner == o {
		s.remove(found)
	}
}

// ceiling returns the lowest ceiling in force that o has declared; nil if none.
func (s *sessions) ceiling(o owner) *api.Tier {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	var lowest *api.Tier
	if own := s.owners[o]; own != nil {
		for t := range own.declared {
			lowest = mcpserve.LowerCeiling(lowest, &t)
		}
	}
	return lowest
}

// touch records a use. The caller holds mu.
func (s *sessions) touch(used *session) {
	used.used = s.now()
	if used.declared != nil {
		s.owners[used.owner].declared[*used.declared] = used.used
	}
}

// remove drops a session but not what it declared. The caller holds mu.
func (s *sessions) remove(old *session) {
	delete(s.byID, old.id)
	delete(s.owners[old.owner].sessions, old)
}

// sweep drops what has expired. The caller holds mu.
func (s *sessions) sweep() {
	limit := s.now().Add(-sessionTime)
	for _, old := range s.byID {
		if !old.used.After(limit) {
			s.remove(old)
		}
	}
	for o, own := range s.owners {
		for t, used := range own.declared {
			if !used.After(limit) {
				delete(own.declared, t)
			}
		}
		if len(own.sessions)+len(own.declared) == 0 {
			delete(s.owners, o)
		}
	}
}
