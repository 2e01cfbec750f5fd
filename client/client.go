// Package client is the typed client of the Bailiwick service.
//
// It has two faces. Runtime is what composes existing workers and may be
// driven by an AI; Operator is for people. Neither has a method of the other,
// so a program that holds a Runtime cannot reach an operator verb by mistake.
// Who is calling is established by the service (the peer of the socket);
// nothing in a request says so.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Config says where the service is.
type Config struct {
	// Socket is the path of its unix socket. When empty, the first of Dirs'
	// places that exists is used.
	Socket string
	Dirs   api.Dirs
	// UIDs are the accounts whose service is trusted: normally the caller's own
	// and, for /run/bailiwick, the service account's. A server of any other
	// account is refused before anything is said to it.
	UIDs []int
}

// Conn speaks to one service.
type Conn struct {
	socket string
	http   *http.Client
}

// New returns a connection that is made when it is first used.
func New(cfg Config) *Conn {
	c := &Conn{socket: cfg.Socket}
	if c.socket == "" {
		c.socket = find(cfg.Dirs.Sockets())
	}
	c.http = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial(ctx, c.socket, cfg.UIDs)
		},
		DisableCompression: true,
	}}
	return c
}

func find(candidates []string) string {
	for _, path := range candidates {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return candidates[len(candidates)-1]
}

// Socket returns the path that c connects to.
func (c *Conn) Socket() string { return c.socket }

// Close ends idle connections.
func (c *Conn) Close() { c.http.CloseIdleConnections() }

// errStranger marks a server that runs under an account that is not trusted.
var errStranger = errors.New("the service at this socket runs under another account")

func dial(ctx context.Context, socket string, uids []int) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	if err := checkPeer(conn.(*net.UnixConn), uids); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// request is one call; body and answer are JSON unless they are nil.
func (c *Conn) request(ctx context.Context, method, path string, body, answer any) error {
	resp, err := c.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	if answer == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		return fmt.Errorf("answer of the service to %s: %w", path, err)
	}
	return nil
}

// send returns the response when it is a success; the caller closes its body.
func (c *Conn) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var payload io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		payload = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://bailiwick"+path, payload)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
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
		return api.Errorf(api.CodeUnauthenticated, "socket %s: %w", c.socket, errStranger).WithHint("name the right socket with --socket")
	}
	return api.Errorf(api.CodeUnavailable, "no service answers at %s: %w", c.socket, cause(err)).WithHint("run: bailiwick up")
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
	return &e
}

// lines calls each for every JSON line of the response until it ends.
func lines[T any](ctx context.Context, c *Conn, path string, each func(T) error) error {
	resp, err := c.send(ctx, http.MethodGet, path, nil)
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
			return api.Errorf(api.CodeUnavailable, "the stream of %s broke: %w", path, err).WithHint("see: bailiwick status")
		}
		if err := each(v); err != nil {
			return err
		}
	}
}
