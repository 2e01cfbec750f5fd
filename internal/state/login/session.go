// Package login opens and keeps the sessions of people: by an ID token of the team's
// provider (OpenID Connect), or by an assertion of an operator's passkey (WebAuthn).
//
// The log is where sessions are kept. An entry opens one and another ends it, and a
// restart of the service folds them, so that no row can differ from what was logged and a
// session is valid only once its entry is durable. A handle is 256 random bits; the log has
// its digest. Of a session only the last use is in memory alone: after a restart the idle
// time begins again, and the absolute end stays.
//
// The package decides nothing about requests: policy does, for the principal of a session.
//
// Carries R-T4 (authentication of people) and R-D8.
package login

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
)

// Times of sessions.
const (
	DefaultIdle     = 2 * time.Hour
	DefaultLifetime = 12 * time.Hour
	MaxLifetime     = 7 * 24 * time.Hour
	clockLead       = time.Minute // a session may have been opened this much later than now
)

// Bounds of open sessions; a new one of a person replaces the least recently used.
const (
	maxOfPerson = 32
	maxOpen     = 4096
)

// Config configures Sessions.
type Config struct {
	Ledger   *audit.Ledger
	Now      func() time.Time
	Idle     time.Duration // 0: DefaultIdle
	Lifetime time.Duration // 0: DefaultLifetime; at most MaxLifetime
	Valid    func(context.Context, Identity) error
}

// Identity is who logged in, and how.
type Identity struct {
	Principal api.Principal
	Via       api.LoginMethod
	Issuer    string   // of an ID token
	Subject   string   // likewise
	Groups    []string // likewise: those that the catalog names, sorted
	Key       string   // id of a passkey
	// Credential is the digest of what was presented; it opens one session.
	Credential api.Digest
}

// Session is an open session.
type Session struct {
	Identity
	ID      string
	handle  api.Digest
	channel string
	from    string
	opened  time.Time
	ends    time.Time
	used    time.Time
	ended   string // why it was seen to be over
}

// Sessions keeps the open sessions. It is safe for concurrent use.
type Sessions struct {
	cfg Config

	mu       sync.Mutex
	byHandle map[api.Digest]*Session  // guarded by mu
	byID     map[string]*Session      // the same; guarded by mu
	seen     map[api.Digest]time.Time // credentials that opened a session, and until when they are remembered; guarded by mu
}

// Open restores the sessions that the log says are open.
func Open(ctx context.Context, cfg Config) (*Sessions, error) {
	if cfg.Idle == 0 {
		cfg.Idle = DefaultIdle
	}
	if cfg.Lifetime == 0 {
		cfg.Lifetime = DefaultLifetime
	}
	s := &Sessions{cfg: cfg, byHandle: map[api.Digest]*Session{}, byID: map[string]*Session{}, seen: map[api.Digest]time.Time{}}
	q := audit.Query{Kinds: []record.Kind{record.KindSessionOpened, record.KindSessionEnded}, Since: cfg.Now().Add(-MaxLifetime), Limit: restorePage}
	for more := true; more; {
		list, err := cfg.Ledger.List(ctx, q)
		if err != nil {
			return nil, err
		}
		for i := range list {
			if err := s.restore(&list[i].Entry); err != nil {
				return nil, api.Errorf(api.CodeIntegrity, "log entry #%d: %w", list[i].Seq, err)
			}
			q.From = list[i].Seq + 1
		}
		more = len(list) == restorePage
	}
	return s, nil
}

const restorePage = 1000

// restore follows one entry of the log.
func (s *Sessions) restore(e *record.Entry) error {
	now := s.cfg.Now()
	switch d := e.Detail.(type) {
	case record.SessionOpened:
		ends, err := time.Parse(time.RFC3339, d.Ends)
		if err != nil {
			return err
		}
		o := &Session{
			Identity: Identity{e.Principal, api.LoginMethod(d.Via), d.Issuer, d.Subject, d.Groups, d.Key, api.Digest(d.Credential)},
			ID:       d.Session, handle: api.Digest(d.Handle), channel: d.Channel, from: d.From, opened: e.At, ends: ends, used: now,
		}
		s.remember(o.Credential)
		s.byHandle[o.handle], s.byID[o.ID] = o, o // one that is over, too: Sweep logs its end, so no clock brings it back
	case record.SessionEnded:
		s.drop(d.Session)
	}
	return nil
}

