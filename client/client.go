// Package client is the typed client of the Bailiwick service.
//
// It has two faces. Runtime composes existing workers and may be driven by an
// AI; Operator is for people. Neither has a method of the other, so a program
// that holds a Runtime cannot reach an operator call by mistake. Each embeds a type
// for every subject with many calls: RuntimeRuns, OperatorLog. The service
// establishes the caller from the socket's peer or from the handle that a token
// was exchanged for (session.go), never from what a caller says about itself.
//
// Carries the client's half of R-B4 (an AI reaches runtime calls only).
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
)

// Config says where the service is.
type Config struct {
	// Socket is the path of the service's unix socket. When empty, the client
	// tries Dirs.Sockets in order.
	Socket string
	Dirs   api.Dirs
	// Trace is the parent span of all calls; when empty, the service starts a new
	// trace for each.
	Trace api.Trace
	// UIDs are the accounts whose service is trusted; package installation knows them.
	// The client sends nothing to a server of another account.
	UIDs []int
	// Spawn starts a service when none answers, or finds the one that another
	// client has just started, and returns its socket. When nil, an unreachable
	// service is an error, except one that the unit of a machine restarts. See retry.go for
	// which calls are retried.
	Spawn func(context.Context) (socket string, err error)
	// Remote is a service on another machine, in place of a socket.
	Remote *Remote
}

// Conn speaks to one service and, when it may start one, to that service's
// successors.
type Conn struct {
	*link
	header http.Header // added to every request
}

// link is what all Conns derived from one share.
type link struct {
	system   bool // the service is the machine's
	restarts bool // and its unit restarts it, on a socket that the unit keeps
	uids     []int
	trace    api.Trace
	spawn    func(context.Context) (string, error)
	http     *http.Client

	remote  *Remote // nil: a socket
	opening opening // of remote

	mu     sync.Mutex
	places []string // sockets to try, in order; guarded by mu
	socket string   // the last one tried; guarded by mu
}

// New returns a Conn that connects on its first use.
func New(cfg Config) *Conn {
	c := &Conn{link: &link{system: cfg.Dirs.System(), uids: cfg.UIDs, trace: cfg.Trace, spawn: cfg.Spawn, places: []string{cfg.Socket}}}
	if cfg.Remote != nil {
		c.remote, c.spawn, c.http = cfg.Remote, nil, egress.Remote(cfg.Remote.Roots)
		c.places, c.socket = nil, cfg.Remote.URL
		return c
	}
	c.restarts = c.system && c.spawn == nil
	if cfg.Socket == "" {
		c.places = cfg.Dirs.Sockets()
	}
	c.socket = c.places[len(c.places)-1]
	c.http = egress.Local(func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) })
	return c
}

// Socket returns the path, or the URL, that c is connected to, or would connect to.
func (c *Conn) Socket() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.socket
}

// Server returns the URL of the service, if it is on another machine.
func (c *Conn) Server() string {
	if c.remote == nil {
		return ""
	}
	return c.remote.URL
}

// Find returns the socket of a running service. It never starts one.
func (c *Conn) Find(ctx context.Context) (string, error) {
	if c.remote != nil {
		_, err := c.Login().Methods(ctx)
		return c.remote.URL, err
	}
	conn, err := c.dial(ctx)
	if err != nil {
		return "", c.unreachable(ctx, err)
	}
	return c.Socket(), conn.Close()
}

// Close closes idle connections.
func (c *Conn) Close() { c.http.CloseIdleConnections() }

// untrustedError reports a server that runs under an account not among Config.UIDs.
type untrustedError struct{ uid int }

func (e *untrustedError) Error() string {
	return fmt.Sprintf("the service at this socket runs under another account (uid %d)", e.uid)
}

// otherAccount is the error for a caller whose account is not the service's. In mode
// same-user a service serves its own account only.
func otherAccount(code api.Code, socket string, uid int) error {
	return api.Errorf(code, "socket %s belongs to another account (uid %d), and its service serves only that account", socket, uid).
		WithHint("ask the owner of the service for a token and an address to use it over MCP HTTP, or run this as that account; for a service of your own: bailiwick up, and no --socket")
}

// dial connects to the first place where a service listens. It skips sockets
// that are missing or stale; every other error is final.
func (c *Conn) dial(ctx context.Context) (net.Conn, error) {
	c.mu.Lock()
	places := slices.Clone(c.places)
	c.mu.Unlock()
	var none *noServiceError
	for _, path := range places {
		conn, err := dial(ctx, path, c.uids)
		if err != nil && slices.ContainsFunc(notListening(), func(e error) bool { return errors.Is(err, e) }) {
			// A stale socket is the better hint where the service should be.
			if none == nil || !errors.Is(none.err, syscall.ECONNREFUSED) {
				none = &noServiceError{path, err}
			}
			continue
		}
		c.setSocket(path)
		return conn, err
	}
	c.setSocket(none.socket)
	return nil, none
}

