package capture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/bailiwick-dev/bailiwick/internal/base/gitexec"
	"github.com/bailiwick-dev/bailiwick/internal/base/ownedpath"
)

// Source is a repository that workspaces start from. It is not trusted: its refs
// are read here as text, its objects by git through a Repo of ours, and its
// configuration only as data.
type Source struct {
	path    string // as configured
	gitDir  string // HEAD is here
	common  string // refs and objects are here; differs in a linked work tree
	objects string
	owner   uint32   // of everything above
	lent    []string // every directory that git reads objects from, of the same owner
	whole   bool
	format  string // sha1 or sha256
	partial bool   // a partial clone: objects may be missing
	remote  string // that a partial clone would fetch from; may be empty
}

// OpenSource opens the repository at an absolute path: a work tree, a linked work
// tree or a bare repository. Every directory that provides objects must belong to
// the owner of that path, so that a repository cannot expose, through us, objects
// of another that its owner may not read. Git is kept to these directories unless
// they are this account's own, and every other file is opened below one of them.
func OpenSource(ctx context.Context, repoPath string) (_ *Source, err error) {
	defer wrap(&err, "source "+Printable(repoPath))
	if !filepath.IsAbs(repoPath) {
		return nil, errors.New("the path is not absolute")
	}
	s := &Source{path: repoPath}
	real, owner, err := ownedpath.Resolve(repoPath)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("not a git repository: %w", err)
	}
	if err != nil {
		return nil, err
	}
	s.owner = owner
	if s.gitDir, s.common, err = gitexec.FindWith(real, s.readOwned); err != nil {
		return nil, err
	}
	s.objects = filepath.Join(s.common, "objects")
	if err := s.checkOwner(real); err != nil {
		return nil, err
	}
	s.whole = real == filepath.Clean(repoPath) && s.within(real)
	return s, s.readFormat(ctx)
}

// Whole reports whether all of the repository lies below its path, so that a process that is shown the path alone has it all.
func (s *Source) Whole() bool { return s.whole }

func (s *Source) within(real string) bool {
	for _, dir := range append([]string{s.gitDir, s.common}, s.lent...) {
		to, err := filepath.EvalSymlinks(dir)
		for _, at := range []string{dir, to} {
			if rel, relErr := filepath.Rel(real, at); err != nil || relErr != nil || !filepath.IsLocal(rel) {
				return false
			}
		}
	}
	return true
}

// readOwned reads a file that names directories of the repository, and so belongs to its owner.
func (s *Source) readOwned(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0) //nolint:gosec // G304: its owner is checked
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	if err := s.owns(f); err != nil {
		return nil, err
	}
	return gitexec.Read(f)
}

// owns refuses what is open and belongs to another account than the repository.
func (s *Source) owns(f interface{ Stat() (fs.FileInfo, error) }) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	uid, err := ownedpath.Of(st)
	if err == nil && uid != s.owner {
		err = fmt.Errorf("%s belongs to user %d and the repository to user %d; give both one owner", Printable(st.Name()), uid, s.owner)
	}
	return err
}

// open opens a file below dir, a directory of the owner. No symbolic link leads out of it.
func (s *Source) open(dir, name string) (*os.File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // only read
	top, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer top.Close() //nolint:errcheck // only read
	if err := s.owns(top); err != nil {
		return nil, err
	}
	return root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
}

func (s *Source) read(dir, name string) ([]byte, error) {
	f, err := s.open(dir, name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	return gitexec.Read(f)
}

// checkOwner refuses a repository that combines directories of several owners, by
// alternates or symbolic links.
func (s *Source) checkOwner(real string) error {
	// Who made .git, if it is a symbolic link, chose the repository.
	if st, err := os.Lstat(filepath.Join(real, ".git")); err == nil {
		if uid, err := ownedpath.Of(st); err != nil || uid != s.owner {
			return errors.New("its .git and its directory belong to different users; give both one owner")
		}
	}
	queue, seen := []string{s.gitDir, s.common, s.objects}, map[string]bool{}
	for i := 0; i < len(queue); i++ {
		dir := queue[i]
		if seen[dir] {
			continue
		}
		seen[dir] = true
		if len(seen) > 32 {
			return errors.New("borrows objects from too many repositories")
		}
		uid, err := ownerOf(dir)
		if errors.Is(err, fs.ErrNotExist) && i > 2 {
			continue // git ignores a missing alternate
		}
		if err != nil {
			return err
		}
		if uid != s.owner {
			return fmt.Errorf("%s belongs to user %d and the repository to user %d; make the repository self-contained (git repack -a -d, without alternates) or give both one owner", Printable(dir), uid, s.owner)
		}
		if i < 2 {
			continue
		}
		s.lent = append(s.lent, dir)
		more, err := s.alternates(dir)
		if err != nil {
			return err
		}
		queue = append(queue, more...)
		if pack := filepath.Join(dir, "pack"); !seen[pack] && filepath.Base(dir) != "pack" {
			queue = append(queue, pack)
		}
	}
	return nil
}

func ownerOf(path string) (uint32, error) {
	st, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	if !st.IsDir() {
		return 0, fmt.Errorf("%s: not a directory", path)
	}
	return ownedpath.Of(st)
}

func (s *Source) alternates(objects string) ([]string, error) {
	b, err := s.read(objects, "info/alternates")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var dirs []string
	for line := range strings.SplitSeq(string(b), "\n") {
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '"':
			return nil, fmt.Errorf("%s/info/alternates: quoted paths are not supported", objects)
		default:
			dirs = append(dirs, gitexec.AbsFrom(objects, line))
		}
	}
	return dirs, nil
}

// readFormat reads the extensions that the repository declares and whether it is a
// partial clone, and nothing else of its configuration.
func (s *Source) readFormat(ctx context.Context) error {
	s.format = "sha1"
	text, err := s.read(s.common, "config")
	if err != nil {
		return err
	}
	if lower := bytes.ToLower(text); !bytes.Contains(lower, []byte("extensions")) && !bytes.Contains(lower, []byte("promisor")) {
		return nil // the common case
	}
	config, err := gitexec.ParseConfig(ctx, text)
	if err != nil {
		return err
	}
	s.remote, s.partial = config.Promisor()
	s.format, err = config.Format()
	return err
}
