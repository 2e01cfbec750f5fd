package capture

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrDamaged means that a directory does not match its index.
var ErrDamaged = errors.New("changed since it was created")

// Verify compares dir with its index by the metadata of every entry. An added name
// shows in its directory's time.
func (x *Index) Verify(ctx context.Context, dir string) error {
	root, err := openIndexed(dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // only read
	var wg sync.WaitGroup
	n := min(runtime.GOMAXPROCS(0), 8)
	errs := make([]error, n)
	for i := range errs {
		part := x.entries[i*len(x.entries)/n : (i+1)*len(x.entries)/n]
		wg.Go(func() { errs[i] = (&checker{root: int(root.Fd()), dir: -1}).check(ctx, part) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// checker compares metadata, one directory at a time.
type checker struct {
	root int
	dir  int // descriptor of the directory at, or -1
	at   string
}

func (c *checker) check(ctx context.Context, entries []indexed) error {
	defer c.enter("") //nolint:errcheck // closes c.dir
	for i := range entries {
		e := &entries[i]
		if i%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		st, err := c.stat(e.path)
		if err != nil {
			return fmt.Errorf("%s: %w: %w", Printable(dot(e.path)), ErrDamaged, err)
		}
		if !e.same(st) {
			return fmt.Errorf("%s: %w", Printable(dot(e.path)), ErrDamaged)
		}
	}
	return nil
}

func (c *checker) stat(p string) (stamp, error) {
	if err := c.enter(parent(p)); err != nil {
		return stamp{}, err
	}
	dir := c.dir
	if dir < 0 {
		dir = c.root
	}
	var st unix.Stat_t
	err := unix.Fstatat(dir, path.Base(dot(p)), &st, unix.AT_SYMLINK_NOFOLLOW)
	return stampOf(&st), err
}

// enter makes p the current directory; "" is the root.
func (c *checker) enter(p string) error {
	if p == c.at {
		return nil
	}
	if c.dir >= 0 {
		_ = unix.Close(c.dir)
	}
	c.dir, c.at = -1, ""
	if p == "" {
		return nil
	}
	fd, err := openBelow(c.root, p, unix.O_PATH|unix.O_DIRECTORY)
	if err == nil {
		c.dir, c.at = fd, p
	}
	return err
}

func openIndexed(dir string) (*os.File, error) {
	f, err := openDir(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return f, nil
}

// VerifyContent compares dir with its index by reading everything. After a power
// cut a file may have its size but not its content.
func (x *Index) VerifyContent(ctx context.Context, dir string) error {
	root, err := openIndexed(dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // only read
	r := &Repo{format: x.format}
	for i := range x.entries {
		e := &x.entries[i]
		if e.dir {
			continue
		}
		id, err := r.readIndexed(ctx, root, e)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil || id != e.id {
			return errors.Join(fmt.Errorf("%s: %w", Printable(e.path), ErrDamaged), err)
		}
	}
	return nil
}

// Bind verifies that an index is of a commit (full object name): the trees built
// from its names and object names must have the commit's name, so the index
// cannot differ from the commit in content. From then on the Repo reads no tree of
// the commit from the source.
func (r *Repo) Bind(ctx context.Context, commit string, x *Index) (err error) {
	defer wrap(&err, "index")
	if x.format != r.format || r.objectID("commit", x.commit) != commit {
		return fmt.Errorf("%w: not of commit %s", ErrDamaged, Printable(commit))
	}
	root, err := headerField(x.commit, "tree")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	t := x.tree()
	b := &binder{repo: r, files: t.files, dirs: map[dirKey][]treeFile{}}
	if t.id, err = b.hash("", 0); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if t.id != root {
		// The tree may have modes that git no longer writes.
		return r.sameTree(ctx, commit, t)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trees[commit], r.trees[root], r.dirs = t, t, b.dirs
	return nil
}

func (r *Repo) sameTree(ctx context.Context, commit string, got *tree) error {
	want, err := r.tree(ctx, commit)
	if err != nil {
		return err
	}
	set, changed := difference(want, got)
	if len(set) > 0 || len(changed) > 0 {
		return fmt.Errorf("%w: its files differ from commit %s", ErrDamaged, commit)
	}
	return nil
}

// tree returns the listing of a checkout's index.
func (x *Index) tree() *tree {
	t := &tree{byPath: make(map[string]treeFile, len(x.files)), files: make([]treeFile, 0, len(x.files))}
	for i := range x.entries {
		e := &x.entries[i]
		if e.dir && e.id == "" {
			continue
		}
		f := treeFile{path: e.path, mode: e.treeMode(), id: e.id}
		t.files = append(t.files, f)
		t.byPath[f.path] = f
		if e.dir {
			t.gitlinks = append(t.gitlinks, f.path)
		}
	}
	return t
}

// dirKey names a directory by its path and content.
type dirKey struct{ prefix, id string }

// binder computes the object names of the trees of a list of files.
type binder struct {
	repo  *Repo
	files []treeFile // in git's order
	next  int
	dirs  map[dirKey][]treeFile
}

// hash hashes the directory prefix, whose files are next.
func (b *binder) hash(prefix string, depth int) (string, error) {
	if depth > maxTreeDepth {
		return "", fmt.Errorf("deeper than %d directories", maxTreeDepth)
	}
	first := b.next
	var content []byte
	for b.next < len(b.files) && strings.HasPrefix(b.files[b.next].path, prefix) {
		f := b.files[b.next]
		name, _, below := strings.Cut(f.path[len(prefix):], "/")
		id, mode := f.id, f.mode
		if below {
			var err error
			if id, err = b.hash(prefix+name+"/", depth+1); err != nil {
				return "", err
			}
			mode = modeDir
		} else {
			b.next++
		}
		content = fmt.Appendf(content, "%o %s\x00", mode, name)
		var err error
		if content, err = hex.AppendDecode(content, []byte(id)); err != nil {
			return "", err
		}
	}
	id := b.repo.objectID("tree", content)
	b.dirs[dirKey{prefix, id}] = b.files[first:b.next]
	return id, nil
}
