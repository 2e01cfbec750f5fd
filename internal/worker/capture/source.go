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
)

// Source is a repository that workspaces start from. It is not trusted: its refs
// are read here as text, its objects by git through a Repo of ours, and its
// configuration only as data.
type Source struct {
	path    string // as configured
	gitDir  string // HEAD is here
	common  string // refs and objects are here; differs in a linked work tree
	objects string
	format  string // sha1 or sha256
	partial bool   // a partial clone: objects may be missing
	remote  string // that a partial clone would fetch from; may be empty
}

// OpenSource opens the repository at an absolute path: a work tree, a linked work
// tree or a bare repository. Every directory that provides objects must belong to
// the owner of that path, so that a repository cannot expose, through us, objects
// of another that its owner may not read.
func OpenSource(ctx context.Context, repoPath string) (_ *Source, err error) {
	defer wrap(&err, "source "+Printable(repoPath))
	if !filepath.IsAbs(repoPath) {
		return nil, errors.New("the path is not absolute")
	}
	s := &Source{path: repoPath}
	if s.gitDir, s.common, err = gitexec.Find(repoPath); err != nil {
		return nil, err
	}
	s.objects = filepath.Join(s.common, "objects")
	if err := s.checkOwner(); err != nil {
		return nil, err
	}
	return s, s.readFormat(ctx)
}

// checkOwner refuses a repository that combines directories of several owners, by
// alternates or symbolic links.
func (s *Source) checkOwner() error {
	owner, err := ownerOf(s.path)
	if err != nil {
		return err
	}
	// Who made .git, if it is a symbolic link, chose the repository.
	if st, err := os.Lstat(filepath.Join(s.path, ".git")); err == nil {
		if sys, ok := st.Sys().(*syscall.Stat_t); !ok || sys.Uid != owner {
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
		if uid != owner {
			return fmt.Errorf("%s belongs to user %d and the repository to user %d; make the repository self-contained (git repack -a -d, without alternates) or give both one owner", Printable(dir), uid, owner)
		}
		if i < 2 {
			continue
		}
		more, err := alternates(dir)
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
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || !st.IsDir() {
		return 0, fmt.Errorf("%s: not a directory", path)
	}
	return sys.Uid, nil
}

func alternates(objects string) ([]string, error) {
	b, err := gitexec.ReadFile(filepath.Join(objects, "info", "alternates"))
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
	text, err := gitexec.ReadFile(filepath.Join(s.common, "config"))
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
