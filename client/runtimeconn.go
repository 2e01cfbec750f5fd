package client

import (
	"context"

	"github.com/bailiwick-dev/bailiwick/api"
)

// RuntimeConn is a Conn without operator calls. A program that serves an AI has a
// connection of this type alone: from it no Operator can be made.
type RuntimeConn struct{ conn *Conn }

// NewRuntime returns a RuntimeConn that connects on its first use.
func NewRuntime(cfg Config) *RuntimeConn { return &RuntimeConn{New(cfg)} }

// Runtime returns the run-time calls, as Conn.Runtime.
func (c *RuntimeConn) Runtime() Runtime { return c.conn.Runtime() }

// Exchange exchanges a token for a session, as Conn.Exchange.
func (c *RuntimeConn) Exchange(ctx context.Context, token string) (api.Session, error) {
	return c.conn.Exchange(ctx, token)
}

// Close closes idle connections.
func (c *RuntimeConn) Close() { c.conn.Close() }
