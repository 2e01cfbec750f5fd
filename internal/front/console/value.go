package console

import (
	"encoding/json"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
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
		if !utf8.Valid(text) {
			return v, api.Errorf(api.CodeInvalid, "%s %s: the file is not UTF-8 text", flag, key)
		}
		v.Text = string(text)
	default:
		v.Text = rest
	}
	return v, nil
}
