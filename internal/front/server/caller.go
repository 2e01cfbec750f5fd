package server

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/unixframe"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/state/login"
)

// caller is the principal of a request, as the service established it.
type caller struct {
	dispatch.Caller
	byToken bool // established by a token, not by the account of the socket's peer
	session session
	person  login.Session // of a person who logged in; the zero value for any other caller
}

// active reports whether what established the caller is still valid.
func (w caller) active(people *login.Sessions) bool {
	switch {
	case w.byToken:
		return w.session.active()
	case w.person.ID != "":
		return people.Active(context.Background(), w.person.ID)
	}
	return true
}

// claimed names what established the caller, for the log.
func (w caller) claimed() string {
	if w.person.ID != "" {
		return w.person.ID
	}
	return string(w.session.token)
}

// callers establishes callers and logs the requests that it refuses.
type callers struct {
	*Config
	sessions *sessions
	refusals *quota[struct{}] // log entries about refused requests
	remote   *bounds
}

func newCallers(cfg *Config) *callers {
	return &callers{Config: cfg, sessions: newSessions(cfg.Now), refusals: newQuota[struct{}](cfg.Now, refusalRate, refusalBurst), remote: newBounds(cfg.Now)}
}

type peerKey struct{}

// peer is what the operating system says about the other end of a connection.
type peer struct {
	uid uint32
	pid int32 // 0: not visible from the service's pid namespace
	err error

	remote  bool       // over TLS: it has no account
	from    string     // address of a remote caller
	address netip.Addr // likewise, as bounds count it
}

// channel names what a person's session is valid over.
func (p peer) channel() string {
	if p.remote {
		return "tls"
	}
	return "unix:" + strconv.FormatUint(uint64(p.uid), 10)
}

func connContext(ctx context.Context, c net.Conn) context.Context {
	p, err := peerOf(c)
	p.err = err
	return context.WithValue(ctx, peerKey{}, p)
}

// noAccount is the uid of a peer without one: no account has it.
const noAccount = math.MaxUint32

// peerOf returns the process that connected c and its account at that time.
func peerOf(c net.Conn) (peer, error) {
	if tls, ok := c.(*remoteConn); ok {
		host, _, err := net.SplitHostPort(tls.RemoteAddr().String())
		return peer{uid: noAccount, remote: true, from: host, address: tls.address}, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return peer{}, errors.New("not a unix socket")
	}
	cred, err := unixframe.Peer(u)
	if err != nil {
		return peer{}, err
	}
	return peer{uid: cred.Uid, pid: cred.Pid}, nil
}

// LocalPrincipal returns local:LOGIN, or local:uid:NUMBER for an account without
// a name. It is never human:.
func LocalPrincipal(uid uint32, login func(uint32) (string, error)) (api.Principal, error) {
	name, err := login(uid)
	if err != nil {
		name = ""
	}
	return api.ParsePrincipal("local:" + api.LocalLogin(name, int(uid)))
}

// establish returns the caller of a request, or logs the refusal. A request
// with a handle is the handle's principal's or refused: it never falls back to
// the account.
func (c *callers) establish(r *http.Request, call api.Call) (caller, error) {
	p, ok := r.Context().Value(peerKey{}).(peer)
	if err := p.err; !ok || err != nil {
		if err == nil {
			err = errors.New("the connection has no peer")
		}
		return caller{}, c.refuse(r.Context(), refusal{via: "unix", claimed: fmt.Sprintf("uid %d", p.uid), err: unestablished(err)})
	}
	if where := strayToken(r); where != "" {
		err := unestablished(fmt.Errorf("%s holds what looks like a token", where)).
			WithHint("a token belongs in the body of POST /v1/session and nowhere else; if it was one, rotate it: bailiwick token rotate")
		return caller{}, c.refuse(r.Context(), refusal{via: "unix", claimed: "a token in " + where, err: err})
	}
	if p.remote {
		return c.establishRemote(r, p, call)
	}
	if handles := r.Header.Values(api.SessionHeader); len(handles) > 0 {
		return c.byHandle(r, handles, p)
	}
	who, err := LocalPrincipal(p.uid, c.Login)
	if err != nil {
		return caller{}, c.refuse(r.Context(), refusal{via: "unix", claimed: fmt.Sprintf("uid %d", p.uid), err: unestablished(err)})
	}
	return caller{dispatch.Caller{Principal: who, Ceiling: declared(r.Header)}, false, session{}, login.Session{}}, nil
}

