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

// ceilingKey is where a client declares how far it wants its calls to reach:
// in _meta or in the experimental capabilities, of initialize or of a request.
// The lowest that was declared holds, and what is no tier is the lowest.
const ceilingKey = metaPrefix + "consentCeiling"

// metaPrefix marks the keys that are ours. One that does not exist may be a
// misspelt ceiling, so it counts as one that is malformed.
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
// wants an object.
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

// ceilingOfRequest is what a request declares, itself and through the
// capabilities of its client.
func ceilingOfRequest(req mcp.Request) *api.Tier {
	var lowest *api.Tier
	if p := req.GetParams(); p != nil {
		lowest = declared(p.GetMeta())
		// Also where the rest of it is not as the SDK would have it.
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

// held is the lowest ceiling that sessions of one caller have declared. A
// session that is opened anew does not raise it.
type held struct {
	mu     sync.Mutex
	lowest *api.Tier // guarded by mu
}

// add lowers what is held and returns it.
func (h *held) add(t *api.Tier) *api.Tier {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lowest = LowerCeiling(h.lowest, t)
	return h.lowest
}

// caller is for whom one MCP server speaks: whoever a token stands for, or
// without one the account of this process, or whom a transport has established.
type caller struct {
	held  *held           // nil: the transport holds what sessions declare
	fixed *client.Runtime // of whom the transport has established
	conn  *client.Conn
	token string
	now   func() time.Time

	mu     sync.Mutex
	handle string    // that stands for the token; guarded by mu
	until  time.Time // when it is to be replaced; guarded by mu
}

func (s *Server) callerOf(token string) *caller {
	return &caller{held: new(held), conn: s.cfg.Conn, token: token, now: s.cfg.Now}
}

// runtime returns the service's run-time face for this caller, below a
// ceiling, and the handle that it goes by. After a refusal of old, which was
// one, another is got.
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

// below adds what a session declares, and returns the lowest of all.
func (c *caller) below(t *api.Tier) *api.Tier {
	if c.held == nil {
		return t
	}
	return c.held.add(t)
}