// drop removes a session and returns it, or nil. The caller holds mu.
func (s *Sessions) drop(id string) *Session {
	o := s.byID[id]
	if o != nil {
		delete(s.byID, id)
		delete(s.byHandle, o.handle)
	}
	return o
}

// remember keeps a credential until every verifier refuses it. That is from now on: the clock by which it was presented may
// have been another.
func (s *Sessions) remember(credential api.Digest) {
	if credential != "" {
		s.seen[credential] = s.cfg.Now().Add(rememberTime)
	}
}

// rememberTime is longer than any credential is accepted: see maxAge and challengeTime.
const rememberTime = 2 * maxAge

// Begin opens a session on a channel and returns it once its entry is durable. from is
// the address of the caller, if it has one.
func (s *Sessions) Begin(ctx context.Context, who Identity, channel, from string) (api.PersonSession, error) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	handle := hex.EncodeToString(b[:])
	var id [10]byte
	_, _ = rand.Read(id[:])
	now := s.cfg.Now()
	ends := now.Add(s.cfg.Lifetime).Truncate(time.Second) // of the wall clock; the session ends by the other one, too
	o := &Session{
		Identity: who, ID: "s-" + strings.ToLower(base32.StdEncoding.EncodeToString(id[:])), handle: api.DigestOf([]byte(handle)), channel: channel, from: from, opened: now,
		ends: now.Add(ends.Sub(now.Round(0))), used: now,
	}
	if err := s.claim(who.Credential); err != nil {
		return api.PersonSession{}, err
	}
	if err := s.replace(ctx, who.Principal); err != nil {
		s.forget(who.Credential)
		return api.PersonSession{}, err
	}
	_, err := s.cfg.Ledger.Record(ctx, record.Entry{Kind: record.KindSessionOpened, Principal: who.Principal, Detail: record.SessionOpened{
		Channel: channel, Credential: string(who.Credential), Ends: o.ends.UTC().Format(time.RFC3339), From: from, Groups: who.Groups, Handle: string(o.handle),
		Issuer: who.Issuer, Key: who.Key, Session: o.ID, Subject: who.Subject, Via: string(who.Via),
	}}, nil)
	if err != nil {
		return api.PersonSession{}, err // the credential stays used: the entry may be durable
	}
	s.mu.Lock()
	s.byHandle[o.handle], s.byID[o.ID] = o, o
	s.mu.Unlock()
	return api.PersonSession{Session: handle, ID: o.ID, Principal: who.Principal, ExpiresAt: o.ends.UTC(), IdleSeconds: s.cfg.Idle.Seconds()}, nil
}

// claim refuses a credential that was presented before.
func (s *Sessions) claim(credential api.Digest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	for c, until := range s.seen {
		if !now.Before(until) {
			delete(s.seen, c)
		}
	}
	if _, used := s.seen[credential]; used {
		return refused("it was used before: each login needs a new one")
	}
	s.remember(credential)
	return nil
}

func (s *Sessions) forget(credential api.Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, credential)
}

// replace makes room for one more session of p.
func (s *Sessions) replace(ctx context.Context, p api.Principal) error {
	s.mu.Lock()
	var own []*Session
	all := len(s.byHandle)
	for _, o := range s.byHandle {
		if o.Principal == p {
			own = append(own, o)
		}
	}
	slices.SortFunc(own, func(a, b *Session) int { return a.used.Compare(b.used) })
	s.mu.Unlock()
	switch {
	case len(own) >= maxOfPerson:
		return s.end(ctx, "", own[0].ID, "replaced")
	case all >= maxOpen:
		return api.Errorf(api.CodeThrottled, "%d people's sessions are open, the most that this service keeps", all).WithHint("end one: bailiwick logout; an operator lists them: bailiwick session list")
	}
	return nil
}

var errNoSession = errors.New("no such session")

// Find returns the session of a handle that came over channel. With an error it returns
// what is known about the handle.
func (s *Sessions) Find(handle, channel string) (Session, *api.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.byHandle[api.DigestOf([]byte(handle))]
	switch {
	case !ok:
		return Session{}, refused("session: unknown, or it has ended")
	case o.channel != channel:
		return *o, refused("session %s: it was opened over %s, and this is %s", o.ID, o.channel, channel)
	}
	if why := s.over(o); why != "" {
		return *o, refused("session %s: it has ended (%s)", o.ID, why)
	}
	o.used = s.cfg.Now()
	return *o, nil
}

