package sourcefetch

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/bailiwick-dev/bailiwick/internal/worker/capture"
)

var (
	objectShape = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`) //nolint:gochecknoglobals // compiled once, never written
	shortObject = regexp.MustCompile(`^[0-9a-f]{4,63}$`)              //nolint:gochecknoglobals // as above
)

func isObject(s string) bool { return objectShape.MatchString(s) }

// checkName accepts what a request may name.
func checkName(name string) error {
	if name == "" {
		return nil
	}
	return capture.CheckCommitish(name)
}

// refsOf returns the refs that a name may be. Exactly one has to exist.
func refsOf(name string) []string {
	switch {
	case name == "" || name == "HEAD":
		return []string{"HEAD"}
	case strings.HasPrefix(name, "refs/"):
		return []string{name}
	}
	return []string{"refs/heads/" + name, "refs/tags/" + name}
}

// found is a ref of the server.
type found struct {
	object string // of the ref: a commit or an annotated tag
	commit string
}

// parseRefs finds a name in the output of git ls-remote.
func parseRefs(out, name string) (f found, err error) {
	ids := map[string]string{}
	for line := range strings.Lines(out) {
		id, ref, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if ok && isObject(id) {
			ids[ref] = id
		}
	}
	n := 0
	for _, ref := range refsOf(name) {
		id, ok := ids[ref]
		if !ok {
			continue
		}
		n++
		f = found{object: id, commit: id}
		if peeled, ok := ids[ref+"^{}"]; ok {
			f.commit = peeled
		}
	}
	switch {
	case n == 1:
		return f, nil
	case n > 1:
		return f, fmt.Errorf("commit %s: both a branch and a tag; use refs/heads/%s or refs/tags/%s", name, name, name)
	case name == "" || name == "HEAD":
		return f, errors.New("the repository has no commit")
	case shortObject.MatchString(name):
		return f, fmt.Errorf("commit %s: no such branch or tag; of a commit give the full name", name)
	}
	return f, fmt.Errorf("commit %s: no such branch or tag", capture.Printable(name))
}
