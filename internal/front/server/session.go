package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
)

const (
	// sessionTime is the lifetime of a handle. A client renews it by exchanging its
	// token again.
	sessionTime = 10 * time.Minute
	// maxSessions bounds the handles of one token; a new one replaces the oldest.
	maxSessions = 64
)

// session is what a token was exchanged for.
type session struct {
	principal api.Principal
	token     api.TokenID
	active    func() bool // whether the token is still active
	peer      peer        // the process that got the handle, or a remote caller
	process   process     // the same; none for a remote caller
	expires   time.Time
}

// sessions holds the open handles, by hash and in memory only: a restart ends
// them all, and a later copy of the service's memory does not reveal them.
type sessions struct {
	now func() time.Time

	mu   sync.Mutex
	open map[[sha256.Size]byte]session // guarded by mu, with their processes
}

func newSessions(now func() time.Time) *sessions {
	return &sessions{now: now, open: map[[sha256.Size]byte]session{}}
}

// begin creates a handle for o and returns it with its expiry, which is o.expires
// if that is earlier than the usual one.
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
	var same [][sha256.Size]byte // of this token
	for hash, other := range s.open {
		if !now.Before(other.expires) || !other.active() || other.process.exited() {
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

// drop ends a handle. The caller holds mu.
func (s *sessions) drop(hash [sha256.Size]byte) {
	s.open[hash].process.close()
	delete(s.open, hash)
}

// close ends all handles.
func (s *sessions) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for hash := range s.open {
		s.drop(hash)
	}
}

// find returns the session of the one handle of a request. With an error the
// session holds what is known about the handle.
func (s *sessions) find(handles []string, p peer) (session, *api.Error) {
	if len(handles) != 1 {
		return session{}, noSession("%d handles in one request", len(handles))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.open[sha256.Sum256([]byte(handles[0]))]
	switch {
	case !ok:
		return session{}, noSession("unknown handle")
	case o.peer.remote != p.remote:
		return o, noSession("the handle belongs to a caller over %s", o.peer.channel())
	case !p.remote && (o.peer.pid != p.pid || o.peer.uid != p.uid || o.process.exited()):
		return o, noSession("the handle belongs to another process")
	case !s.now().Before(o.expires):
		return o, noSession("the handle has expired")
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

// exchange answers the one request that carries a token. A remote caller whose token is
// refused spends a request of its address; one whose token is valid spends one of its principal,
// so that scripts of one office do not wait for each other.
func (c *callers) exchange(w http.ResponseWriter, r *request) error {
	p, _ := r.Context().Value(peerKey{}).(peer) // establish has checked it
	opened, err := c.present(r, p)
	if err != nil {
		if p.remote && !c.remote.admit(p.address) {
			return tooMany()
		}
		return err
	}
	if p.remote {
		if !c.remote.begin(opened.principal) {
			opened.process.close()
			return tooMany()
		}
		defer c.remote.end(opened.principal)
	}
	handle, until := c.sessions.begin(opened)
	w.Header().Set("Cache-Control", "no-store")
	return answer(w, r.status, api.Session{Handle: handle, Principal: opened.principal, Ceiling: c.Registry.Consent(opened.principal), ExpiresAt: until.UTC()})
}

// present returns the session that the token in a request opens.
func (c *callers) present(r *request, p peer) (session, error) {
	if r.caller.byToken {
		return session{}, &malformedError{api.Errorf(api.CodeInvalid, "session: the request already has one").WithHint("present the token without the header %s", api.SessionHeader)}
	}
	var req api.SessionRequest
	if err := decode(r.Request, &req); err != nil {
		// The decoder's message may quote the token.
		return session{}, malformed(api.CodeInvalid, "session: want application/json with one member: token")
	}
	process, err := openProcess(p)
	if err != nil {
		return session{}, &malformedError{api.Errorf(api.CodeInvalid, "session: cannot bind a handle to the calling process: %w", err).
			WithHint("run it where the service sees its processes, on Linux 5.3 or later")}
	}
	opened, err := c.authenticate(r.Context(), req.Token)
	if err != nil {
		process.close()
		return session{}, c.refuseToken(r.Context(), opened.token, err)
	}
	opened.peer, opened.process = p, process
	return opened, nil
}

// authenticate returns the session that a token opens. A token with the
// service's own prefix is only ever checked against the registry; any other
// goes to the configured issuer's verifier, if there is one. With an error the
// session holds what is known about the token.
func (c *callers) authenticate(ctx context.Context, text string) (session, error) {
	if c.OAuth == nil || strings.HasPrefix(text, api.TokenPrefix) {
		principal, id, err := c.Registry.Authenticate(text)
		return session{principal: principal, token: id, active: func() bool { return c.Registry.Active(id) }}, err
	}
	t, err := c.OAuth.Verify(ctx, text)
	if err != nil {
		return session{}, err
	}
	principal, ok := c.Registry.Subject(t.OAuthSubject)
	if !ok {
		return session{}, api.Errorf(api.CodeUnauthenticated, "token of another issuer: no principal has its subject %.80q", t.Subject).
			WithHint("ask the operator: bailiwick principal add PRINCIPAL --oauth-issuer %s --oauth-subject SUBJECT", t.Issuer)
	}
	return session{
		principal: principal,
		token:     api.TokenID("of an issuer, for " + string(principal)), // the service has no id for it; handles are bounded by principal
		expires:   t.ExpiresAt,
		active: func() bool {
			now, ok := c.Registry.Subject(t.OAuthSubject)
			return ok && now == principal && c.Now().Before(t.ExpiresAt)
		},
	}, nil
}

// process is a reference to the process that a handle was given to. It never
// refers to another process that gets the same pid later.
type process struct{ fd int }

// openProcess opens the process of a peer that the kernel has just reported; none for a
// remote one.
func openProcess(p peer) (process, error) {
	if p.remote {
		return process{-1}, nil
	}
	if p.pid <= 0 {
		return process{}, errors.New("the process is not visible from here")
	}
	fd, err := unix.PidfdOpen(int(p.pid), 0)
	if err != nil {
		return process{}, fmt.Errorf("process %d: %w", p.pid, err)
	}
	return process{fd}, nil
}

// exited reports whether the process has exited; true if that is unknown, and false for a
// remote caller, which has none.
func (p process) exited() bool {
	if p.fd < 0 {
		return false
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, 0) //nolint:gosec // G115: a descriptor
		if !errors.Is(err, unix.EINTR) {
			return n != 0 || err != nil
		}
	}
}

func (p process) close() {
	if p.fd >= 0 {
		_ = unix.Close(p.fd) // only a reference
	}
}
