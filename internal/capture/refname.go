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

// checkCommitish accepts HEAD, an object name in lower-case hexadecimal (four
// digits or more), and the name of a branch or tag, short or from refs/ on.
// It accepts nothing that git would take for an option, a range, a path or an
// expression, and no character that git refuses in a ref.
func checkCommitish(s string) error {
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
		return bad("has a character that no branch or tag of ours may have")
	case strings.ContainsFunc(s, func(c rune) bool { return c < 0x20 || c == 0x7f || c == 0xFFFD }):
		return bad("has a control character or is not UTF-8")
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".") || strings.HasSuffix(part, ".lock") {
			return bad("is not a name that git allows")
		}
	}
	return nil
}
