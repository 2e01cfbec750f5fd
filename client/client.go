// Package client is the typed client of the Bailiwick service.
//
// It has two faces. Runtime is what composes existing workers and may be
// driven by an AI; Operator is for people. Neither has a method of the other,
// so a program that holds a Runtime cannot reach an operator verb by mistake.
// Who is calling is established by the service: the peer of the socket, or the
// token that was exchanged for a handle (session.go). Nothing that a caller
// says of itself counts.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/egress"
)

// Config says where the service is.
type Config struct {
	// Socket is the path of its unix socket. When empty, the first of Dirs'
	// places that exists is used.
	Socket string
	Dirs   api.Dirs
	// Trace is the span that the calls belong to; none: the service begins one
	// for each.
	Trace api.Trace
	// UIDs are the accounts whose service is trusted: normally the caller's own
	// and, for /run/bailiwick, the service account's. A server of any other
	// account is refused before anything is said to it.
	UIDs []int
	// Spawn starts a service when none answers, or finds the one that another
	// caller has just started, and returns its socket. Nil: that none answers
	// is an error. See try.go for what is asked a second time.
	Spawn func(context.Context) (socket string, err error)
}

// Conn speaks to one service, and where it may start one, to the next one
// after that has ended.
type Conn struct {
	*link
	header http.Header // of every request, beside those that each has
}

// link is what every Conn that was made of one has in common.
type link struct {
	uids  []int
	trace api.Trace
	spawn func(context.Context) (string, error)
	http  *http.Client

	mu     sync.Mutex
	places []string // where to look, in order; guarded by mu
	socket string   // where a service answered, or would have; guarded by mu
}

// New returns a connection that is made when it is first used.
func New(cfg Config) *Conn {
	c := &Conn{link: &link{uids: cfg.UIDs, trace: cfg.Trace, spawn: cfg.Spawn, places: []string{cfg.Socket}}}
	if cfg.Socket == "" {
		c.places = cfg.Dirs.Sockets()
	}
	c.socket = c.places[len(c.places)-1]
	c.http = egress.Local(func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) })
	return c
}

// Socket returns the path that c has connected to, or would.
func (c *Conn) Socket() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.socket
}

// Find returns the socket of a service that answers now. It starts none.
func (c *Conn) Find(ctx context.Context) (string, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return "", c.unreachable(ctx, err)
	}
	return c.Socket(), conn.Close()
}

// Close ends idle connections.
func (c *Conn) Close() { c.http.CloseIdleConnections() }

// errStranger marks a server that runs under an account that is not trusted.
var errStranger = errors.New("the service at this socket runs under another account")

// dial connects to the first place where a service answers. A socket that is
// not there, or that a service left behind, is no answer; any other trouble is
// one.
func (c *Conn) dial(ctx context.Context) (net.Conn, error) {
	c.mu.Lock()
	places := slices.Clone(c.places)
	c.mu.Unlock()
	var none *noServiceError
	for _, path := range places {
		conn, err := dial(ctx, path, c.uids)
		if err != nil && slices.ContainsFunc(nobodyListens(), func(e error) bool { return errors.Is(err, e) }) {
			// One that was left behind says more about where it should be.
			if none == nil || !errors.Is(none.err, syscall.ECONNREFUSED) {
				none = &noServiceError{path, err}
			}
			continue
		}
		c.at(path)
		return conn, err
	}
	c.at(none.socket)
	return nil, none
}

// nobodyListens are the errors that say so. The last is of a path that is
// longer than that of a socket can be.
func nobodyListens() []error { return []error{fs.ErrNotExist, syscall.ECONNREFUSED, syscall.EINVAL} }

// at remembers where the service is.
func (c *Conn) at(socket string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.socket = socket
}

// noServiceError says that nothing was sent, because nobody listens.
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

// request is one call; body and answer are JSON unless they are nil.
func (c *Conn) request(ctx context.Context, call call, answer any) error {
	resp, err := c.send(ctx, call)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	if answer == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		return fmt.Errorf("answer of the service to %s: %w", call.path, err)
	}
	return nil
}

// once makes a call and returns the response when it is a success; the caller
// closes its body.
func (c *Conn) once(ctx context.Context, method, path string, payload []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://bailiwick"+path, bytes.NewReader(payload))
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, c.header)
	if payload != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.trace != "" {
		req.Header.Set(api.TraceHeader, string(c.trace))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	return nil, readError(resp)
}

func (c *Conn) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, errStranger) {
		return api.Errorf(api.CodeUnauthenticated, "socket %s: %w", c.Socket(), errStranger).WithHint("name the right socket with --socket")
	}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR) {
		// Starting one would not help: it could not be asked either.
		return api.Errorf(api.CodeUnavailable, "socket %s: %w", c.Socket(), cause(err)).WithHint("its folder must be one that this account can use; see: bailiwick doctor; or name another socket with --socket")
	}
	why := brokenCall
	if _, ok := errors.AsType[*noServiceError](err); ok {
		why = noService
	}
	return &failure{why, api.Errorf(api.CodeUnavailable, "no service answers at %s: %w", c.Socket(), cause(err)).WithHint("run: bailiwick up")}
}

// cause strips what http.Client says of the made-up URL.
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
	if e.Code == api.CodeUnavailable {
		return &failure{ending, &e}
	}
	return &e
}

// lines calls each for every JSON line of the response until it ends.
func lines[T any](ctx context.Context, c *Conn, path string, each func(T) error) error {
	resp, err := c.send(ctx, get(path))
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
			return &failure{brokenStream, api.Errorf(api.CodeUnavailable, "the stream of %s broke: %w", path, err).WithHint("see: bailiwick status")}
		}
		if err := each(v); err != nil {
			return &refusal{err}
		}
	}
}
