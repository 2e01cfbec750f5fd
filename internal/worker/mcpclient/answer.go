package mcpclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// Call is one call of a tool.
type Call struct {
	Definition *api.ToolDefinition // the pinned one
	Arguments  json.RawMessage
	Progress   func(text string) // in the server's words; nil: none
}

// Answer is what a tool returned.
type Answer struct {
	Result     json.RawMessage // a canonical CallToolResult
	Structured json.RawMessage // of Result; nil: none
	IsError    bool            // the tool says that it failed
}

// Call calls a tool. The error is an *UnsentError if the call did not reach the server,
// and a *RefusedError if the server answers one.
func (s *Session) Call(ctx context.Context, c Call) (Answer, error) {
	name, err := json.Marshal(c.Definition.Name)
	if err != nil {
		return Answer{}, &UnsentError{err}
	}
	result, err := s.ask(ctx, "tools/call", func(id int64) []byte {
		text := bytes.NewBuffer(make([]byte, 0, len(c.Arguments)+512))
		token := ""
		if c.Progress != nil {
			token = fmt.Sprintf(`"progressToken":%d`, id)
		}
		switch {
		case s.revision == discovery && token != "":
			fmt.Fprintf(text, `{"_meta":%s,`, meta(","+token))
		case s.revision == discovery:
			fmt.Fprintf(text, `{"_meta":%s,`, meta(""))
		case token != "":
			fmt.Fprintf(text, `{"_meta":{%s},`, token)
		default:
			text.WriteByte('{')
		}
		fmt.Fprintf(text, `"arguments":%s,"name":%s}`, c.Arguments, name)
		return text.Bytes()
	}, &toolCall{c.Definition, c.Arguments}, c.Progress)
	if err != nil {
		return Answer{}, err
	}
	a, err := answerOf(result)
	if err != nil {
		return Answer{}, &InvalidError{err}
	}
	return a, nil
}

// InvalidError says that an answer cannot be read, or is invalid in the protocol. The
// tool may have had its effect.
type InvalidError struct{ Err error }

// Reason says what is wrong. It has no text from the server.
func (e *InvalidError) Reason() string {
	if quoted, ok := errors.AsType[*canon.ContentError](e.Err); ok {
		return quoted.Reason
	}
	return e.Err.Error()
}

func (e *InvalidError) Error() string { return "the answer is invalid: " + e.Err.Error() }
func (e *InvalidError) Unwrap() error { return e.Err }

// answerOf builds the answer of the parts of a result that the protocol knows. Links and
// embedded resources pass as data: nobody here follows them.
func answerOf(result json.RawMessage) (a Answer, err error) {
	content := []byte("[]")
	err = members(result, func(name string, value json.RawMessage) error {
		switch name {
		case "content":
			content, err = cleanContent(value)
			return err
		case "structuredContent":
			if value[0] != '{' {
				return errors.New("its structuredContent is not an object")
			}
			a.Structured = value
		case "isError":
			if string(value) != "true" && string(value) != "false" {
				return errors.New("its isError is neither true nor false")
			}
			a.IsError = string(value) == "true"
		case "resultType":
			if string(value) != `"complete"` {
				return errors.New("the server requests input for a call, which this client does not support")
			}
		}
		return nil
	})
	if err != nil {
		return Answer{}, err
	}
	out := bytes.NewBuffer(make([]byte, 0, len(content)+len(a.Structured)+64))
	out.WriteString(`{"content":`)
	out.Write(content)
	if a.IsError {
		out.WriteString(`,"isError":true`)
	}
	if a.Structured != nil {
		at := out.Len() + len(`,"structuredContent":`)
		out.WriteString(`,"structuredContent":`)
		out.Write(a.Structured)
		out.WriteByte('}')
		a.Result = out.Bytes()
		a.Structured = a.Result[at : len(a.Result)-1]
	} else {
		out.WriteByte('}')
		a.Result = out.Bytes()
	}
	if len(a.Result) > api.MaxToolAnswer {
		return Answer{}, fmt.Errorf("it has %d bytes in canonical form, the limit is %d", len(a.Result), api.MaxToolAnswer)
	}
	return a, nil
}

// member kinds of a content block.
type kind byte

const (
	text   kind = '"'
	object kind = '{'
	number kind = '0'
)

// block says which members a content block has: those with true must be there.
type block struct {
	must, may map[string]kind
}

func blockOf(name string) (block, bool) {
	switch name {
	case `"text"`:
		return block{map[string]kind{"text": text}, map[string]kind{"annotations": object}}, true
	case `"image"`, `"audio"`:
		return block{map[string]kind{"data": text, "mimeType": text}, map[string]kind{"annotations": object}}, true
	case `"resource_link"`:
		return block{map[string]kind{"name": text, "uri": text}, map[string]kind{"annotations": object, "description": text, "mimeType": text, "size": number, "title": text}}, true
	case `"resource"`:
		return block{map[string]kind{"resource": object}, map[string]kind{"annotations": object}}, true
	}
	return block{}, false
}

// cleanContent returns content blocks with the members that the protocol knows.
func cleanContent(raw json.RawMessage) ([]byte, error) {
	out := bytes.NewBuffer(make([]byte, 0, len(raw)))
	out.WriteByte('[')
	err := elements(raw, func(value json.RawMessage) error {
		if out.Len() > 1 {
			out.WriteByte(',')
		}
		return cleanBlock(out, value)
	})
	if err != nil {
		return nil, err
	}
	out.WriteByte(']')
	return out.Bytes(), nil
}

func cleanBlock(out *bytes.Buffer, value json.RawMessage) error {
	if value[0] != '{' {
		return errors.New("a content block that is not an object")
	}
	name := member(value, "type")
	want, ok := blockOf(string(name))
	if !ok {
		return errors.New("a content block of unknown type")
	}
	found := 0
	out.WriteByte('{')
	err := members(value, func(member string, v json.RawMessage) error {
		k, must := want.must[member]
		if !must {
			k, ok = want.may[member]
		}
		switch {
		case member == "type":
		case !must && !ok:
			return nil
		case k != kindOf(v):
			return fmt.Errorf("a content block of type %s whose %s is of another type", name, member)
		case must:
			found++
		}
		if out.Bytes()[out.Len()-1] != '{' {
			out.WriteByte(',')
		}
		out.WriteString(`"` + member + `":`)
		out.Write(v)
		return nil
	})
	if err == nil && found != len(want.must) {
		err = fmt.Errorf("a content block of type %s that lacks a member", name)
	}
	out.WriteByte('}')
	return err
}

func kindOf(v json.RawMessage) kind {
	if v[0] == '-' || v[0] >= '0' && v[0] <= '9' {
		return number
	}
	return kind(v[0])
}
