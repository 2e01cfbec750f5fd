package server

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

const (
	// sessionTime is how long a handle is good. Whoever holds the token renews it
	// by exchanging again.
	sessionTime = 10 * time.Minute
	// maxSessions is how many handles a token has at once; the oldest gives way.
	maxSessions = 64
)

// session is what a token was exchanged for.
type session struct {
	principal api.Principal
	token     api.TokenID
	active    func() bool // the token still is
	peer      peer        // the process that it is for
	process   process     // that one and none that has its number later
	expires   time.Time
}

// sessions are the handles that are good. They are in memory only, by their
// hashes: a restart ends them all, and whoever reads the memory of the service
// later cannot use them.
type sessions struct {
	now func() time.Time

	mu   sync.Mutex
	open map[[sha256.Size]byte]session // guarded by mu, as is what they hold on to
}

func newSessions(now func() time.Time) *sessions {
	return &sessions{now: now, open: map[[sha256.Size]byte]session{}}
}

// begin makes a handle for o, which may have an earlier end than most, and says
// until when it is good.
func (s *sessions) begin(o session) (handle string, until time.Time) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read never fails
	handle = hex.EncodeToString(b[:])
	now := s.now()
	if until := now.Add(sessionTime); o.expires.IsZero() || until.Before(o.expires) {
		o.expires = until
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var same [][sha256.Size]byte // of this token, oldest first
	for hash, other := range s.open {
		if !now.Before(other.expires) || !other.active() || other.process.ended() {
			s.drop(hash)
		} else if other.token == o.token {
			same = append(same, hash)
		}
	}
	if len(same) >= maxSessions {
		slices.SortFunc(same, func(a, b [sha256.Size]byte) int { return s.open[a].expires.Compare(s.open[b].expires) })
		s.drop(same[0])
	}
	s.open[sha256.Sum256([]byte(handle))] = o
	return handle, o.expires
}

// drop ends a handle. The caller has mu.
func (s *sessions) drop(hash [sha256.Size]byte) {
	s.open[hash].process.release()
	delete(s.open, hash)
}

// close ends all of them.
func (s *sessions) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for hash := range s.open {
		s.drop(hash)
	}
}

// find returns the session of the one handle that a request has. With an error
// it returns what is known of whose handle it was.
func (s *sessions) find(handles []string, p peer) (session, *api.Error) {
	if len(handles) != 1 {
		return session{}, noSession("the request has %d of them", len(handles))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.open[sha256.Sum256([]byte(handles[0]))]
	switch {
	case !ok:
		return session{}, noSession("there is none")
	case o.peer.pid != p.pid || o.peer.uid != p.uid || o.process.ended():
		return o, noSession("it is of another process")
	case !s.now().Before(o.expires):
		return o, noSession("its time is over")
	case !o.active():
		return o, noSession("its token is no longer active")
	}
	return o, nil
}

func noSession(format string, args ...any) *api.Error {
	e := api.Errorf(api.CodeUnauthenticated, format, args...)
	e.Message = "session: " + e.Message
	return e.WithHint("present the token again: POST /v1/session")
}

// exchange takes the one request that carries a token.
func (s *Server) exchange(w http.ResponseWriter, r *http.Request, who caller) error {
	if who.byToken {
		return &requestError{api.Errorf(api.CodeInvalid, "session: the request has one already").WithHint("present the token without the header %s", api.SessionHeader)}
	}
	var req api.SessionRequest
	if err := decode(r, &req); err != nil {
		// Whatever is wrong may have the token in it.
		return malformed(api.CodeInvalid, "session: want application/json, with one member: token")
	}
	p, _ := r.Context().Value(peerKey{}).(peer) // establish has seen it
	process, err := holdProcess(p.pid)
	if err != nil {
		return &requestError{api.Errorf(api.CodeInvalid, "session: no handle can be bound to the process that asks: %w", err).
			WithHint("run it where the service sees its processes, on Linux 5.3 or later")}
	}
	opened, err := s.authenticate(r.Context(), req.Token)
	if err != nil {
		process.release()
		return s.refuseToken(r.Context(), opened.token, err)
	}
	opened.peer, opened.process = p, process
	handle, until := s.sessions.begin(opened)
	w.Header().Set("Cache-Control", "no-store")
	return answer(w, http.StatusOK, api.Session{Handle: handle, Principal: opened.principal, Ceiling: s.cfg.Registry.Consent(opened.principal), ExpiresAt: until.UTC()})
}

// who says what the service takes the caller for.
func (s *Server) who(w http.ResponseWriter, _ *http.Request, who caller) error {
	consent := s.cfg.Registry.Consent(who.Principal)
	return answer(w, http.StatusOK, api.Who{Principal: who.Principal, Ceiling: min(consent, who.Ceiling), Consent: consent})
}