// notListening lists the errors of a path without a listener. EINVAL means that
// the path is too long for a socket.
func notListening() []error { return []error{fs.ErrNotExist, syscall.ECONNREFUSED, syscall.EINVAL} }

func (c *Conn) setSocket(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.socket = path
}

// noServiceError reports that no service listens, so nothing was sent.
type noServiceError struct {
	socket string
	err    error
}

func (e *noServiceError) Error() string { return e.err.Error() }
func (e *noServiceError) Unwrap() error { return e.err }

func dial(ctx context.Context, socket string, uids []int) (net.Conn, error) {
	conn, err := egress.Unix(socket).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	if err := checkPeer(conn.(*net.UnixConn), uids); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// HowToStart returns the command that starts the service, for an error which says that none
// answers.
func HowToStart(err error) string {
	if e, ok := errors.AsType[*api.Error](err); ok {
		if start, ok := strings.CutPrefix(e.Hint, "run: "); ok {
			return start
		}
	}
	return api.StartService(api.ModeSameUser)
}

func (c *Conn) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if c.remote != nil {
		return c.remoteFailure(err)
	}
	if e, ok := errors.AsType[*untrustedError](err); ok {
		return otherAccount(api.CodeUnauthenticated, c.Socket(), e.uid)
	}
	if uid, known := owner(c.Socket()); known && !slices.Contains(c.uids, uid) && errors.Is(err, fs.ErrPermission) {
		return otherAccount(api.CodeUnavailable, c.Socket(), uid)
	}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR) {
		// A newly started service would be just as unreachable.
		return api.Errorf(api.CodeUnavailable, "socket %s: %w", c.Socket(), cause(err)).WithHint("its directory must be accessible to this account; see: bailiwick doctor; or name another socket with --socket")
	}
	why := brokenCall
	if _, ok := errors.AsType[*noServiceError](err); ok {
		why = noService
	}
	start := api.StartService(api.ModeSameUser)
	if c.system {
		start = api.StartService(api.ModeSystem)
	}
	return &failure{why, api.Errorf(api.CodeUnavailable, "no service answers at %s: %w", c.Socket(), cause(err)).WithHint("run: %s", start)}
}

// NoService reports whether a call failed because no service answers.
func NoService(err error) bool {
	f, ok := errors.AsType[*failure](err)
	return ok && (f.why == noService || f.why == brokenCall)
}

// cause strips what http.Client says about the placeholder URL.
func cause(err error) error {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return err
}

func readError(resp *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var e api.Error
	if err := json.Unmarshal(b, &e); err != nil || e.Code == "" {
		return api.Errorf(api.CodeInternal, "the service answered %s: %s", resp.Status, strings.TrimSpace(string(b)))
	}
	switch {
	case e.Code == api.CodeUnavailable && resp.Header.Get("Retry-After") != "":
		return &failure{shuttingDown, &e}
	case e.Code == api.CodeUnavailable:
		return &failure{unavailable, &e}
	}
	return &e
}

// fetch makes a call whose answer is a T as JSON.
func fetch[T any](ctx context.Context, c *Conn, call call) (v T, err error) {
	resp, err := c.send(ctx, call)
	if err != nil {
		return v, err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		return v, fmt.Errorf("response of the service to %s: %w", call.address(), err)
	}
	return v, nil
}

// do makes a call and ignores the content of its answer.
func (c *Conn) do(ctx context.Context, call call) error {
	resp, err := c.send(ctx, call)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// copy makes a call and copies its content to w.
func (c *Conn) copy(ctx context.Context, call call, w io.Writer) error {
	resp, err := c.send(ctx, call)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	n, err := io.Copy(w, resp.Body)
	if err == nil && resp.ContentLength >= 0 && n != resp.ContentLength {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// lines makes a call and passes every JSON line of its answer to each.
func lines[T any](ctx context.Context, c *Conn, call call, each func(T) error) error {
	resp, err := c.send(ctx, call)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	for dec := json.NewDecoder(resp.Body); ; {
		var v T
		err := dec.Decode(&v)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return &failure{brokenStream, api.Errorf(api.CodeUnavailable, "the stream of %s broke: %w", call.address(), err).WithHint("see: bailiwick status")}
		}
		if err := each(v); err != nil {
			return &consumerError{err}
		}
	}
}
