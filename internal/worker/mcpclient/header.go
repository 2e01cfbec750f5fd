package mcpclient

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
)

// setMethod repeats method, tool and marked arguments of a request in its header, as
// servers of the revision without sessions want it. Older ones ignore that.
func setMethod(header http.Header, m outgoing) {
	if header.Get("Mcp-Protocol-Version") != discovery || m.method == "" {
		return
	}
	header.Set("Mcp-Method", m.method)
	if m.tool == nil {
		return
	}
	header.Set("Mcp-Name", headerText(m.tool.definition.Name))
	setArguments(header, m.tool.definition.InputSchema, m.tool.arguments)
}

// maxMarked bounds how deep the search for marked arguments goes.
const maxMarked = 16

// setArguments sets the headers of arguments that a schema marks with x-mcp-header. The
// schema is the pinned one: a human has seen it.
func setArguments(header http.Header, schema, arguments json.RawMessage) {
	var walk func(schema, value json.RawMessage, depth int)
	walk = func(schema, value json.RawMessage, depth int) {
		_ = members(schema, func(name string, properties json.RawMessage) error {
			if name != "properties" || depth == maxMarked {
				return nil
			}
			return members(properties, func(name string, property json.RawMessage) error {
				argument := member(value, name)
				if argument == nil || property[0] != '{' {
					return nil
				}
				var mark string
				if raw := member(property, "x-mcp-header"); raw != nil && json.Unmarshal(raw, &mark) == nil && isToken(mark) {
					if text, ok := primitive(argument); ok {
						header.Set("Mcp-Param-"+mark, text)
					}
				}
				walk(property, argument, depth+1)
				return nil
			})
		})
	}
	walk(schema, arguments, 0)
}

// member returns a member of an object, or nil.
func member(object json.RawMessage, name string) (found json.RawMessage) {
	_ = members(object, func(n string, value json.RawMessage) error {
		if n == name {
			found = value
		}
		return nil
	})
	return found
}

func isToken(s string) bool {
	return s != "" && strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

// primitive is a text, a truth value or a whole number as a header has it.
func primitive(v json.RawMessage) (string, bool) {
	switch {
	case v[0] == '"':
		var text string
		err := json.Unmarshal(v, &text)
		return headerText(text), err == nil
	case string(v) == "true", string(v) == "false", isInteger(v):
		return string(v), true
	}
	return "", false
}

// headerText encodes what is not plain in a header.
func headerText(text string) string {
	plain := text == strings.TrimSpace(text) && !strings.HasPrefix(text, "=?base64?")
	for _, b := range []byte(text) {
		plain = plain && b >= 0x20 && b < 0x7f
	}
	if plain {
		return text
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(text)) + "?="
}
