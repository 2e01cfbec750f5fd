package gitexec

import (
	"regexp"
	"strings"

	"github.com/bailiwick-dev/bailiwick/internal/base/visibletext"
)

// remoteName is a name of a remote that a command can have without being an option.
var remoteName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Promisor reports whether this is the configuration of a partial clone (git clone
// --filter), which lacks objects until git fetches them. remote is where from; empty if
// it has no plain name. This package never lets git fetch them.
func (c Config) Promisor() (remote string, partial bool) {
	remote = c.Get("extensions.partialclone")
	partial = remote != ""
	for _, s := range c {
		name, ok := strings.CutPrefix(s.Key, "remote.")
		if name, is := strings.CutSuffix(name, ".promisor"); ok && is && c.True(s.Key) {
			remote, partial = name, true
		}
	}
	if !remoteName.MatchString(remote) {
		remote = ""
	}
	return remote, partial
}

// FetchMissing says how the owner of a partial clone at path gets the objects that it
// lacks. remote is that of Promisor.
func FetchMissing(path, remote string) string {
	command := []string{"git", "-C", path, "fetch", "--refetch", "--no-filter"}
	if remote != "" {
		command = append(command, remote)
	}
	return "fetch all missing objects with: " + visibletext.ShellText(command...) + "; or clone it again without --filter"
}