// over returns why a session is over; empty if it is not. It compares the wall clock too,
// so that neither a suspended machine nor a clock that is put back lengthens a session. One
// that was seen expired or idle stays over, whatever the clock shows until it is swept. The
// caller holds mu.
func (s *Sessions) over(o *Session) string {
	now := s.cfg.Now()
	switch wall := now.Round(0); {
	case o.ended != "":
	case !now.Before(o.ends), !wall.Before(o.ends.Round(0)):
		o.ended = "expired"
	case now.Sub(o.used) >= s.cfg.Idle, wall.Sub(o.used.Round(0)) >= s.cfg.Idle:
		o.ended = "idle"
	case wall.Before(o.opened.Round(0).Add(-clockLead)):
		return "the clock of the service was put back"
	}
	return o.ended
}

// Active reports whether a session is open, and its person still mapped as it was when it
// began.
func (s *Sessions) Active(ctx context.Context, id string) bool {
	s.mu.Lock()
	found := s.byID[id]
	open := found != nil && s.over(found) == ""
	s.mu.Unlock()
	return open && (s.cfg.Valid == nil || s.cfg.Valid(ctx, found.Identity) == nil)
}

// List returns the open sessions of p, or all if p is empty, newest first.
func (s *Sessions) List(p api.Principal) []api.SessionInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []api.SessionInfo{}
	for _, o := range s.byHandle {
		if (p == "" || o.Principal == p) && s.over(o) == "" {
			list = append(list, api.SessionInfo{ID: o.ID, Principal: o.Principal, Via: o.Via, Groups: o.Groups, From: o.from, OpenedAt: o.opened.UTC(), UsedAt: o.used.UTC(), ExpiresAt: o.ends.UTC()})
		}
	}
	slices.SortFunc(list, func(a, b api.SessionInfo) int {
		if c := b.OpenedAt.Compare(a.OpenedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list
}

// Owner returns whose session id is; empty if it is not open.
func (s *Sessions) Owner(id string) api.Principal {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.byID[id]; o != nil {
		return o.Principal
	}
	return ""
}

// End ends a session at the request of by.
func (s *Sessions) End(ctx context.Context, by api.Principal, id string) error {
	err := s.end(ctx, by, id, "logout")
	if errors.Is(err, errNoSession) {
		return NoSuch(id)
	}
	return err
}

// NoSuch is the error for a session that is not open, or that a caller may not see.
func NoSuch(id string) error {
	return api.Errorf(api.CodeNotFound, "no such session %.40q", id).WithHint("see: bailiwick session list")
}

// end ends a session now, and then logs it: a session must not outlive a log that is full.
func (s *Sessions) end(ctx context.Context, by api.Principal, id, why string) error {
	s.mu.Lock()
	found := s.drop(id)
	s.mu.Unlock()
	if found == nil {
		return errNoSession
	}
	_, err := s.cfg.Ledger.Record(ctx, record.Entry{Kind: record.KindSessionEnded, Principal: by, Detail: record.SessionEnded{Of: string(found.Principal), Session: id, Why: why}}, nil)
	return err
}

// Sweep logs the end of sessions that are over, so that a restart does not revive an idle
// one, and of those whose person is no longer mapped.
func (s *Sessions) Sweep(ctx context.Context) error {
	s.mu.Lock()
	ended, open := map[string]string{}, []Session{}
	for _, o := range s.byHandle {
		if why := s.over(o); why != "" {
			ended[o.ID] = why
		} else {
			open = append(open, *o)
		}
	}
	s.mu.Unlock()
	if s.cfg.Valid != nil {
		for i := range open {
			if err := s.cfg.Valid(ctx, open[i].Identity); api.CodeOf(err) == api.CodeUnauthenticated {
				ended[open[i].ID] = "no longer mapped"
			}
		}
	}
	var err error
	for id, why := range ended {
		if e := s.end(ctx, "", id, why); !errors.Is(e, errNoSession) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// refused is the error for a caller that presented something that opens no session.
func refused(format string, args ...any) *api.Error {
	return api.Errorf(api.CodeUnauthenticated, format, args...).WithHint("log in again: bailiwick login")
}
