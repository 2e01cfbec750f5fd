package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/worker/broker"
	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
)

const (
	// toolDir is where a jail has bailiwick-tool. It is on the PATH.
	toolDir = jail.MountsDir + "/bin"
	// awayTime is how long a message to a tool waits for a service that restarts.
	awayTime = 10 * time.Second
	// channelPing is how long the service may be silent before it is asked whether it is
	// there, and how long it may take to say so.
	channelPing = 20 * time.Second
)

// toolMount shows bailiwick-tool in the agent's jail. An agent that counts on it must not
// start without it, unless humans show something else in its place. The jail shows a file
// by an overlay, so the installed program shares no lock with it.
func (a *attempt) toolMount() ([]jail.Mount, error) {
	for _, shown := range a.plan.target.ReadOnly {
		if strings.HasPrefix(toolDir+"/", shown+"/") || strings.HasPrefix(shown, toolDir+"/") {
			a.summary.leaveOut(toolDir, fmt.Errorf("target %q shows %s there; the tools are at http://127.0.0.1:%d/mcp", a.manifest.Target, shown, jail.ListenPort))
			return nil, nil
		}
	}
	program, err := filepath.EvalSymlinks(a.cfg.Tool)
	if err != nil {
		return nil, fail(api.ReasonSetup, "%w: put bailiwick-tool beside bailiwick-worker", err)
	}
	return []jail.Mount{{Host: program, Jail: toolDir + "/" + filepath.Base(a.cfg.Tool)}}, nil
}

// channel carries the agent's messages to the service, over the latest connection that
// the service opened. It is an http.RoundTripper, and sends each request once.
type channel struct {
	mu    sync.Mutex
	conn  *http.ClientConn // nil: the service is away; guarded by mu
	fresh chan struct{}    // closed when conn or ended changes; guarded by mu
	ended bool             // guarded by mu
}

func newChannel() *channel { return &channel{fresh: make(chan struct{})} }

// attach makes conn, which the service opened, the connection of the channel.
func (c *channel) attach(conn net.Conn) {
	next, err := egress.Over(conn, channelPing)
	if err != nil {
		_ = conn.Close()
		return
	}
	c.set(next, false)
}

// end closes the channel for good: the agent has ended.
func (c *channel) end() { c.set(nil, true) }

func (c *channel) set(next *http.ClientConn, end bool) {
	c.mu.Lock()
	last := c.conn
	if c.ended {
		last, next = next, nil
	}
	c.conn, c.ended = next, c.ended || end
	close(c.fresh)
	c.fresh = make(chan struct{})
	c.mu.Unlock()
	if last != nil {
		_ = last.Close() // what is out on it fails
	}
}

// RoundTrip sends a message, and waits for the service if it is away.
func (c *channel) RoundTrip(r *http.Request) (*http.Response, error) {
	conn, err := c.await(r.Context())
	if err != nil {
		return nil, err
	}
	resp, err := conn.RoundTrip(r)
	if err == nil {
		resp.Body = &lastBody{resp.Body, func() { c.retire(conn, resp) }}
		c.retire(conn, resp)
	}
	return resp, err
}

// retire stops the use of a connection whose service says that it stops. It will close the
// connection.
func (c *channel) retire(conn *http.ClientConn, resp *http.Response) {
	if resp.Header.Get(record.ToolUndecided) == "" && resp.Trailer.Get(record.ToolUndecided) == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == conn {
		c.conn = nil
	}
}

// lastBody is a body that says when it was read to its end, which has the trailer.
type lastBody struct {
	io.ReadCloser
	read func()
}

func (b *lastBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.read()
	}
	return n, err
}

func (c *channel) await(ctx context.Context) (*http.ClientConn, error) {
	away := time.NewTimer(awayTime)
	defer away.Stop()
	for {
		c.mu.Lock()
		conn, fresh, ended := c.conn, c.fresh, c.ended
		c.mu.Unlock()
		switch {
		case ended:
			return nil, broker.ErrAgentEnded
		case conn != nil && conn.Err() == nil:
			return conn, nil
		}
		select {
		case <-fresh:
		case <-away.C:
			return nil, broker.ErrAway
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
