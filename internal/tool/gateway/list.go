package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/mcpwire"
	"github.com/bailiwick-dev/bailiwick/internal/tool/toolcall"
)

// list returns the tools of the view that are not closed.
func (v *View) list(newest bool) (json.RawMessage, error) {
	v.mu.Lock()
	v.unlisted = false
	v.mu.Unlock()
	tools, err := v.openTools()
	head := `{"tools":`
	if newest {
		head = `{"cacheScope":"private","resultType":"complete","ttlMs":0,"tools":`
	}
	b := make([]byte, 0, len(head)+len(tools)+1)
	return append(append(append(b, head...), tools...), '}'), err
}

func (v *View) openTools() (json.RawMessage, error) {
	closed := v.closedTools()
	if len(closed) == 0 {
		return v.set.list, nil
	}
	return json.Marshal(slices.DeleteFunc(slices.Clone(v.set.shown), func(t shownTool) bool { return closed[t.Name] }))
}

// closedTools returns the names of tools whose definitions differ from their pins,
// in the sessions of this dispatch.
func (v *View) closedTools() map[string]bool {
	byServer, closed := map[api.Name][]string{}, map[string]bool{}
	for name, t := range v.set.tools {
		if t.Server == "" {
			continue
		}
		names, ok := byServer[t.Server]
		if !ok {
			names = v.g.cfg.Upstream.Closed(toolcall.Owner{Server: t.Server, Revision: v.a.Revision, Dispatch: v.a.Manifest.ID})
			byServer[t.Server] = names
		}
		if slices.Contains(names, t.ToolAllow.Tool) {
			closed[name] = true
		}
	}
	return closed
}

// Listed tells agents that the tools of a server that are closed have changed, in the
// session of a dispatch, or of all for "". It returns at once.
func (g *Gateway) Listed(server api.Name, dispatch api.DispatchID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for v := range g.views {
		if dispatch == "" || dispatch == v.a.Manifest.ID {
			v.listChanged(server)
		}
	}
}

func (v *View) listChanged(server api.Name) {
	for _, t := range v.set.tools {
		if t.Server == server {
			v.mu.Lock()
			v.unlisted = true
			close(v.changed)
			v.changed = make(chan struct{})
			v.mu.Unlock()
			return
		}
	}
}

// isUnlisted reports whether the list has changed since an agent read it. Agents of the
// revisions before subscriptions are told so with the answers to their calls.
func (v *View) isUnlisted() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.unlisted
}

// listen tells an agent each time that the list of its tools changes, until it or its
// attempt ends.
func (v *View) listen(ctx context.Context, m mcpwire.Message, p *params, s *stream) (json.RawMessage, error) {
	meta := map[string]json.RawMessage{"io.modelcontextprotocol/subscriptionId": m.ID}
	v.mu.Lock()
	changed := v.changed
	v.mu.Unlock()
	s.notify("notifications/subscriptions/acknowledged", map[string]any{"_meta": meta, "notifications": map[string]bool{"toolsListChanged": p.toolsChanged}})
	if p.again && p.toolsChanged { // an earlier service may have known more
		s.notify("notifications/tools/list_changed", map[string]any{"_meta": meta})
	}
	for p.toolsChanged && s.room() && ctx.Err() == nil {
		select {
		case <-changed:
			v.mu.Lock()
			changed = v.changed
			v.mu.Unlock()
			s.notify("notifications/tools/list_changed", map[string]any{"_meta": meta})
		case <-ctx.Done():
		}
	}
	if errors.Is(context.Cause(ctx), errStopping) {
		return nil, errUndecided // the next service continues
	}
	return json.Marshal(map[string]any{"_meta": meta, "resultType": "complete"})
}
