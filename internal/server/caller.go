package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/dispatch"
)

// caller is who is calling, as the service established it.
type caller struct {
	dispatch.Caller
	byToken bool // and not by the account at the other end of the socket
	session session
}

type peerKey struct{}

// peer is what the operating system says of the other end of a connection.
type peer struct {
	uid uint32
	pid int32 // 0: it cannot be seen from here
	err error
}

func (s *Server) connContext(ctx context.Context, c net.Conn) context.Context {
	p, err := peerOf(c)
	p.err = err
	return context.WithValue(ctx, peerKey{}, p)
}

// peerOf asks the operating system which process connected c, and of which
// account it was then.
func peerOf(c net.Conn) (peer, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return peer{}, errors.New("not a unix socket")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return peer{}, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return peer{}, err
	}
	if credErr != nil {
		return peer{}, credErr
	}
	return peer{uid: cred.Uid, pid: cred.Pid}, nil
}

// LocalPrincipal is local:LOGIN, or local:uid:NUMBER for an account without a
// name. It is never a human.
func LocalPrincipal(uid uint32, login func(uint32) (string, error)) (api.Principal, error) {
	name, err := login(uid)
	if err != nil {
		name = "" // it has none
	}
	return api.ParsePrincipal("local:" + api.LocalLogin(name, int(uid)))
}

// establish says who is calling, or logs that it could not be. A request with
// a handle is the handle's or nobody's: it never becomes the account's.
func (s *Server) establish(r *http.Request) (caller, error) {
	p, ok := r.Context().Value(peerKey{}).(peer)
	if err := p.err; !ok || err != nil {
		if err == nil {
			err = errors.New("the connection has no peer")
		}
		return caller{}, s.refuse(r.Context(), refusal{via: "unix", claimed: fmt.Sprintf("uid %d", p.uid), err: unestablished(err)})
	}
	if where := strayToken(r); where != "" {
		err := unestablished(fmt.Errorf("there is something like a token in %s", where)).
			WithHint("a token goes into the body of POST /v1/session and nowhere else; if it was one, rotate it: bailiwick token rotate")
		return caller{}, s.refuse(r.Context(), refusal{via: "unix", claimed: "a token in " + where, err: err})
	}
	if handles := r.Header.Values(api.SessionHeader); len(handles) > 0 {
		opened, err := s.sessions.find(handles, p)
		if err != nil {
			return caller{}, s.refuse(r.Context(), refusal{via: "session", claimed: string(opened.token), err: err})
		}
		return caller{dispatch.Caller{Principal: opened.principal, Ceiling: declared(r.Header), TokenValid: opened.active}, true, opened}, nil
	}
	who, err := LocalPrincipal(p.uid, s.cfg.Login)
	if err != nil {
		return caller{}, s.refuse(r.Context(), refusal{via: "unix", claimed: fmt.Sprintf("uid %d", p.uid), err: unestablished(err)})
	}
	return caller{dispatch.Caller{Principal: who, Ceiling: declared(r.Header)}, false, session{}}, nil
}

// still refuses a caller whose token has ended since its request began, which
// may be long ago: a body comes slowly, an answer is waited for, a log is
// followed.
func (s *Server) still(ctx context.Context, who caller) error {
	if !who.byToken || who.session.active() {
		return nil
	}
	return s.refuse(ctx, refusal{via: "session", claimed: string(who.session.token), err: noSession("its token is no longer active")})
}

// orGone is err, in the log too where it is that the token ended meanwhile.
func (s *Server) orGone(ctx context.Context, who caller, err error) error {
	if api.CodeOf(err) == api.CodeUnauthenticated {
		if gone := s.still(ctx, who); gone != nil {
			return gone
		}
	}
	return err
}

func unestablished(err error) *api.Error {
	return api.Errorf(api.CodeUnauthenticated, "the caller could not be established: %w", err)
}

// declared is the ceiling that a request has bound itself to. What cannot be
// understood, or could be understood in two ways, binds it to the lowest.
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

// strayToken says where a request has a token that must have none: what is in
// an address or a well-known header ends up in logs and with others (R-T6).
func strayToken(r *http.Request) string {
	address := r.RequestURI
	for range 5 { // it may be escaped, and that again
		if strings.Contains(address, api.TokenPrefix) {
			return "the address"
		}
		address = unescape(address)
	}
	for name := range r.URL.Query() { // also of another issuer's, which has no form of ours
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

// unescape is url.PathUnescape for whatever a caller writes: what is no escape
// stays as it is.
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
