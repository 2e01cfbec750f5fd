// Package cuttext shortens text to what a message, a record or a line of a page has room
// for. It never cuts within a character, and a cut that a reader cannot see is marked. It
// reads nothing, keeps nothing, and does not decide which text may be shown.
package cuttext

import (
	"strings"
	"unicode/utf8"
)

// Mark ends a text that was cut.
const Mark = "..."

// Text returns s, or its beginning and Mark: at most n bytes in all. Of a text that is cut,
// bytes that are not UTF-8 are left out. n is at least len(Mark).
func Text(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(Within(s, n-len(Mark)), "") + Mark
}

// Characters is Text for n characters.
func Characters(s string, n int) string {
	cut, count := 0, 0
	for at := range s {
		if count == n-len(Mark) {
			cut = at
		}
		if count++; count > n {
			return s[:cut] + Mark
		}
	}
	return s
}

// Within returns the beginning of s, of at most n bytes, for callers that say themselves
// that it was cut. Text that is not UTF-8 is cut at any byte.
func Within[T ~string | ~[]byte](s T, n int) T {
	if n = max(n, 0); len(s) <= n {
		return s
	}
	for at := n; at >= 0 && at > n-utf8.UTFMax; at-- {
		if utf8.RuneStart(s[at]) {
			return s[:at]
		}
	}
	return s[:n]
}

// Head keeps the first Most bytes of what is written to it.
type Head struct {
	Most int
	kept []byte
	cut  bool
}

// Write never fails.
func (h *Head) Write(p []byte) (int, error) {
	n := min(len(p), h.Most-len(h.kept))
	h.kept, h.cut = append(h.kept, p[:n]...), h.cut || n < len(p)
	return len(p), nil
}

// Bytes returns what was kept, which may end within a character.
func (h *Head) Bytes() []byte { return h.kept }

// Cut reports whether more was written.
func (h *Head) Cut() bool { return h.cut }

// Text returns what was kept, without white space around it.
func (h *Head) Text() string {
	if !h.cut {
		return strings.TrimSpace(string(h.kept))
	}
	return strings.TrimSpace(Text(string(h.kept)+Mark, h.Most))
}
