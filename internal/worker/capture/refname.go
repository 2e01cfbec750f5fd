package capture

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	objectName = regexp.MustCompile(`^[0-9a-f]{4,64}$`)
	fullObject = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
)

// CheckCommitish accepts HEAD, an object name of four or more lower-case
// hexadecimal digits, and the name of a branch or tag, short or from refs/ on. It
// refuses options, ranges, paths, expressions and characters that git refuses in
// a ref.
func CheckCommitish(s string) error {
	bad := func(why string) error {
		return fmt.Errorf("commit %s: %s; want HEAD, a branch, a tag or an object name", Printable(s), why)
	}
	switch {
	case s == "":
		return bad("empty")
	case len(s) > 255:
		return bad("longer than 255 bytes")
	case s[0] == '-':
		return bad("begins with '-'")
	case s == "@" || strings.Contains(s, "@{"):
		return bad("is an expression")
	case strings.Contains(s, ".."):
		return bad("is a range")
	case strings.ContainsAny(s, " ~^:?*[\\\"'`$<>|;&(){}"):
		return bad("has a character that is not allowed in branches and tags")
	case strings.ContainsFunc(s, func(c rune) bool { return c < 0x20 || c == 0x7f || c == 0xFFFD }):
		return bad("has a control character or is not UTF-8")
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".") || strings.HasSuffix(part, ".lock") {
			return bad("is not a valid git ref name")
		}
	}
	return nil
}
