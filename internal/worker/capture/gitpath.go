package capture

import (
	"strings"
	"unicode/utf8"
)

// Modes of git's trees.
const (
	modeFile    = 0o100644
	modeExec    = 0o100755
	modeLink    = 0o120000
	modeGitlink = 0o160000
	modeDir     = 0o040000
)

// pathProblem returns why git would refuse a patch with this path, or "". It
// implements verify_path of git's read-cache.c with core.protectHFS and
// core.protectNTFS, which a fuzz test compares with git.
func pathProblem(p string, mode uint32) string {
	switch {
	case p == "":
		return "the path is empty"
	case strings.IndexByte(p, 0) >= 0:
		return "the path has a NUL"
	}
	for rest, more := p, true; more; {
		name, after, found := strings.Cut(rest, "/")
		switch name {
		case "":
			return "the path has an empty component"
		case ".", "..":
			return `the path has a component "` + name + `"`
		}
		if isDotGit(name) {
			return "a component of the path is .git, or is equivalent to .git on some systems; git refuses such a path"
		}
		if mode == modeLink && isDotGitmodules(name, rest) {
			return "a symbolic link in place of .gitmodules; git refuses such a path"
		}
		rest, more = after, found
	}
	return ""
}

func isDotGit(name string) bool {
	if isHFSName(name, ".git") {
		return true
	}
	for _, i := range ntfsStarts(name) {
		part, _, _ := strings.Cut(name[i:], `\`)
		part, _, _ = strings.Cut(part, ":") // an alternate data stream
		part = asciiLower(strings.TrimRight(part, ". "))
		if part == ".git" || part == "git~1" {
			return true
		}
	}
	return false
}

// isDotGitmodules checks a component together with the rest of the path: on NTFS
// the colon of a stream ends the name.
func isDotGitmodules(name, rest string) bool {
	if isHFSName(name, ".gitmodules") {
		return true
	}
	for _, i := range ntfsStarts(name) {
		if isNTFSGitmodules(rest[i:]) {
			return true
		}
	}
	return false
}

// ntfsStarts returns where names begin in a component on NTFS, where a backslash is
// a separator (except, for git, as the first character).
func ntfsStarts(name string) []int {
	starts := []int{0}
	for i := 1; i < len(name); i++ {
		if name[i] == '\\' {
			starts = append(starts, i+1)
		}
	}
	return starts
}

// isNTFSGitmodules matches .gitmodules, its short names gitmod~1 to gitmod~4 and
// the fall-back short names with its hash, each followed only by spaces and dots
// up to the end or the colon of a stream.
func isNTFSGitmodules(s string) bool {
	low := asciiLower(s)
	if rest, ok := strings.CutPrefix(low, ".gitmodules"); ok {
		return onlySpacesAndDots(rest)
	}
	if rest, ok := strings.CutPrefix(low, "gitmod~"); ok && rest != "" && rest[0] >= '1' && rest[0] <= '4' {
		return onlySpacesAndDots(rest[1:])
	}
	if len(low) < 8 {
		return false
	}
	const hashed = "gi7eba"
	stem, digits, ok := strings.Cut(low[:8], "~")
	if !ok || !strings.HasPrefix(hashed, stem) || digits == "" || digits[0] == '0' || strings.Trim(digits, "0123456789") != "" {
		return false
	}
	return onlySpacesAndDots(low[8:])
}

func onlySpacesAndDots(s string) bool {
	s, _, _ = strings.Cut(s, ":")
	return strings.Trim(s, ". ") == ""
}

// isHFSName reports whether HFS+ treats name as want (ASCII, lower case): it drops
// some code points and folds case. Malformed UTF-8 ends the name, as in git.
func isHFSName(name, want string) bool {
	i := 0
	for len(name) > 0 {
		c, n := utf8.DecodeRuneInString(name)
		if c == utf8.RuneError && n == 1 || c == 0xFFFE || c == 0xFFFF {
			break
		}
		name = name[n:]
		if hfsIgnores(c) {
			continue
		}
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if i == len(want) || c != rune(want[i]) {
			return false
		}
		i++
	}
	return i == len(want)
}

func hfsIgnores(c rune) bool {
	return c >= 0x200c && c <= 0x200f || c >= 0x202a && c <= 0x202e || c >= 0x206a && c <= 0x206f || c == 0xfeff
}

func asciiLower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
