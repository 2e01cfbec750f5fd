package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

type peerKey struct{}

// peer is what the operating system says of the other end of a connection.
type peer struct {
	uid uint32
	err error
}

func (s *Server) connContext(ctx context.Context, c net.Conn) context.Context {
	uid, err := PeerUID(c)
	return context.WithValue(ctx, peerKey{}, peer{uid, err})
}

// PeerUID returns the account of the process that connected c.
func PeerUID(c net.Conn) (uint32, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0, errors.New("not a unix socket")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if credErr != nil {
		return 0, credErr
	}
	return cred.Uid, nil
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

// caller establishes who is calling, or logs that it could not be.
func (s *Server) caller(r *http.Request) (api.Principal, error) {
	p, ok := r.Context().Value(peerKey{}).(peer)
	err := p.err
	if !ok {
		err = errors.New("the connection has no peer")
	}
	var who api.Principal
	if err == nil {
		who, err = LocalPrincipal(p.uid, s.cfg.Login)
	}
	if err == nil {
		return who, nil
	}
	seq, logErr := s.cfg.Ledger.Record(r.Context(), record.Entry{
		Kind: record.KindAuthRefused, Detail: record.AuthRefused{Claimed: fmt.Sprintf("uid %d", p.uid), Message: err.Error(), Via: "unix"},
	}, nil)
	if logErr != nil {
		return "", logErr
	}
	refusal := api.Errorf(api.CodeUnauthenticated, "the caller could not be established: %w", err)
	refusal.AuditEntry = &seq
	return "", refusal
}
