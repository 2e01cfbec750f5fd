package usererror

import (
	"regexp"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
)

// withheld replaces a path of the host.
const withheld = "(a path of this machine)"

// hostPath matches an absolute path where a text can name one: quoted, before
// what the kernel says about it, or up to the next space or mark. Relative paths,
// URLs and fractions are no such paths.
var hostPath = regexp.MustCompile(`"/(?:[^"\\\n]|\\.)+"|(^|[\s'\x60(\[{<=:,;@"])/[^\s/:][^:\n]*?(: (?:no such file or directory|permission denied|is a directory|not a directory|file exists|too many levels of symbolic links|file name too long|read-only file system|no space left on device|input/output error))|(^|[\s'\x60(\[{<=:,;@"])/[^\s/'"\x60:,;)\]}>][^\s'"\x60:,;)\]}>]*`) //nolint:gochecknoglobals // compiled once

// WithoutPaths returns text without absolute paths. What a message says to a
// person who runs the service, an AI has no use for.
func WithoutPaths(text string) string {
	return hostPath.ReplaceAllString(text, "${1}${3}"+withheld+"${2}")
}

// ForAgents returns e without absolute paths, for a caller that need not know
// this machine.
func ForAgents(e *api.Error) *api.Error {
	c := *e
	c.Message, c.Hint = WithoutPaths(c.Message), WithoutPaths(c.Hint)
	c.Problems = slices.Clone(c.Problems)
	for i := range c.Problems {
		c.Problems[i].Message = WithoutPaths(c.Problems[i].Message)
	}
	return &c
}
