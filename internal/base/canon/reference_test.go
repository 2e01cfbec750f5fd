package canon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// reference is a second implementation of Canonicalize, by way of the decoded
// value and encoding/json's tokenizer. Tests compare the two.
func reference(b []byte) ([]byte, error) {
	v, err := parse(b)
	if err != nil {
		return nil, err
	}
	return appendValue(make([]byte, 0, len(b)), v), nil
}

func parse(b []byte) (any, error) {
	if !utf8.Valid(b) {
		return nil, errors.New("not valid UTF-8")
	}
	if err := checkSurrogates(b); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	v, err := parseValue(dec, 0)
	if errors.Is(err, io.EOF) {
		return nil, errors.New("unexpected end of JSON")
	}
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("data after the JSON value at byte %d", dec.InputOffset())
	}
	return v, nil
}

type member struct {
	name  string
	value any
}

// object is sorted by name.
type object []member

func parseValue(dec *json.Decoder, depth int) (any, error) {
	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}
	delim, ok := tok.(json.Delim)
	if !ok {
		if n, ok := tok.(json.Number); ok {
			return parseNumber(n.String())
		}
		return tok, nil
	}
	if depth == MaxDepth {
		return nil, fmt.Errorf("nested deeper than %d", MaxDepth)
	}
	if delim == '[' {
		return parseArray(dec, depth)
	}
	return parseObject(dec, depth)
}

func parseArray(dec *json.Decoder, depth int) (any, error) {
	list := []any{}
	for dec.More() {
		v, err := parseValue(dec, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err := dec.Token()
	return list, err
}

func parseObject(dec *json.Decoder, depth int) (any, error) {
	obj := object{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name, ok := tok.(string)
		if !ok {
			return nil, fmt.Errorf("member name %v is not a string", tok)
		}
		v, err := parseValue(dec, depth+1)
		if err != nil {
			return nil, err
		}
		obj = append(obj, member{name, v})
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	slices.SortFunc(obj, func(a, b member) int {
		return slices.Compare(utf16.Encode([]rune(a.name)), utf16.Encode([]rune(b.name)))
	})
	for i := 1; i < len(obj); i++ {
		if obj[i].name == obj[i-1].name {
			return nil, fmt.Errorf("duplicate member %q", obj[i].name)
		}
	}
	return obj, nil
}

// checkSurrogates refuses \u escapes that are half of a surrogate pair, which
// encoding/json would silently replace.
func checkSurrogates(b []byte) error {
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' || i+1 >= len(b) {
			continue
		}
		i++
		if b[i] != 'u' {
			continue
		}
		r, ok := escaped(b[i-1:])
		if !ok || !utf16.IsSurrogate(r) {
			continue
		}
		low, ok := escaped(b[min(i+5, len(b)):])
		if !ok || utf16.DecodeRune(r, low) == utf8.RuneError {
			return fmt.Errorf("lone surrogate at byte %d", i-1)
		}
		i += 10
	}
	return nil
}

func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, v)
	case float64:
		return appendNumber(b, v)
	case string:
		return appendString(b, v)
	case []any:
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendValue(b, e)
		}
		return append(b, ']')
	case object:
		b = append(b, '{')
		for i, m := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendString(b, m.name), ':')
			b = appendValue(b, m.value)
		}
		return append(b, '}')
	}
	panic(fmt.Sprintf("canon: %T is not a JSON value", v))
}

func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		b = appendRune(b, r)
	}
	return append(b, '"')
}
