// Package mcpwire reads messages of the Model Context Protocol strictly, before
// anything else parses them: one JSON value without ambiguity, one JSON-RPC message,
// one of the supported methods. The nine tools and the tools of agents share it.
//
// Its work is bounded by MaxMessage: linear in the bytes of a message.
package mcpwire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
)

// MaxMessage is the largest accepted message in bytes.
const MaxMessage = 1 << 20

// Revisions lists the supported protocol revisions, newest first.
func Revisions() []string { return []string{"2026-07-28", "2025-11-25", "2025-06-18"} }

// Methods lists the supported requests.
func Methods() []string {
	return []string{"initialize", "ping", "server/discover", "tools/list", "tools/call", "subscriptions/listen"}
}

// envelope holds the JSON-RPC members of a message.
type envelope struct {
	version, method             *string
	id, params, result, failure json.RawMessage
}

// envelopeOf reads members by their exact names, as the SDK does; encoding/json
// ignores case.
func envelopeOf(text []byte) (e envelope, err error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return e, err
	}
	e.id, e.params, e.result, e.failure = members["id"], members["params"], members["result"], members["error"]
	for name, into := range map[string]**string{"jsonrpc": &e.version, "method": &e.method} {
		if raw, ok := members[name]; ok {
			*into = new(string)
			if raw[0] != '"' {
				return e, fmt.Errorf("%s is not a string", name)
			}
			err = errors.Join(err, json.Unmarshal(raw, *into))
		}
	}
	return e, err
}

// Message is a strictly read message.
type Message struct {
	Text   []byte // in canonical form
	Method string // "" for a response
	Params json.RawMessage
	ID     json.RawMessage // nil for a notification
}

// Parse refuses, before the SDK sees it, ambiguous JSON and anything but a
// single JSON-RPC message. The error is a *jsonrpc.Error, for ErrorResponse.
func Parse(raw []byte) (Message, error) {
	if len(raw) > MaxMessage {
		return Message{}, Refuse(jsonrpc.CodeInvalidRequest, "the message is larger than 1 MiB")
	}
	if trimmed := bytes.TrimLeft(raw, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '[' {
		return Message{}, Refuse(jsonrpc.CodeInvalidRequest, "batches are not supported: send one message at a time")
	}
	text, err := canon.Canonicalize(raw)
	if err != nil {
		return Message{}, Refuse(jsonrpc.CodeParseError, "not strict JSON: "+cuttext.Text(err.Error(), 500))
	}
	e, err := envelopeOf(text)
	if err != nil {
		return Message{}, Refuse(jsonrpc.CodeInvalidRequest, "not a JSON-RPC message: an object whose jsonrpc and method are strings")
	}
	m := Message{Text: text, Params: e.params, ID: e.id}
	if err := e.check(); err != nil || e.method == nil {
		return m, err
	}
	m.Method = *e.method
	return m, nil
}

func (e *envelope) check() error {
	answer := e.result != nil || e.failure != nil
	switch {
	case e.version == nil || *e.version != "2.0":
		return Refuse(jsonrpc.CodeInvalidRequest, `jsonrpc must be "2.0"`)
	case e.id != nil && !ValidID(e.id):
		return Refuse(jsonrpc.CodeInvalidRequest, "id must be a string or a whole number")
	case e.method == nil && !answer:
		return Refuse(jsonrpc.CodeInvalidRequest, "a message needs a method, a result or an error")
	case e.method != nil && answer:
		return Refuse(jsonrpc.CodeInvalidRequest, "a message has either a method or a result or error, not both")
	case answer && e.id == nil:
		return Refuse(jsonrpc.CodeInvalidRequest, "a response needs the id of its request")
	case e.params != nil && e.params[0] != '{' && string(e.params) != "null":
		return Refuse(jsonrpc.CodeInvalidRequest, "params must be an object")
	case e.method != nil && e.id != nil && !slices.Contains(Methods(), *e.method):
		return Refuse(jsonrpc.CodeMethodNotFound, "method not found: this server has tools only")
	case e.method != nil && e.id == nil && slices.Contains(Methods(), *e.method):
		return Refuse(jsonrpc.CodeInvalidRequest, *e.method+" is a request and needs an id")
	case e.method != nil && (*e.method == "initialize" || *e.method == "tools/call") && (e.params == nil || e.params[0] != '{'):
		return Refuse(jsonrpc.CodeInvalidParams, *e.method+" needs params")
	}
	return nil
}

// ValidID accepts strings and integers that a float64 represents exactly. MCP
// forbids null.
func ValidID(id json.RawMessage) bool {
	var v any
	if err := json.Unmarshal(id, &v); err != nil {
		return false
	}
	switch v := v.(type) {
	case string:
		return true
	case float64:
		return v == math.Trunc(v) && math.Abs(v) < 1<<53
	}
	return false
}

// Refuse returns a *jsonrpc.Error.
func Refuse(code int64, message string) error { return &jsonrpc.Error{Code: code, Message: message} }

// ErrorResponse returns the answer to a refused message. It has the id of the
// message if that is unambiguous, so that the client can match it.
func ErrorResponse(raw []byte, err error) []byte {
	var wire *jsonrpc.Error
	if !errors.As(err, &wire) {
		wire = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error"}
	}
	id := json.RawMessage("null")
	if found, ok := idOf(raw); ok {
		id = found
	}
	b, err := json.Marshal(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   *jsonrpc.Error  `json:"error"`
	}{"2.0", id, wire})
	if err != nil { // cannot happen: all members marshal
		return []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"internal error"}}`)
	}
	return b
}

// idOf returns the id of a message whose params may be invalid.
func idOf(raw []byte) (id json.RawMessage, ok bool) {
	if len(raw) > MaxMessage {
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, false
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, false
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, false
		}
		if name != "id" {
			continue
		}
		canonical, err := canon.Canonicalize(value)
		if id != nil || err != nil || !ValidID(canonical) {
			return nil, false
		}
		id = canonical
	}
	if _, err := dec.Token(); err != nil { // }
		return nil, false
	}
	_, err := dec.Token()
	return id, id != nil && errors.Is(err, io.EOF)
}
