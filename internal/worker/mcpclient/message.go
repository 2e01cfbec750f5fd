package mcpclient

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
)

// Bounds of what a server sends, in bytes.
const (
	maxMessage = api.MaxToolAnswer + 64<<10
	maxLine    = 64 << 20 // that is skipped if it is longer than maxMessage
	maxWords   = 2 << 10  // of a text of a server in an error
)

// message is a message of a server.
type message struct {
	method         string // "" for an answer
	id             json.RawMessage
	params, result json.RawMessage
	failure        *RefusedError // instead of result
	invalid        error         // why it cannot be read, instead of both
}

func (m message) err() error {
	switch {
	case m.invalid != nil:
		return &InvalidError{m.invalid}
	case m.failure != nil:
		return m.failure
	}
	return nil
}

var errLong = fmt.Errorf("a message of more than %d bytes", maxMessage)

// parse reads one message: a single JSON-RPC message without ambiguity, in canonical
// form from here on.
func parse(raw []byte) (m message, err error) {
	if len(raw) > maxMessage {
		return m, errLong
	}
	text, err := canon.Canonicalize(raw)
	if err != nil {
		return m, fmt.Errorf("not strict JSON: %w", err)
	}
	var version string
	var failure json.RawMessage
	err = members(text, func(name string, value json.RawMessage) error {
		switch name {
		case "jsonrpc":
			version = string(value)
		case "id":
			m.id = value
		case "method":
			return json.Unmarshal(value, &m.method)
		case "params":
			m.params = value
		case "result":
			m.result = value
		case "error":
			failure = value
		}
		return nil
	})
	switch {
	case err != nil:
		return m, errors.New("not a JSON-RPC message")
	case version != `"2.0"`:
		return m, errors.New(`a message whose jsonrpc is not "2.0"`)
	case m.method != "" && (m.result != nil || failure != nil), m.method == "" && (m.result == nil) == (failure == nil):
		return m, errors.New("a message that is not exactly one of request, result and error")
	case m.id != nil && m.id[0] != '"' && !isInteger(m.id) && string(m.id) != "null":
		return m, errors.New("a message whose id is not a string or whole number")
	case m.method == "" && (m.id == nil || m.result != nil && string(m.id) == "null"):
		return m, errors.New("an answer without the id of a request")
	case m.result != nil && m.result[0] != '{':
		return m, errors.New("a result that is not an object")
	}
	if failure != nil {
		m.failure, err = parseFailure(failure)
	}
	return m, err
}

func parseFailure(raw json.RawMessage) (*RefusedError, error) {
	var f RefusedError
	err := members(raw, func(name string, value json.RawMessage) error {
		switch name {
		case "code":
			if !isInteger(value) {
				return errMember
			}
			return json.Unmarshal(value, &f.Code)
		case "message":
			return json.Unmarshal(value, &f.Message)
		}
		return nil
	})
	if err != nil {
		return nil, errors.New("an error without a code and a message")
	}
	f.Message = words(f.Message)
	return &f, nil
}

// words shortens a text of a server to one printable line.
func words(text string) string {
	text = strings.ToValidUTF8(cuttext.Text(text, maxWords), "")
	out := make([]rune, 0, len(text))
	for _, r := range text {
		if !strconv.IsPrint(r) {
			r = ' '
		}
		out = append(out, r)
	}
	return string(bytes.Join(bytes.Fields([]byte(string(out))), []byte(" ")))
}

func isInteger(v json.RawMessage) bool {
	_, err := strconv.ParseInt(string(v), 10, 64)
	return err == nil
}

var errMember = errors.New("a member of another type")

// members calls do with each member of an object in canonical form. It is an error if
// text is another value.
func members(text json.RawMessage, do func(name string, value json.RawMessage) error) error {
	if len(text) == 0 || text[0] != '{' {
		return errMember
	}
	for at := 1; text[at] != '}'; {
		if text[at] == ',' {
			at++
		}
		end := at + after(text[at:])
		name := string(text[at+1 : end-1]) // a name with escapes matches no name here
		at = end + 1
		end = at + after(text[at:])
		if err := do(name, text[at:end]); err != nil {
			return err
		}
		at = end
	}
	return nil
}

// elements calls do with each element of an array in canonical form.
func elements(text json.RawMessage, do func(value json.RawMessage) error) error {
	if len(text) == 0 || text[0] != '[' {
		return errMember
	}
	for at := 1; text[at] != ']'; {
		if text[at] == ',' {
			at++
		}
		end := at + after(text[at:])
		if err := do(text[at:end]); err != nil {
			return err
		}
		at = end
	}
	return nil
}

// after returns where the value at the start of canonical text ends.
func after(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		default: // of a number or word, or between values
			if depth > 0 || i+1 < len(text) && text[i+1] != ',' && text[i+1] != '}' && text[i+1] != ']' {
				continue
			}
		}
		if depth == 0 {
			return i + 1
		}
	}
	return len(text)
}
