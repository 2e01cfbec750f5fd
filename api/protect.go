package api

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

const (
	MaxProtects = 50   // of Verify.Protects
	MaxProtect  = 256  // bytes of a pattern
	MaxChanged  = 20   // of VerifyReport.Changed
	MaxFiles    = 1000 // of ResultSummary.Files
)

// Runs returns what reports whether verify is known to run the file of a path: its command
// runs it, or a pattern of Protects matches it. v may be nil.
func (v *Verify) Runs() func(name string) bool {
	if v == nil {
		return func(string) bool { return false }
	}
	programs := v.Command.Programs()
	return func(name string) bool {
		if programs[name] {
			return true
		}
		for _, pattern := range v.Protects {
			if MatchPath(pattern, name) {
				return true
			}
		}
		return false
	}
}

// CheckPattern validates a pattern of MatchPath.
func CheckPattern(pattern string) error {
	switch {
	case pattern == "":
		return errors.New("empty pattern; want a path such as check.sh or tests/**")
	case len(pattern) > MaxProtect:
		return fmt.Errorf("a pattern of %d bytes, the limit is %d", len(pattern), MaxProtect)
	case path.Clean(pattern) != pattern || path.IsAbs(pattern) || pattern == "." || pattern == ".." || strings.HasPrefix(pattern, "../"):
		return fmt.Errorf("pattern %q: want a path below the top of the source, such as check.sh or tests/**, without ., .. and // and without a / at its ends", pattern)
	}
	for part := range strings.SplitSeq(pattern, "/") {
		if _, err := path.Match(part, ""); err != nil {
			return fmt.Errorf("pattern %q: %w", pattern, err)
		}
		if strings.Contains(part, "**") && part != "**" {
			return fmt.Errorf("pattern %q: ** stands alone between slashes, such as tests/**/*.py", pattern)
		}
	}
	return nil
}

// MatchPath reports whether a pattern matches a path or a directory above it. *, ? and
// [...] match within a part of the path, and ** as a part matches any number of parts.
func MatchPath(pattern, name string) bool {
	return matchParts(strings.Split(pattern, "/"), strings.Split(name, "/"))
}

// matchParts compares the parts of a pattern with the first parts of a path. It takes time
// in the product of both: reached says which parts of the path the pattern so far ends at.
func matchParts(pattern, name []string) bool {
	reached := make([]bool, len(name)+1)
	reached[0] = true
	for _, p := range pattern {
		next := make([]bool, len(name)+1)
		for i, yes := range reached {
			switch {
			case !yes && (p != "**" || i == 0 || !next[i-1]):
			case p == "**":
				next[i] = true
			case i < len(name):
				if ok, err := path.Match(p, name[i]); err == nil && ok {
					next[i+1] = true
				}
			}
		}
		reached = next
	}
	for _, yes := range reached {
		if yes {
			return true
		}
	}
	return false
}
