package runverbs

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // G505: git's own object format
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/gitexec"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// workTree is the work tree of a user's repository. It is read and written
// directly, never by git: so no filter, hook or attribute of the repository takes
// part, and no symbolic link in it is followed.
type workTree struct {
	m    *mergeRepo
	top  string
	root *os.Root
	head string // the commit that is checked out
	git  string // the git directory, if it lies below the top folder under a name of its own

	differ  map[string]bool // what git takes for modified; nil: not read yet
	unknown bool            // git could not tell
}

// The modes of git for what a work tree can hold.
const (
	modeFile = "100644"
	modeExec = "100755"
	modeLink = "120000"
	modeNone = "000000"
)

// treeChange is one path that differs between two trees.
type treeChange struct {
	path             string
	oldMode, newMode string
	oldBlob, newBlob string
}

func (c *treeChange) word() string {
	switch modeNone {
	case c.oldMode:
		return "added"
	case c.newMode:
		return "deleted"
	}
	return "modified"
}

// openWorkTree opens the work tree of the repository. The caller closes it.
func (m *mergeRepo) openWorkTree(ctx context.Context) (*workTree, error) {
	top := m.user.Top
	if err := m.checkTop(); err != nil {
		return nil, err
	}
	if top == "" {
		return nil, api.Errorf(api.CodeInvalid, "repository %s has no work tree", m.user.GitDir).WithHint("put the patch on a new branch with --branch")
	}
	head, err := m.users().Output(ctx, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
	if err != nil || !isCommit(head) {
		return nil, api.Errorf(api.CodeInvalid, "repository %s has no commit yet", top)
	}
	root, err := os.OpenRoot(top)
	if err != nil {
		return nil, err
	}
	return &workTree{m: m, top: top, root: root, head: head, git: gitBelow(top, m.user.Common)}, nil
}

// gitBelow returns where a git directory lies below the top folder, such as one
// that was made with --separate-git-dir; empty: elsewhere.
func gitBelow(top, dir string) string {
	if real, err := filepath.EvalSymlinks(top); err == nil {
		top = real
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	below, err := filepath.Rel(top, dir)
	if err != nil || !filepath.IsLocal(below) {
		return ""
	}
	return filepath.ToSlash(below)
}

// inGit reports whether a path is in the git directory.
func (w *workTree) inGit(p string) bool {
	return inGitDir(p) || w.git != "" && strings.HasPrefix(strings.ToLower(p)+"/", strings.ToLower(w.git)+"/")
}

// checkTop refuses a repository whose configuration names another work tree
// (core.worktree), which may be any folder: the repository must lie in it.
func (m *mergeRepo) checkTop() error {
	if !elsewhere(m.user) {
		return nil
	}
	return api.Errorf(api.CodeInvalid, "core.worktree of repository %s is %s, not the repository's own folder", m.user.GitDir, m.user.Named).
		WithHint("check core.worktree of the repository, or put the patch on a new branch with --branch; nothing was written")
}

// elsewhere reports whether a repository names a work tree other than the folder that it
// lies in.
func elsewhere(f *gitexec.Foreign) bool {
	if f.Named == "" {
		return false
	}
	named, err := os.Stat(f.Named)
	top, topErr := os.Stat(f.Top)
	return err != nil || topErr != nil || !os.SameFile(named, top)
}

func (w *workTree) Close() error { return w.root.Close() }

// changesTo returns what leads from the commit that is checked out to a tree.
func (w *workTree) changesTo(ctx context.Context, tree string) ([]treeChange, error) {
	out, err := w.m.scratch.Output(ctx, "diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", w.head, tree)
	if err != nil {
		return nil, err
	}
	var list []treeChange
	words := strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
	for i := 0; i+1 < len(words); i += 2 {
		var c treeChange
		var status string
		if _, err := fmt.Sscanf(words[i], ":%s %s %s %s %s", &c.oldMode, &c.newMode, &c.oldBlob, &c.newBlob, &status); err != nil {
			return nil, fmt.Errorf("git diff-tree printed %q", words[i])
		}
		c.path = words[i+1]
		list = append(list, c)
	}
	return list, nil
}

// check refuses changes that must not be written to any work tree, and those to
// paths that differ from the commit that is checked out.
func (w *workTree) check(ctx context.Context, changes []treeChange) error {
	gone := map[string]bool{}
	for i := range changes {
		gone[changes[i].path] = changes[i].newMode == modeNone
	}
	index, err := w.index(ctx)
	if err != nil {
		return err
	}
	var dirty, absent, converted []string
	for i := range changes {
		c := &changes[i]
		if err := w.refuse(ctx, c, gone); err != nil {
			return err
		}
		switch own := w.inTheWay(c, gone); {
		case len(own) > 0:
			dirty = append(dirty, own...)
		case index[c.path] != c.staged():
			dirty = append(dirty, console.Line(c.path))
		case w.holds(c, c.path), c.oldMode == modeNone && w.isDir(c.path): // or a folder of files that all go
		case c.oldMode != modeNone && w.absent(c.path) && w.converted(ctx, c.path): // deleted, or outside a sparse checkout
			absent = append(absent, console.Line(c.path))
		case c.oldMode != modeNone && w.converted(ctx, c.path):
			converted = append(converted, console.Line(c.path))
		default:
			dirty = append(dirty, console.Line(c.path))
		}
	}
	if len(dirty) > 0 {
		return api.Errorf(api.CodeConflict, "the work tree %s has changes of its own where the patch applies: %s", w.top, someOf(dirty)).
			WithHint("commit or stash them, or put the patch on a new branch with --branch; nothing was written")
	}
	if len(absent) > 0 {
		return api.Errorf(api.CodeConflict, "the work tree %s does not have files that the patch changes: %s", w.top, someOf(absent)).
			WithHint("check them out with git restore, or with git sparse-checkout add, or put the patch on a new branch with --branch; nothing was written")
	}
	if len(converted) > 0 {
		return api.Errorf(api.CodeConflict, "the work tree %s has files in another form than the commit, such as with other line endings: %s", w.top, someOf(converted)).
			WithHint("put the patch on a new branch with --branch and merge that; nothing was written")
	}
	return nil
}

// someOf lists the first of names.
func someOf(names []string) string {
	shown := strings.Join(names[:min(len(names), maxTroubles)], ", ")
	if rest := len(names) - maxTroubles; rest > 0 {
		shown += fmt.Sprintf(" and %d more", rest)
	}
	return shown
}

func (w *workTree) isDir(name string) bool {
	st, err := w.root.Lstat(name)
	return err == nil && st.IsDir()
}

func (w *workTree) absent(name string) bool {
	_, err := w.root.Lstat(name)
	return errors.Is(err, fs.ErrNotExist)
}

// convertedTimeout bounds a comparison that only words an error.
const convertedTimeout = 10 * time.Second

// converted reports whether a file that differs from the commit does not for git, which
// knows its other forms.
func (w *workTree) converted(ctx context.Context, name string) bool {
	if w.differ == nil {
		w.differ = map[string]bool{}
		ctx, cancel := context.WithTimeout(ctx, convertedTimeout)
		defer cancel()
		list, _, err := modified(ctx, gitexec.Git{Repo: w.m.view, WorkTree: w.top})
		w.unknown = err != nil
		for _, name := range list {
			w.differ[name] = true
		}
	}
	return !w.unknown && !w.differ[name]
}

// inTheWay returns the files below a folder, where the patch has a file, that the patch
// does not remove.
func (w *workTree) inTheWay(c *treeChange, gone map[string]bool) (own []string) {
	if c.oldMode != modeNone || !w.isDir(c.path) {
		return nil
	}
	err := fs.WalkDir(w.root.FS(), c.path, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !gone[p] || w.inGit(p) {
			own = append(own, console.Line(p))
		}
		return err
	})
	if err != nil {
		return append(own, console.Line(c.path))
	}
	return own
}

// clear removes a folder of empty folders from the place of a file, and returns the
// steps that make them again.
func (w *workTree) clear(c *treeChange) (undo []func() error, err error) {
	if !w.isDir(c.path) {
		return nil, nil
	}
	var folders []string
	err = fs.WalkDir(w.root.FS(), c.path, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			return changedMeanwhile(c)
		}
		folders = append(folders, p)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, p := range slices.Backward(folders) {
		st, err := w.root.Lstat(p)
		if err != nil {
			return undo, err
		}
		if w.root.Remove(p) != nil {
			return undo, changedMeanwhile(c)
		}
		undo = append(undo, func() error { return w.root.Mkdir(p, st.Mode().Perm()) })
	}
	return undo, nil
}

// staged is the entry of the index that the commit has for the path.
func (c *treeChange) staged() string {
	if c.oldMode == modeNone {
		return ""
	}
	return c.oldMode + " " + c.oldBlob + " 0"
}

// index returns mode, object and stage of every path in the index.
func (w *workTree) index(ctx context.Context) (map[string]string, error) {
	out, err := w.m.users().Output(ctx, "ls-files", "--stage", "-z")
	if err != nil {
		return nil, err
	}
	entries := map[string]string{}
	for line := range strings.SplitSeq(out, "\x00") {
		if entry, name, ok := strings.Cut(line, "\t"); ok {
			entries[name] += entry // more than one while a merge is unresolved
		}
	}
	return entries, nil
}

// refuse refuses a change that would reach beyond the files of the work tree.
func (w *workTree) refuse(ctx context.Context, c *treeChange, gone map[string]bool) error {
	bad := func(format string, args ...any) error {
		return api.Errorf(api.CodeInvalid, "the patch changes %s: %s", console.Line(c.path), fmt.Sprintf(format, args...)).WithHint("nothing was written")
	}
	if !filepath.IsLocal(c.path) || path.Clean(c.path) != c.path || w.inGit(c.path) {
		return bad("a path that is not one of the work tree's files")
	}
	for _, mode := range []string{c.oldMode, c.newMode} {
		if !slices.Contains([]string{modeFile, modeExec, modeLink, modeNone}, mode) {
			return bad("mode %s, such as a submodule, is not supported", mode)
		}
	}
	// What stands above the path must be folders. A link could lead into .git.
	for up := path.Dir(c.path); up != "."; up = path.Dir(up) {
		st, err := w.root.Lstat(up)
		if err == nil && !st.IsDir() && !gone[up] {
			return bad("%s is no folder in the work tree", console.Line(up))
		}
	}
	if c.newMode != modeLink {
		return nil
	}
	target, err := w.blob(ctx, c.newBlob)
	if err != nil {
		return err
	}
	to := path.Join(path.Dir(c.path), string(target))
	if path.IsAbs(string(target)) || !filepath.IsLocal(to) || w.inGit(to) || upAfterDown(string(target)) {
		return bad("a symbolic link that leads out of the work tree, to %q", target)
	}
	return nil
}

// upAfterDown reports whether a link goes up again after a name, which may be a
// link itself: then the text does not say where it leads.
func upAfterDown(target string) bool {
	down := false
	for part := range strings.SplitSeq(target, "/") {
		if part == ".." && down {
			return true
		}
		down = down || part != ".." && part != "." && part != ""
	}
	return false
}

// inGitDir reports whether a path is in a git directory, also where the file
// system ignores case.
func inGitDir(p string) bool {
	return slices.ContainsFunc(strings.Split(p, "/"), func(part string) bool {
		return strings.EqualFold(part, ".git") || strings.EqualFold(part, "git~1")
	})
}

// holds reports whether the work tree has, at a name, what the commit has at the
// path of a change.
func (w *workTree) holds(c *treeChange, name string) bool {
	st, err := w.root.Lstat(name)
	if c.oldMode == modeNone {
		return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
	}
	if err != nil {
		return false
	}
	var content io.Reader
	switch {
	case c.oldMode == modeLink && st.Mode()&fs.ModeSymlink != 0:
		target, err := w.root.Readlink(name)
		if err != nil {
			return false
		}
		content = strings.NewReader(target)
		return w.m.blobID(int64(len(target)), content) == c.oldBlob
	case c.oldMode != modeLink && st.Mode().IsRegular():
		f, err := w.root.Open(name)
		if err != nil {
			return false
		}
		defer f.Close() //nolint:errcheck // only read
		return w.m.blobID(st.Size(), f) == c.oldBlob
	}
	return false
}

// blobID is the id that git gives a file without any filter, or nothing if it
// cannot be read.
func (m *mergeRepo) blobID(size int64, content io.Reader) string {
	h := sha256.New()
	if m.user.Format == "sha1" {
		h = sha1.New() //nolint:gosec // G401: as above
	}
	fmt.Fprintf(h, "blob %d\x00", size)
	if n, err := io.Copy(h, content); err != nil || n != size {
		return ""
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

func (w *workTree) blob(ctx context.Context, id string) ([]byte, error) {
	var b bytes.Buffer
	git := w.m.scratch
	git.Stdout = &b
	err := git.Run(ctx, "cat-file", "blob", id)
	return b.Bytes(), err
}

// write makes the changes, all or none: what is new is complete beside its place
// before the first path changes, and what a path had before is kept until the
// last one has. What an editor has saved since check is no part of the commit: then
// nothing changes.
func (w *workTree) write(ctx context.Context, changes []treeChange) (err error) {
	stage := ".bailiwick-apply-" + rand.Text()
	if err := w.root.Mkdir(stage, 0o700); err != nil {
		return err
	}
	var undo []func() error
	defer func() {
		if err != nil {
			for _, step := range slices.Backward(undo) {
				err = errors.Join(err, step())
			}
		}
		err = errors.Join(err, w.root.RemoveAll(stage))
	}()
	added := func(i int) string { return fmt.Sprintf("%s/new-%d", stage, i) }
	for i := range changes {
		if err := w.create(ctx, &changes[i], added(i)); err != nil {
			return err
		}
	}
	move := func(from, to string) error {
		if err := w.root.Rename(from, to); err != nil {
			return err
		}
		undo = append(undo, func() error {
			if _, err := w.root.Lstat(from); err == nil {
				return nil // an editor has saved it since
			}
			return w.root.Rename(to, from)
		})
		return nil
	}
	for i := range changes { // first all that goes: a file may make way for a folder
		if c := &changes[i]; c.oldMode != modeNone {
			old := fmt.Sprintf("%s/old-%d", stage, i)
			if err := move(c.path, old); err != nil {
				return err
			}
			if !w.holds(c, old) {
				return changedMeanwhile(c)
			}
		}
	}
	for i := range changes {
		if c := &changes[i]; c.newMode != modeNone {
			if err := w.root.MkdirAll(path.Dir(c.path), 0o777); err != nil {
				return err
			}
			made, err := w.clear(c)
			if undo = append(undo, made...); err != nil {
				return err
			}
			if _, err := w.root.Lstat(c.path); err == nil {
				return changedMeanwhile(c)
			}
			if err := move(added(i), c.path); err != nil {
				return err
			}
		}
	}
	for i := range changes { // folders that are empty now, as git does
		for up := path.Dir(changes[i].path); changes[i].newMode == modeNone && up != "." && w.isDir(up) && w.root.Remove(up) == nil; up = path.Dir(up) {
		}
	}
	return nil
}

func changedMeanwhile(c *treeChange) error {
	return api.Errorf(api.CodeConflict, "%s was changed meanwhile", console.Line(c.path)).WithHint("nothing was written; try again when nothing else changes the work tree")
}

// create writes the new content of a path to a new file.
func (w *workTree) create(ctx context.Context, c *treeChange, name string) error {
	switch c.newMode {
	case modeNone:
		return nil
	case modeLink:
		target, err := w.blob(ctx, c.newBlob)
		if err != nil {
			return err
		}
		return w.root.Symlink(string(target), name)
	}
	perm := fs.FileMode(0o666)
	if c.newMode == modeExec {
		perm = 0o777
	}
	f, err := w.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	git := w.m.scratch
	git.Stdout = f
	err = git.Run(ctx, "cat-file", "blob", c.newBlob)
	return errors.Join(err, f.Close())
}
