// Package canon is the one encoding of everything that is signed, hashed or
// logged, and the one strict reader of JSON that comes from outside.
//
// The encoding has the shape of RFC 8785 (no white space, members sorted by
// UTF-16 code units, ES6 numbers) with one difference: every character
// outside printable ASCII is written as \uXXXX, so that no terminal, line
// reader or normaliser can change what a signed document or a log line says.
// Equal values have equal bytes.
//
// The reader refuses what two readers could understand differently:
// duplicate members, invalid UTF-8, lone surrogates, numbers that a float64
// cannot hold, nesting beyond MaxDepth, and anything after the value.
package canon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is how deeply arrays and objects may nest.
const MaxDepth = 64

// Marshal returns the canonical encoding of v, which may be anything that
// encoding/json can marshal.
func Marshal(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return Canonicalize(b)
}

// Canonicalize returns the canonical encoding of the one JSON value in b.
func Canonicalize(b []byte) ([]byte, error) {
	if out, ok := direct(b); ok {
		return out, nil
	}
	return byTree(b) // which says why
}

// maxReason is how long a document may be for DecodeExact to say why it is
// refused: to find out takes many times its length in memory.
const maxReason = 1 << 20

// byTree is Canonicalize by way of the value. It is slow, and what the fast way
// is held against.
func byTree(b []byte) ([]byte, error) {
	v, err := parse(b)
	if err != nil {
		return nil, err
	}
	return appendValue(make([]byte, 0, len(b)), v), nil
}

// Decode reads the one JSON value in b into what v points to. Members that it
// has no field for, spelt exactly so, are refused by name.
func Decode(b []byte, v any) error {
	value, err := parse(b)
	if err != nil {
		return err
	}
	if err := checkMembers(value, reflect.TypeOf(v), ""); err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// DecodeExact is Decode for a signed or logged document: b must be exactly
// what Marshal makes of the value that it holds, so that one value has one
// spelling.
func DecodeExact(b []byte, v any) error {
	// What Marshal makes of the value can be b only if b is all that Decode wants;
	// where it is not, Decode says why.
	if json.Unmarshal(b, v) == nil {
		if again, err := Marshal(v); err == nil && bytes.Equal(b, again) {
			return nil
		}
	}
	if len(b) > maxReason {
		return errors.New("not in canonical form, and too long to say where")
	}
	if err := Decode(b, v); err != nil {
		return err
	}
	again, err := Marshal(v)
	if err != nil {
		return err
	}
	if !bytes.Equal(b, again) {
		return errors.New("not in canonical form")
	}
	return nil
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

// parseNumber refuses an integer that a float64 would change, because some
// readers keep it and others do not.
func parseNumber(s string) (float64, error) {
	f, err := strconv.ParseFloat(s, 64)
	whole := !strings.ContainsAny(s, ".eE")
	if err != nil || whole && f != 0 && strconv.FormatFloat(f, 'f', -1, 64) != s {
		return 0, fmt.Errorf("number %.40s: beyond what every reader can hold", s)
	}
	return f, nil
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
// encoding/json would replace in silence.
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

// escaped reads the \uXXXX at the start of b.
func escaped(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	v, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(v), err == nil //nolint:gosec // G115: 16 bits
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

// appendNumber writes f as ECMAScript's Number::toString does, which is what
// RFC 8785 asks for.
func appendNumber(b []byte, f float64) []byte {
	if f == 0 {
		return append(b, '0') // also for -0
	}
	if a := math.Abs(f); a >= 1e-6 && a < 1e21 {
		return strconv.AppendFloat(b, f, 'f', -1, 64)
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	mantissa, exp, _ := strings.Cut(s, "e")
	return append(b, mantissa+"e"+exp[:1]+strings.TrimLeft(exp[1:], "0")...)
}

func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		b = appendRune(b, r)
	}
	return append(b, '"')
}

func appendRune(b []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	switch {
	case r == '"' || r == '\\':
		return append(b, '\\', byte(r))
	case r >= 0x20 && r < 0x7f:
		return append(b, byte(r))
	case r == '\b':
		return append(b, `\b`...)
	case r == '\t':
		return append(b, `\t`...)
	case r == '\n':
		return append(b, `\n`...)
	case r == '\f':
		return append(b, `\f`...)
	case r == '\r':
		return append(b, `\r`...)
	}
	for _, u := range utf16.AppendRune(nil, r) {
		b = append(b, '\\', 'u', hex[u>>12], hex[u>>8&15], hex[u>>4&15], hex[u&15])
	}
	return b
}
