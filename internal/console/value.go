package console

import (
	"encoding/json"
	"io"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
)

// Value is what a flag such as --set gives to a key: KEY=TEXT, KEY:=JSON, or
// KEY@FILE for the text of a file.
type Value struct {
	Key  string
	Text string
	JSON json.RawMessage // of KEY:=JSON; nil for a text
}

// Raw is the value as JSON.
func (v Value) Raw() json.RawMessage {
	if v.JSON != nil {
		return v.JSON
	}
	b, _ := json.Marshal(v.Text) // a text always encodes
	return b
}

// ParseValue reads an argument of a flag. KEY@- reads standard input.
func ParseValue(flag, s string, stdin io.Reader) (Value, error) {
	i := strings.IndexAny(s, "=@")
	key, isJSON := "", false
	if i > 0 {
		key = s[:i]
		if s[i] == '=' {
			key, isJSON = strings.CutSuffix(key, ":")
		}
	}
	if key == "" {
		return Value{}, api.Errorf(api.CodeInvalid, "%s %.80q: want KEY=TEXT, KEY:=JSON or KEY@FILE", flag, s)
	}
	v, rest := Value{Key: key}, s[i+1:]
	switch {
	case isJSON:
		doc, err := canon.Canonicalize([]byte(rest))
		if err != nil {
			return v, api.Errorf(api.CodeInvalid, "%s %.80q: not valid JSON: %w", flag, s, err).WithHint("for text: %s %s=TEXT", flag, key)
		}
		v.JSON = doc
	case s[i] == '@':
		if rest != "-" {
			rest = "@" + rest
		}
		text, err := ReadInput(rest, stdin)
		if err != nil {
			return v, api.Errorf(api.CodeInvalid, "%s %s: %w", flag, key, err)
		}
		v.Text = string(text)
	default:
		v.Text = rest
	}
	return v, nil
}

// ExampleInput returns the flags of dispatch run that give what the JSON Schema of an
// input requires. A text is TEXT, to be replaced.
func ExampleInput(schema json.RawMessage) (flags []string) {
	var s struct {
		Required   []string `json:"required"`
		Properties map[string]struct {
			Type    any   `json:"type"`
			Enum    []any `json:"enum"`
			Minimum any   `json:"minimum"`
		} `json:"properties"`
	}
	if json.Unmarshal(schema, &s) != nil {
		return nil
	}
	input, texts := map[string]any{}, true
	for _, name := range s.Required {
		member := s.Properties[name]
		value := any("TEXT")
		switch {
		case len(member.Enum) > 0:
			value = member.Enum[0]
		case member.Type == "integer" || member.Type == "number":
			if value = member.Minimum; value == nil {
				value = 1
			}
		case member.Type == "boolean":
			value = true
		case member.Type == "array":
			value = []any{}
		case member.Type == "object":
			value = map[string]any{}
		}
		text, ok := value.(string)
		texts = texts && ok
		input[name], flags = value, append(flags, "--set", name+"="+text)
	}
	if texts {
		return flags
	}
	b, err := json.Marshal(input)
	if err != nil {
		return nil
	}
	return []string{"--input", string(b)}
}