// byHandle returns the caller whose handle a request has.
func (c *callers) byHandle(r *http.Request, handles []string, p peer) (caller, error) {
	if person, ok, err := c.findPerson(handles, p); ok {
		if err != nil {
			return caller{}, c.refuse(r.Context(), refusal{via: "session", claimed: person.ID, err: err})
		}
		return caller{Caller: dispatch.Caller{Principal: person.Principal, Ceiling: declared(r.Header)}, person: person}, nil
	}
	opened, err := c.sessions.find(handles, p)
	if err != nil {
		return caller{}, c.refuse(r.Context(), refusal{via: "session", claimed: string(opened.token), err: err})
	}
	return caller{dispatch.Caller{Principal: opened.principal, Ceiling: declared(r.Header), TokenValid: opened.active}, true, opened, login.Session{}}, nil
}

// findPerson returns the person's session of a handle, and whether it is one.
func (c *callers) findPerson(handles []string, p peer) (login.Session, bool, *api.Error) {
	if c.People == nil || len(handles) != 1 {
		return login.Session{}, false, nil
	}
	s, err := c.People.Find(handles[0], p.channel())
	if err == nil && !c.People.Active(context.Background(), s.ID) {
		err = api.Errorf(api.CodeUnauthenticated, "session %s: its person is no longer mapped to %s", s.ID, s.Principal).WithHint("ask an operator; see: bailiwick catalog diff")
	}
	return s, s.ID != "", err
}

// checkActive refuses a caller whose token or session has ended since its request began,
// which may be long ago: a body arrives slowly, a request waits, a log is
// followed.
func (c *callers) checkActive(ctx context.Context, who caller) error {
	if who.active(c.People) {
		return nil
	}
	err := noSession("its token is no longer active")
	if who.person.ID != "" {
		err = api.Errorf(api.CodeUnauthenticated, "session %s has ended", who.person.ID).WithHint("log in again: bailiwick login")
	}
	return c.refuse(ctx, refusal{via: "session", claimed: who.claimed(), err: err})
}

// orInactive returns err, logged as a refusal if the reason is that the
// caller's token has ended meanwhile.
func (c *callers) orInactive(ctx context.Context, who caller, err error) error {
	if api.CodeOf(err) == api.CodeUnauthenticated {
		if inactive := c.checkActive(ctx, who); inactive != nil {
			return inactive
		}
	}
	return err
}

var errBrowser = errors.New("the page of a browser asks; the API is for programs")

func unestablished(err error) *api.Error {
	return api.Errorf(api.CodeUnauthenticated, "the caller could not be established: %w", err)
}

// declared returns the ceiling that a request declares; the lowest if the
// header is invalid or ambiguous.
func declared(h http.Header) api.Tier {
	switch given := h.Values(api.CeilingHeader); len(given) {
	case 0:
		return api.Irreversible
	case 1:
		if t, err := api.ParseTier(given[0]); err == nil {
			return t
		}
	}
	return api.Observe
}

// strayToken returns where a request has a token outside its body: addresses
// and well-known headers end up in logs and at third parties (R-T6).
func strayToken(r *http.Request) string {
	address := r.RequestURI
	for range 5 { // it may be escaped, even repeatedly
		if strings.Contains(address, api.TokenPrefix) {
			return "the address"
		}
		address = unescape(address)
	}
	for name := range r.URL.Query() { // another issuer's tokens have no known prefix
		if name = strings.ToLower(name); strings.HasSuffix(name, "token") || name == "authorization" {
			return "the address"
		}
	}
	for _, name := range []string{"Authorization", "Proxy-Authorization", "Cookie"} {
		if len(r.Header.Values(name)) > 0 {
			return "the header " + name
		}
	}
	return ""
}

// unescape is url.PathUnescape that keeps invalid escapes as they are.
func unescape(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				out.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}
