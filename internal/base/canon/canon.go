// Package canon is the one encoding of everything that is signed, hashed or
// logged, and the one strict reader of JSON from outside.
//
// The encoding has the shape of RFC 8785 (no white space, members sorted by
// UTF-16 code units, ES6 numbers) with one difference: every character
// outside printable ASCII is written as \uXXXX, so that no terminal, line
// reader or normaliser can change what a signed document or a log line says.
// Equal values have equal bytes.
//
// The reader refuses what two readers could understand differently:
// duplicate members, invalid UTF-8, lone surrogates, numbers that a float64
// cannot represent, nesting beyond MaxDepth, and data after the value.
package canon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf16"
)

// MaxDepth is how deeply arrays and objects may nest.
const MaxDepth = 64

// maxReason is the length of the longest document for which DecodeExact gives a
// reason, which takes many times its length in memory.
const maxReason = 64 << 10

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
	e := encoder{in: b, out: make([]byte, 0, len(b))}
	if !e.value(0) {
		return nil, e.err
	}
	if e.space(); e.at < len(b) {
		return nil, fmt.Errorf("data after the JSON value at byte %d", e.at)
	}
	return e.out, nil
}

// Decode reads the one JSON value in b into what v points to. It refuses
// members without a field of exactly that name.
func Decode(b []byte, v any) error {
	canonical, err := Canonicalize(b)
	if err != nil {
		return err
	}
	var value any
	if err := json.Unmarshal(canonical, &value); err != nil {
		return err
	}
	if unknown := checkMembers(value, reflect.TypeOf(v)); unknown != nil {
		return unknown
	}
	return json.Unmarshal(b, v)
}

// DecodeExact is Decode for a signed or logged document: b must be exactly
// what Marshal returns for the decoded value, so that a value has one spelling.
func DecodeExact(b []byte, v any) error {
	// An unknown member, or any other spelling, would be lost in Marshal.
	if json.Unmarshal(b, v) == nil {
		if again, err := Marshal(v); err == nil && bytes.Equal(b, again) {
			return nil
		}
	}
	if len(b) > maxReason {
		return errors.New("not in canonical form (too long to say where)")
	}
	if err := Decode(b, v); err != nil {
		return err
	}
	return errors.New("not in canonical form")
}

// memoryPerValue is more than what a decoded value takes beside its text, in bytes:
// an empty object in a list of large structs takes the most.
const memoryPerValue = 160

// Memory bounds how many bytes the decoded value of b takes, without decoding it: a
// few bytes of text can take a hundred of memory.
func Memory(b []byte) int64 {
	n := bytes.Count(b, []byte{'{'}) + bytes.Count(b, []byte{'['}) + bytes.Count(b, []byte{','})
	return int64(len(b)) + memoryPerValue*int64(n)
}

// ContentError is an error of Canonicalize whose text quotes the document.
type ContentError struct {
	Reason string // without the quotation
	text   string
}

func (e *ContentError) Error() string { return e.text }

// parseNumber refuses an integer that a float64 cannot represent, because some
// readers preserve it and others do not.
func parseNumber(s string) (float64, error) {
	f, err := strconv.ParseFloat(s, 64)
	whole := !strings.ContainsAny(s, ".eE")
	if err != nil || whole && f != 0 && strconv.FormatFloat(f, 'f', -1, 64) != s {
		return 0, &ContentError{"a number that a float64 cannot represent, such as an integer above 2^53", fmt.Sprintf("number %.40s: beyond what every reader can hold", s)}
	}
	return f, nil
}

// escaped reads the \uXXXX at the start of b.
func escaped(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	v, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(v), err == nil //nolint:gosec // G115: 16 bits
}

// appendNumber writes f as ECMAScript's Number::toString does (RFC 8785).
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
