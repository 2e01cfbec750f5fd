package mcpserve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/base/mcpwire"
)

// Message is a strictly read message.
type Message struct{ mcpwire.Message }

// Ceiling returns the ceiling that the parameters of initialize declare; nil: none.
func (m Message) Ceiling() (*api.Tier, error) {
	t, err := ceilingOfInitialize(m.Params)
	if err != nil {
		return nil, mcpwire.Refuse(jsonrpc.CodeInvalidParams, "malformed parameters of initialize")
	}
	return t, nil
}

// ParseMessage is mcpwire.Parse, and refuses ceilings where none is read.
func ParseMessage(raw []byte) (Message, error) {
	m, err := mcpwire.Parse(raw)
	if err == nil && m.Method != "" {
		err = checkCeilings(m.Text, m.Method)
	}
	return Message{m}, err
}

// checkCeilings refuses a message that declares a ceiling, in any spelling, in a
// place that is not read: it would have no effect, and the client would rely on
// it. The arguments of a tool are exempt. text is canonical.
func checkCeilings(text []byte, method string) error {
	if low := bytes.ToLower(text); !bytes.Contains(low, []byte("ceiling")) && !bytes.Contains(low, []byte(metaPrefix)) {
		return nil
	}
	var message map[string]any
	if err := json.Unmarshal(text, &message); err != nil {
		return mcpwire.Refuse(jsonrpc.CodeParseError, "not strict JSON")
	}
	if params, ok := message["params"].(map[string]any); ok && method == "tools/call" {
		delete(params, "arguments")
	}
	if name, found := stray(message, nil, method); found {
		return mcpwire.Refuse(jsonrpc.CodeInvalidParams, fmt.Sprintf("%q has no effect there: declare a ceiling as %s, in _meta of a request or in capabilities.experimental", cuttext.Text(name, 64), ceilingKey))
	}
	return nil
}

// stray finds a name that declares a ceiling, or resembles one, where none is
// read.
func stray(v any, path []string, method string) (name string, found bool) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if name, found = stray(e, append(path, "[]"), method); found {
				return name, true
			}
		}
	case map[string]any:
		read := ceilingAllowed(path, method)
		for name, e := range v {
			ours := strings.HasPrefix(strings.ToLower(name), metaPrefix)
			if read && ours {
				continue // declared reads it
			}
			if ours || resemblesCeiling(name) {
				return name, true
			}
			if name, found = stray(e, append(slices.Clip(path), name), method); found {
				return name, true
			}
		}
	}
	return "", false
}

// ceilingAllowed reports whether ceilingOfRequest reads the members of the object
// at path.
func ceilingAllowed(path []string, method string) bool {
	switch strings.Join(path, "\n") {
	case "params\n_meta":
		return !strings.HasPrefix(method, "notifications/")
	case "params\ncapabilities\nexperimental", "params\ncapabilities\nextensions":
		return method == "initialize"
	case "params\n_meta\n" + mcp.MetaKeyClientCapabilities + "\nexperimental", "params\n_meta\n" + mcp.MetaKeyClientCapabilities + "\nextensions":
		return method != "initialize" && !strings.HasPrefix(method, "notifications/")
	}
	return false
}

// resemblesCeiling reports whether a name is consentCeiling in some spelling.
func resemblesCeiling(name string) bool {
	letters := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, strings.ToLower(strings.ToUpper(name))) // folds ſ, too
	return strings.Contains(letters, "consentceiling")
}

// ceilingOfInitialize returns the ceiling that the parameters of initialize
// declare. It compares names exactly: encoding/json ignores case, so another
// spelling of a member would replace it.
func ceilingOfInitialize(params json.RawMessage) (*api.Tier, error) {
	var p map[string]json.RawMessage
	var meta, experimental, extensions map[string]any
	var capabilities map[string]json.RawMessage
	if params == nil {
		return nil, nil //nolint:nilnil // nothing is declared
	}
	err := json.Unmarshal(params, &p)
	for raw, into := range map[string]any{"_meta": &meta, "capabilities": &capabilities} {
		err = errors.Join(err, member(p, raw, into))
	}
	for raw, into := range map[string]any{"experimental": &experimental, "extensions": &extensions} {
		err = errors.Join(err, member(capabilities, raw, into))
	}
	return LowerCeiling(declared(meta), LowerCeiling(declared(experimental), declared(extensions))), err
}

// member reads an optional member.
func member(object map[string]json.RawMessage, name string, into any) error {
	raw, ok := object[name]
	if !ok {
		return nil
	}
	return json.Unmarshal(raw, into)
}
