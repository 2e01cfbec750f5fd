package mcpserve

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

// ceilingKey is the key under which a client declares the highest tier that its
// calls may have: in _meta or in the experimental capabilities, of initialize or of
// a request. The lowest declared tier applies; an invalid one counts as the lowest.
const ceilingKey = metaPrefix + "consentCeiling"

// metaPrefix marks Bailiwick's keys. An unknown one may be a misspelt ceiling, so it
// counts as an invalid ceiling.
const metaPrefix = "io.bailiwick/"

// RenewBefore is how long before it expires a session handle is replaced: longer
// than a call waits, so that no call outlives its handle.
const RenewBefore = (maxWait + 10) * time.Second

// LowerCeiling returns the lower of two ceilings; nil means none declared.
func LowerCeiling(a, b *api.Tier) *api.Tier {
	if a == nil || b != nil && *b < *a {
		return b
	}
	return a
}

// declared returns the ceiling that these keys declare.
func declared(meta map[string]any) *api.Tier {
	var lowest *api.Tier
	for key, value := range meta {
		if strings.HasPrefix(strings.ToLower(key), metaPrefix) {
			t := ceilingOf(key, value)
			lowest = LowerCeiling(lowest, &t)
		}
	}
	return lowest
}

// ceilingOf reads "reversible", or {"ceiling": "reversible"} where the protocol
// requires an object.
func ceilingOf(key string, value any) api.Tier {
	if m, ok := value.(map[string]any); ok && len(m) == 1 {
		value = m["ceiling"]
	}
	text, _ := value.(string)
	t, err := api.ParseTier(text)
	if err != nil || key != ceilingKey {
		return api.Observe
	}
	return t
}

// ceilingOfRequest returns the ceiling that a request declares, itself and through
// the capabilities of its client.
func ceilingOfRequest(req mcp.Request) *api.Tier {
	var lowest *api.Tier
	if p := req.GetParams(); p != nil {
		lowest = declared(p.GetMeta())
		// Read it even if the SDK cannot decode its siblings.
		of, _ := p.GetMeta()[mcp.MetaKeyClientCapabilities].(map[string]any)
		for _, name := range []string{"experimental", "extensions"} {
			keys, _ := of[name].(map[string]any)
			lowest = LowerCeiling(lowest, declared(keys))
		}
	}
	var capabilities *mcp.ClientCapabilities
	switch req := req.(type) {
	case *mcp.ServerRequest[*mcp.InitializeParams]:
		capabilities = req.Params.Capabilities
	case *mcp.CallToolRequest:
		capabilities = req.ClientCapabilities()
	}
	if capabilities != nil {
		lowest = LowerCeiling(lowest, declared(capabilities.Experimental))
		lowest = LowerCeiling(lowest, declared(capabilities.Extensions))
	}
	return lowest
}

// sessionCeiling is the lowest ceiling that sessions of one caller have declared.
// A new session does not raise it.
type sessionCeiling struct {
	mu     sync.Mutex
	lowest *api.Tier // guarded by mu
}

// lower applies a declaration, nil for none, and returns the ceiling.
func (s *sessionCeiling) lower(t *api.Tier) *api.Tier {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lowest = LowerCeiling(s.lowest, t)
	return s.lowest
}

// caller is the principal that an MCP server acts for: that of a token, without one
// the account of this process, or the one that a transport has authenticated.
type caller struct {
	session *sessionCeiling // nil: the transport keeps what sessions declare
	fixed   *client.Runtime // of a caller that the transport has authenticated
	conn    *client.RuntimeConn
	token   string
	now     func() time.Time

	mu     sync.Mutex
	handle string    // of the token; guarded by mu
	until  time.Time // when to replace handle; guarded by mu
}

func (s *Server) newCaller(token string) *caller {
	return &caller{session: new(sessionCeiling), conn: s.cfg.Conn, token: token, now: s.cfg.Now}
}

// runtime returns the run-time API for this caller under a ceiling, and the handle
// that it uses. It replaces the handle old, which the service refused.
func (c *caller) runtime(ctx context.Context, ceiling *api.Tier, old string) (client.Runtime, string, error) {
	if c.fixed != nil {
		return c.fixed.With("", ceiling), "", nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token != "" && (c.handle == "" || c.handle == old || !c.now().Before(c.until)) {
		session, err := c.conn.Exchange(ctx, c.token)
		if err != nil {
			return client.Runtime{}, "", err
		}
		c.handle, c.until = session.Handle, session.ExpiresAt.Add(-RenewBefore)
	}
	return c.conn.Runtime().With(c.handle, ceiling), c.handle, nil
}

// ceiling applies what a session declares, and returns the lowest of all.
func (c *caller) ceiling(t *api.Tier) *api.Tier {
	if c.session == nil {
		return t
	}
	return c.session.lower(t)
}
