package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
)

// Remote is a service on another machine, over TLS.
type Remote struct {
	URL   string         // https://HOST or https://HOST:PORT
	Roots *x509.CertPool // that its certificate chains to; nil: the system's
	// Session returns the handle to make calls with: at first, and again once the service
	// has refused one. c makes the calls that need no handle. When nil, calls have only the
	// handle that As gives them.
	Session func(ctx context.Context, c *Conn, refused string) (handle string, err error)
}

// CheckURL returns an error unless its argument is the URL of a service.
func CheckURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.String() != s {
		return api.Errorf(api.CodeInvalid, "server %.120q: want https://HOST or https://HOST:PORT", s)
	}
	if err := egress.CheckHost(u.Hostname()); err != nil {
		return api.Errorf(api.CodeInvalid, "server %.120q: %w", s, err)
	}
	return nil
}

// opening holds the handle that all Conns of a link share.
type opening struct {
	mu     sync.Mutex
	handle string // guarded by mu
}

// session returns the handle for a call; empty for one that needs none.
func (c *Conn) session(ctx context.Context, call api.Call, refused string) (string, error) {
	switch call.Class() {
	case api.ClassLogin, api.ClassSession:
		return "", nil
	case api.ClassRuntime, api.ClassOperator, api.ClassSessions:
	}
	if c.remote == nil || c.remote.Session == nil || c.header.Get(api.SessionHeader) != "" {
		return "", nil
	}
	c.opening.mu.Lock()
	defer c.opening.mu.Unlock()
	if c.opening.handle == "" || c.opening.handle == refused {
		handle, err := c.remote.Session(ctx, &Conn{link: c.link}, refused)
		if err != nil {
			return "", err
		}
		c.opening.handle = handle
	}
	return c.opening.handle, nil
}

// remoteFailure is the error of a service on another machine that does not answer.
func (c *Conn) remoteFailure(err error) error {
	at := c.remote.URL
	if unknown, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return api.Errorf(api.CodeUnauthenticated, "server %s: its certificate is not trusted: %w", at, unknown).
			WithHint("if the team has certificates of its own, log in with them: bailiwick login %s --ca FILE; otherwise the server is another one than you expect", at)
	}
	if wrong, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return api.Errorf(api.CodeUnauthenticated, "server %s: its certificate is not valid: %w", at, wrong.Err).
			WithHint("ask the administrator of the server to renew it; check the clock of this machine")
	}
	return &failure{brokenCall, api.Errorf(api.CodeUnavailable, "server %s does not answer: %w", at, cause(err)).
		WithHint("check the address and the network; ask the administrator of the server")}
}
