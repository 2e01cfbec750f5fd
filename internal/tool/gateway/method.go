package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/base/mcpwire"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

const versionHeader = "Mcp-Protocol-Version"

const instructions = `These are the tools of your role. Each call is decided by policy, and logged before it is made.
A result that begins with "denied" is final: the same call is denied again. Do what you can without it, or ask a human with the tool "ask".
A result that begins with "waiting" means that a human has to approve the call first: call again with the same arguments.`

// params are the parameters that the methods read.
type params struct {
	key             string // of the message, from the worker
	again           bool   // an earlier connection brought it, too
	name            *string
	arguments       json.RawMessage
	cursor          *string
	protocolVersion *string         // of initialize
	token           json.RawMessage // for progress
	version         *string         // of the request, in _meta
	capabilities    bool            // _meta has those of the client
	toolsChanged    bool            // of subscriptions/listen: it wants to know when the list changes
}

// answer returns the result of a request, or a *jsonrpc.Error.
func (v *View) answer(ctx context.Context, r *http.Request, m mcpwire.Message, s *stream) (json.RawMessage, error) {
	var p params
	if len(m.Params) > 0 {
		if err := p.read(m.Params); err != nil {
			return nil, mcpwire.Refuse(jsonrpc.CodeInvalidParams, "invalid params: "+err.Error())
		}
	}
	newest, err := checkRevision(r.Header, m.Method, &p)
	if err != nil {
		return nil, err
	}
	s.token, p.key, p.again = p.token, r.Header.Get(record.ToolMessage), r.Method == http.MethodPut
	switch {
	case m.Method == "tools/call":
		result, err := v.call(ctx, &p, s)
		switch {
		case err == nil && newest:
			result = complete(result)
		case err == nil && v.isUnlisted():
			s.notify("notifications/tools/list_changed", struct{}{})
		}
		return result, err
	case m.Method == "subscriptions/listen" && newest:
		return v.listen(ctx, m, &p, s)
	case m.Method == "tools/list" && p.cursor != nil && *p.cursor != "":
		return nil, mcpwire.Refuse(jsonrpc.CodeInvalidParams, "unknown cursor: the list has one page")
	case m.Method == "tools/list":
		return v.list(newest)
	case m.Method == "ping" && !newest:
		return json.RawMessage("{}"), nil
	case m.Method == "initialize" && !newest:
		return json.Marshal(map[string]any{
			"protocolVersion": negotiated(p.protocolVersion), "capabilities": capabilities(), "serverInfo": implementation(), "instructions": instructions,
		})
	case m.Method == "server/discover" && newest:
		return json.Marshal(map[string]any{
			"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "supportedVersions": mcpwire.Revisions(), "capabilities": capabilities(), "instructions": instructions,
			"_meta": map[string]any{mcpwire.MetaServer: implementation()},
		})
	}
	return nil, mcpwire.Refuse(jsonrpc.CodeMethodNotFound, "method not found: this server has tools only")
}

func capabilities() map[string]any {
	return map[string]any{"tools": map[string]bool{"listChanged": true}}
}

func implementation() map[string]string {
	return map[string]string{"name": "bailiwick-tools", "title": "Bailiwick", "version": api.Version()}
}

// negotiated returns the revision that initialize agrees on.
func negotiated(version *string) string {
	revisions := mcpwire.Revisions()
	if version != nil && *version < mcpwire.FirstStateless && slices.Contains(revisions, *version) {
		return *version
	}
	return revisions[slices.IndexFunc(revisions, func(v string) bool { return v < mcpwire.FirstStateless })]
}

// complete adds the type of result that the newest revision wants.
func complete(result json.RawMessage) json.RawMessage {
	const member = `{"resultType":"complete"`
	if string(result) == "{}" {
		return json.RawMessage(member + "}")
	}
	return append([]byte(member+","), result[1:]...)
}

// checkRevision checks the revision that a request says it follows, and reports whether
// it is one without initialize. Those repeat in headers what the body says.
func checkRevision(h http.Header, method string, p *params) (newest bool, err error) {
	header := h.Get(versionHeader)
	if method == "initialize" && header < mcpwire.FirstStateless {
		return false, nil
	}
	if header != "" && !slices.Contains(mcpwire.Revisions(), header) {
		return false, unsupported(header)
	}
	meta := p.version
	if header < mcpwire.FirstStateless {
		if meta != nil {
			return false, mismatch("the header %s is missing or differs from the one in _meta", versionHeader)
		}
		return false, nil
	}
	switch {
	case meta == nil:
		return true, mcpwire.Refuse(jsonrpc.CodeInvalidParams, "the member "+mcpwire.MetaVersion+" of _meta is missing")
	case !p.capabilities:
		return true, mcpwire.Refuse(jsonrpc.CodeInvalidParams, "the member "+mcpwire.MetaClientCapabilities+" of _meta is missing or not an object")
	case *meta != header:
		return true, mismatch("the header %s differs from the one in _meta", versionHeader)
	case h.Get("Mcp-Method") != method:
		return true, mismatch("the header Mcp-Method is missing or differs from the method")
	case method == "tools/call" && p.name != nil && h.Get("Mcp-Name") != *p.name:
		return true, mismatch("the header Mcp-Name is missing or differs from the name of the tool")
	}
	return true, nil
}

func mismatch(format string, args ...any) error {
	return &jsonrpc.Error{Code: mcpwire.CodeHeaderMismatch, Message: fmt.Sprintf(format, args...)}
}

func unsupported(version string) error {
	data, err := json.Marshal(map[string]any{"supported": mcpwire.Revisions(), "requested": cuttext.Text(version, 64)})
	if err != nil {
		return err
	}
	return &jsonrpc.Error{Code: mcpwire.CodeUnsupportedVersion, Message: "unsupported protocol version", Data: data}
}

// read reads members by their exact names; encoding/json ignores case.
func (p *params) read(doc json.RawMessage) error {
	var members, meta map[string]json.RawMessage
	if err := json.Unmarshal(doc, &members); err != nil {
		return errors.New("want an object")
	}
	if raw, ok := members["_meta"]; ok {
		if err := json.Unmarshal(raw, &meta); err != nil {
			return errors.New("_meta is not an object")
		}
	}
	texts := []struct {
		of   map[string]json.RawMessage
		name string
		into **string
	}{{members, "name", &p.name}, {members, "cursor", &p.cursor}, {members, "protocolVersion", &p.protocolVersion}, {meta, mcpwire.MetaVersion, &p.version}}
	for _, t := range texts {
		raw, ok := t.of[t.name]
		if !ok {
			continue
		}
		if err := json.Unmarshal(raw, t.into); err != nil || *t.into == nil {
			return fmt.Errorf("%s is not a string", t.name)
		}
	}
	if raw, ok := members["notifications"]; ok {
		var wanted map[string]json.RawMessage
		if err := json.Unmarshal(raw, &wanted); err != nil {
			return errors.New("notifications is not an object")
		}
		p.toolsChanged = string(wanted["toolsListChanged"]) == "true"
	}
	p.arguments, p.token = members["arguments"], meta["progressToken"]
	p.capabilities = strings.HasPrefix(string(meta[mcpwire.MetaClientCapabilities]), "{")
	if len(p.token) > 0 && !mcpwire.ValidID(p.token) {
		return errors.New("progressToken is neither a string nor a whole number")
	}
	return nil
}
