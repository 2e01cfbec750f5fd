package capture

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/bailiwick-dev/bailiwick/internal/base/visibletext"
)

// ErrNoCommit means that a source has no commit of that name.
var ErrNoCommit = errors.New("no such commit")

// Resolve returns the full object name of the commit that commitish, which is
// untrusted text, names in s: HEAD, a branch, a tag or an object name. A name that
// is both a branch and a tag is refused. scratch is a directory for temporary
// files; "" means the system's.
func (s *Source) Resolve(ctx context.Context, commitish, scratch string) (string, error) {
	commit, _, err := s.ResolveTree(ctx, commitish, scratch)
	return commit, err
}

// ResolveTree is Resolve, and also returns the object name of the tree of the commit.
func (s *Source) ResolveTree(ctx context.Context, commitish, scratch string) (commit, tree string, err error) {
	if err := CheckCommitish(commitish); err != nil {
		return "", "", err
	}
	defer wrap(&err, fmt.Sprintf("source %s: commit %s", Printable(s.path), Printable(commitish)))
	id, err := s.lookUp(commitish)
	if err != nil {
		return "", "", err
	}
	// Objects are read through a temporary repository of ours.
	dir, err := os.MkdirTemp(scratch, "resolve-")
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // at worst an empty repository is left in a temporary directory
	r, err := s.CreateRepo(filepath.Join(dir, "repo"))
	if err != nil {
		return "", "", err
	}
	commit, tree, err = r.peel(ctx, id)
	switch {
	case errors.Is(err, errMissing):
		err = fmt.Errorf("%w: %w%s", ErrNoCommit, err, s.shallow())
	case err == nil && commit == "":
		err = fmt.Errorf("%w: is a tree", ErrNoCommit)
	}
	return commit, tree, err
}

// shallow says, of a shallow clone, how to get the commits that it lacks; else it is empty.
func (s *Source) shallow() string {
	if _, err := os.Stat(filepath.Join(s.common, "shallow")); err != nil {
		return ""
	}
	return fmt.Sprintf("; %s is a shallow clone (git clone --depth); get the rest of its history with: %s", Printable(s.path), visibletext.ShellText("git", "-C", s.path, "fetch", "--unshallow"))
}

// lookUp returns the object name, possibly abbreviated, of a commitish.
func (s *Source) lookUp(name string) (string, error) {
	if fullObject.MatchString(name) {
		return name, nil
	}
	if name == "HEAD" || strings.HasPrefix(name, "refs/") {
		return s.ref(name, 0)
	}
	var found []string
	for _, kind := range []string{"refs/heads/", "refs/tags/"} {
		switch id, err := s.ref(kind+name, 0); {
		case err == nil:
			found = append(found, id)
		case !errors.Is(err, ErrNoCommit):
			return "", err
		}
	}
	switch {
	case len(found) == 2:
		return "", fmt.Errorf("both a branch and a tag; use refs/heads/%s or refs/tags/%s", name, name)
	case len(found) == 1:
		return found[0], nil
	case objectName.MatchString(name):
		return name, nil
	}
	return "", ErrNoCommit
}

// ref reads a ref of the files backend, following symbolic refs.
func (s *Source) ref(name string, depth int) (string, error) {
	if depth > 5 {
		return "", fmt.Errorf("%s: too many nested symbolic refs", Printable(name))
	}
	dir := s.common
	if name == "HEAD" {
		dir = s.gitDir
	}
	value, err := s.looseRef(dir, name)
	if errors.Is(err, fs.ErrNotExist) && name != "HEAD" {
		return s.packedRef(name)
	}
	if err != nil {
		return "", err
	}
	if target, ok := strings.CutPrefix(value, "ref:"); ok {
		target = strings.TrimSpace(target)
		if err := CheckCommitish(target); err != nil || !strings.HasPrefix(target, "refs/") {
			return "", fmt.Errorf("%s: symbolic ref to an invalid ref", Printable(name))
		}
		return s.ref(target, depth+1)
	}
	if !fullObject.MatchString(value) {
		return "", fmt.Errorf("%s: invalid ref", Printable(name))
	}
	return value, nil
}

// looseRef reads the file of a ref below dir. It does not follow symbolic links out
// of the repository.
func (s *Source) looseRef(dir, name string) (string, error) {
	f, err := s.open(dir, name)
	if err != nil {
		if errors.Is(err, syscall.ENOTDIR) {
			return "", fs.ErrNotExist
		}
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read
	st, err := f.Stat()
	if err != nil {
		return "", err
	}
	if st.IsDir() {
		return "", fs.ErrNotExist
	}
	if !st.Mode().IsRegular() {
		return "", fmt.Errorf("%s: not a regular file", Printable(name))
	}
	b := make([]byte, 1024)
	n, err := f.Read(b)
	if n == 0 && err != nil {
		return "", fmt.Errorf("%s: empty", Printable(name))
	}
	return strings.TrimSpace(string(b[:n])), nil
}

func (s *Source) packedRef(name string) (string, error) {
	b, err := s.read(s.common, "packed-refs")
	if errors.Is(err, fs.ErrNotExist) {
		return "", ErrNoCommit
	}
	if err != nil {
		return "", err
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if id, ref, ok := strings.Cut(line, " "); ok && ref == name && fullObject.MatchString(id) {
			return id, nil
		}
	}
	return "", ErrNoCommit
}
