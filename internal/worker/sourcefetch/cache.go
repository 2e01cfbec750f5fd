package sourcefetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/base/gitexec"
	"github.com/bailiwick-dev/bailiwick/internal/worker/capture"
)

// cache is what was fetched of one source: a bare repository of packs, with a ref for
// each commit that is there whole. Its holder has it locked.
type cache struct {
	dir  string
	lock *os.File
}

const markers = "refs/bailiwick/" // and the name of a commit

func openCache(ctx context.Context, dir string) (*cache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	c := &cache{dir: dir}
	err := durable.PollLock(ctx, func() (err error) {
		c.lock, err = durable.Lock(filepath.Join(dir, "lock"))
		return err
	})
	if errors.Is(err, durable.ErrLocked) {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	if size, err := c.size(); err != nil || size > maxCache {
		c.close()
		return nil, errors.Join(err, fmt.Errorf("%d bytes are in %s, the limit is %d: remove the directory; dispatches from commits that the server no longer has will fail", size, dir, int64(maxCache)))
	}
	return c, nil
}

func (c *cache) close()          { _ = c.lock.Close() }
func (c *cache) git() string     { return filepath.Join(c.dir, "git") }
func (c *cache) packDir() string { return filepath.Join(c.git(), "objects", "pack") }

func (c *cache) size() (total int64, err error) {
	entries, err := os.ReadDir(c.packDir())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			total += info.Size()
		}
	}
	return total, err
}

// has reports whether a commit is there, and unchanged.
func (c *cache) has(ctx context.Context, commit string) bool {
	s, err := capture.OpenSource(ctx, c.git())
	if err != nil {
		return false
	}
	got, err := s.Resolve(ctx, markers+commit, c.dir)
	return err == nil && got == commit
}

// commits are those that are there whole.
func (c *cache) commits() (all []string) {
	text, _ := os.ReadFile(filepath.Join(c.git(), "packed-refs")) // none yet
	for line := range strings.Lines(string(text)) {
		if id, _, ok := strings.Cut(line, " "); ok && isObject(id) {
			all = append(all, id)
		}
	}
	return all
}

// add takes the packs of a jail's repository, and marks the commit as there.
func (c *cache) add(ctx context.Context, commit string, workspace *os.File) error {
	if err := c.create(formatOf(commit)); err != nil {
		return err
	}
	if err := c.takePacks(ctx, formatOf(commit), workspace); err != nil {
		return err
	}
	s, err := capture.OpenSource(ctx, c.git())
	if err != nil {
		return err
	}
	if got, err := s.Resolve(ctx, commit, c.dir); err != nil || got != commit {
		return errors.Join(fmt.Errorf("the server sent no commit %s", commit), err)
	}
	all := append(c.commits(), commit)
	slices.Sort(all)
	refs, shallow := "", ""
	for _, id := range slices.Compact(all) {
		refs, shallow = refs+id+" "+markers+id+"\n", shallow+id+"\n"
	}
	return errors.Join(
		durable.Replace(filepath.Join(c.git(), "shallow"), []byte(shallow), 0o644),
		durable.Replace(filepath.Join(c.git(), "packed-refs"), []byte(refs), 0o644))
}

// formatOf returns the format of the repository that an object name is from.
func formatOf(object string) string {
	if len(object) == 64 {
		return "sha256"
	}
	return "sha1"
}

// create makes the repository, which a jail must be able to read.
func (c *cache) create(format string) error {
	config := "[core]\n\trepositoryFormatVersion = 1\n\tbare = true\n[extensions]\n\tobjectFormat = " + format + "\n"
	for _, dir := range []string{c.git(), filepath.Join(c.git(), "refs"), filepath.Join(c.git(), "objects"), c.packDir()} {
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o755)); err != nil { //nolint:gosec // G301: the jail's account reads it; the directory above is private
			return err
		}
	}
	return errors.Join(
		durable.Replace(filepath.Join(c.git(), "config"), []byte(config), 0o644),
		durable.Replace(filepath.Join(c.git(), "HEAD"), []byte("ref: refs/heads/none\n"), 0o644))
}

var packShape = regexp.MustCompile(`^pack-([0-9a-f]{40}|[0-9a-f]{64})\.pack$`) //nolint:gochecknoglobals // compiled once, never written

const maxPacks = 16

// takePacks copies the packs of the jail's repository, and names their objects by their
// content: git believes an index. One that is there already may be damaged, and is
// replaced.
func (c *cache) takePacks(ctx context.Context, format string, workspace *os.File) error {
	dir, err := capture.Open(workspace, "repo/objects/pack", unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // only read
	names, err := dir.Readdirnames(10 * maxPacks)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	taken := 0
	for _, name := range names {
		if !packShape.MatchString(name) {
			continue
		}
		if taken++; taken > maxPacks {
			return fmt.Errorf("more than %d packs for one commit", maxPacks)
		}
		if err := c.takePack(dir, name); err != nil {
			return err
		}
		if err := (gitexec.Git{}).Run(ctx, "index-pack", "--object-format="+format, filepath.Join(c.packDir(), name)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return durable.Sync(c.packDir())
}

func (c *cache) takePack(dir *os.File, name string) error {
	from, err := capture.Open(dir, name, 0)
	if err != nil {
		return err
	}
	defer from.Close() //nolint:errcheck // only read
	st, err := from.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Size() > maxBytes {
		return fmt.Errorf("%s is not a file of at most %d bytes", name, int64(maxBytes))
	}
	temp := filepath.Join(c.packDir(), name+".new")
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a process that was killed; it cannot be written to
		return err
	}
	t, err := durable.NewTemp(nil, temp, 0o444)
	if err != nil {
		return err
	}
	_, err = io.Copy(t, io.LimitReader(from, maxBytes))
	return t.Rename(filepath.Join(c.packDir(), name), err)
}
