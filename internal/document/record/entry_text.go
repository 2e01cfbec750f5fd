package record

import (
	"crypto/sha256"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/bailiwick-dev/bailiwick/api"
)

const (
	maxList = 32        // items of a list; with every list full and texts of 256 an entry fits
	maxInt  = 1<<53 - 1 // what every reader of JSON can hold
)

// limits are the longest texts of an entry, in bytes: the next where it would be
// too large. The last fits with every list full.
func limits() []int { return []int{4096, 1024, 256} }

// bounds keep one entry within MaxEntry.
type bounds struct {
	text int // longest text, in bytes as it is encoded
}

// detail returns a copy of d whose texts, lists and numbers are within b.
func (b *bounds) detail(d Detail) Detail {
	v := reflect.New(reflect.TypeOf(d)).Elem()
	v.Set(reflect.ValueOf(d))
	for _, field := range v.Fields() {
		switch f := field.Addr().Interface().(type) {
		case *string:
			*f = b.cut(*f)
		case *[]string:
			*f = b.list(*f)
		case *int64:
			*f = b.number(*f)
		case **ServiceConfig:
			*f = b.config(*f)
		case *[]BudgetClaim:
			*f = b.claims(*f)
		case *[]BudgetSettlement:
			*f = b.settlements(*f)
		}
	}
	return v.Interface().(Detail) //nolint:forcetypeassert // of d's type
}

// cut returns s, or as much of it as fits followed by the length and digest of
// the whole. A text that is not UTF-8 cannot be stored as it is, so it gets them
// too.
func (b *bounds) cut(s string) string {
	n := 0
	for i, r := range s {
		if r == utf8.RuneError && !strings.HasPrefix(s[i:], "\ufffd") {
			return b.cutAs("not UTF-8", s)
		}
		if n += encodedLen(r); n > b.text {
			return b.cutAs("cut", s)
		}
	}
	return s
}

func (b *bounds) cutAs(why, s string) string {
	mark := fmt.Sprintf("...[%s: %d bytes, %s]", why, len(s), api.DigestOf([]byte(s)))
	n := len(mark)
	var out strings.Builder
	for _, r := range s {
		if n += encodedLen(r); n > b.text {
			break
		}
		out.WriteRune(r) // a byte that is not UTF-8 becomes U+FFFD
	}
	return out.String() + mark
}

// list bounds each item and their number.
func (b *bounds) list(items []string) []string {
	if len(items) == 0 {
		return nil
	}
	kept := min(len(items), maxList)
	if len(items) > maxList {
		kept--
	}
	out := make([]string, 0, kept+1)
	for _, s := range items[:kept] {
		out = append(out, b.cut(s))
	}
	if rest := items[kept:]; len(rest) > 0 {
		h := sha256.New()
		for _, s := range rest {
			_, _ = io.WriteString(h, s+"\n") // a hash never fails
		}
		out = append(out, fmt.Sprintf("...[cut: %d more, sha256:%x]", len(rest), h.Sum(nil)))
	}
	return out
}

// CutList returns a list of names as an entry has it.
func CutList(items []string) []string { return (&bounds{text: limits()[0]}).list(items) }

// SameText reports whether two texts of entries are of one text, which each entry
// may have cut.
func SameText(a, b string) bool {
	if len(a) < len(b) {
		a, b = b, a
	}
	if a == b {
		return true
	}
	for _, limit := range limits() {
		x := bounds{text: limit}
		if x.cut(a) == b || x.cut(b) == a {
			return true
		}
	}
	i, j := strings.LastIndex(a, "...["), strings.LastIndex(b, "...[")
	return i >= 0 && j >= 0 && a[i:] == b[j:] && strings.HasPrefix(a[:i], b[:j]) // cut at two limits
}

func (b *bounds) number(n int64) int64 { return max(-maxInt, min(maxInt, n)) }

// encodedLen is how many bytes canon writes for r in a string.
func encodedLen(r rune) int {
	switch {
	case r == '"' || r == '\\' || r == '\b' || r == '\t' || r == '\n' || r == '\f' || r == '\r':
		return 2
	case r >= 0x20 && r < 0x7f:
		return 1
	case r > 0xffff:
		return 12
	}
	return 6
}

// appendASCII writes r, escaped as canon does where it is not printable ASCII.
func appendASCII(b []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	if r >= 0x20 && r < 0x7f {
		return append(b, byte(r))
	}
	var units [2]uint16
	for _, u := range utf16.AppendRune(units[:0], r) {
		b = append(b, '\\', 'u', hex[u>>12], hex[u>>8&15], hex[u>>4&15], hex[u&15])
	}
	return b
}

// Signers says how many must sign a decision: people, each with a key of its own, or keys
// where they have no principals.
func Signers(threshold, keys int64, noun string, owned bool) string {
	of := Plural(keys, noun)
	switch {
	case !owned:
		return fmt.Sprintf("%d of %s", threshold, of)
	case threshold == 1:
		return "1 person of " + of
	}
	return fmt.Sprintf("%d people of %s", threshold, of)
}

// Plural returns n and a regular noun, in the plural unless n is 1: "2 entries".
func Plural[N int | int64 | uint64](n N, noun string) string {
	if n != 1 {
		switch stem, y := strings.CutSuffix(noun, "try"); {
		case y:
			noun = stem + "tries"
		case strings.HasSuffix(noun, "ch"):
			noun += "es"
		default:
			noun += "s"
		}
	}
	return fmt.Sprintf("%d %s", n, noun)
}
