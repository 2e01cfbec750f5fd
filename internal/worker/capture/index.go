package capture

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Index records a directory of ours, usually a checkout, as it was when created:
// every entry with the object name of its content and its metadata. With it,
// comparing needs no reading: a file with the same type, mode, size, inode, mtime
// and ctime is unchanged. No program can set the ctime; the kernel sets it to the
// present whenever a file changes.
type Index struct {
	format  string // of object names
	commit  []byte // the commit object of a checkout; empty for another directory
	entries []indexed
	files   map[string]int // of entries that are not directories
	dirs    map[string]int // of those that are
	newest  unix.Timespec  // the latest ctime
}

type indexed struct {
	path string // "" is the root; a directory precedes its entries, in git's order
	id   string // of a file, a link, or a submodule, which is a directory
	stamp
}

// same compares two stamps except for the device, which differs in an overlay and
// may change at a reboot.
func (s stamp) same(t stamp) bool {
	s.dev, t.dev = 0, 0
	return s == t
}

// IndexCheckout indexes dir, a fresh checkout of commit (full object name). It
// returns when the clock of the file system has advanced, so that a later change
// has a later time.
func (r *Repo) IndexCheckout(ctx context.Context, commit, dir string) (_ *Index, err error) {
	defer wrap(&err, "index")
	o, err := r.openObjects(ctx)
	if err != nil {
		return nil, err
	}
	defer o.close()
	t, err := o.tree(commit)
	if err != nil {
		return nil, err
	}
	_, kind, object, err := o.get(commit)
	if err == nil && kind != "commit" {
		err = fmt.Errorf("%s is a %s, want a commit", commit, Printable(kind))
	}
	if err != nil {
		return nil, err
	}
	x := &Index{format: r.format, commit: object}
	if err := x.walk(dir); err != nil {
		return nil, err
	}
	named := 0
	for i := range x.entries {
		e := &x.entries[i]
		f, ok := t.byPath[e.path]
		if ok {
			named++
			e.id = f.id
		}
		if e.treeMode() != f.mode && (ok || !e.dir) {
			return nil, fmt.Errorf("%s differs from the commit", Printable(e.path))
		}
	}
	if named != len(t.files) {
		return nil, fmt.Errorf("found %d of %d files", named, len(t.files))
	}
	return x, x.settle(ctx, dir)
}

// IndexDir indexes a directory of ours that is not a checkout, and reads all of it.
func (r *Repo) IndexDir(ctx context.Context, dir string) (_ *Index, err error) {
	defer wrap(&err, "index")
	x := &Index{format: r.format}
	if err := x.walk(dir); err != nil {
		return nil, err
	}
	root, err := openDir(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // only read
	for i := range x.entries {
		if e := &x.entries[i]; !e.dir {
			if e.id, err = r.readIndexed(ctx, root, e); err != nil {
				return nil, err
			}
		}
	}
	return x, x.settle(ctx, dir)
}

// treeMode returns the mode of an entry in a git tree.
func (e *indexed) treeMode() uint32 {
	switch {
	case e.dir && e.id != "":
		return modeGitlink
	case e.dir:
		return modeDir
	case e.mode&unix.S_IFMT == unix.S_IFLNK:
		return modeLink
	case e.mode&0o100 != 0:
		return modeExec
	}
	return modeFile
}

// walk lists all entries of dir, directories before their entries, in git's order.
func (x *Index) walk(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return &os.PathError{Op: "lstat", Path: dir, Err: err}
	}
	x.files, x.dirs = map[string]int{}, map[string]int{}
	return x.add(dir, "", &st)
}

func (x *Index) add(dir, rel string, st *unix.Stat_t) error {
	e := indexed{path: rel, stamp: stampOf(st)}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFLNK:
		x.files[rel] = len(x.entries)
	case unix.S_IFDIR:
		x.dirs[rel] = len(x.entries)
	default:
		return fmt.Errorf("%s: want a file, directory or symbolic link", Printable(rel))
	}
	x.entries = append(x.entries, e)
	if later(e.ctime, x.newest) {
		x.newest = e.ctime
	}
	if !e.dir {
		return nil
	}
	at := path.Join(dir, rel)
	list, err := os.ReadDir(at)
	if err != nil {
		return err
	}
	key := func(d os.DirEntry) string {
		if d.IsDir() {
			return d.Name() + "/"
		}
		return d.Name()
	}
	slices.SortFunc(list, func(a, b os.DirEntry) int { return strings.Compare(key(a), key(b)) })
	for _, d := range list {
		var st unix.Stat_t
		if err := unix.Lstat(at+"/"+d.Name(), &st); err != nil {
			return &os.PathError{Op: "lstat", Path: at + "/" + d.Name(), Err: err}
		}
		if err := x.add(dir, path.Join(rel, d.Name()), &st); err != nil {
			return err
		}
	}
	return nil
}

func later(a, b unix.Timespec) bool {
	return a.Sec > b.Sec || a.Sec == b.Sec && a.Nsec > b.Nsec
}

// settleTime is how long a clock may take to advance: file systems have time
// stamps of up to two seconds granularity.
const settleTime = 3 * time.Second

// settle waits until later changes have a later time than everything in the index,
// by the file system's own clock, which it reads with a file beside dir.
func (x *Index) settle(ctx context.Context, dir string) error {
	f, err := os.CreateTemp(path.Dir(dir), ".clock-")
	if err != nil {
		return err
	}
	defer func() { _ = f.Close(); _ = os.Remove(f.Name()) }()
	const pause = 2 * time.Millisecond
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for range settleTime / pause {
		now, err := touch(f.Name())
		if err != nil {
			return err
		}
		if later(now, x.newest) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return errors.New("the clock of the file system does not advance, or was set back; retry")
}

// touch sets the times of a path of ours to the present and returns its new ctime.
func touch(name string) (unix.Timespec, error) {
	now := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, name, now, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return unix.Timespec{}, &os.PathError{Op: "touch", Path: name, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		return unix.Timespec{}, &os.PathError{Op: "lstat", Path: name, Err: err}
	}
	return st.Ctim, nil
}

// Touch marks a path of ours as used now. The error is ErrDamaged when the index is
// from the future: the clock was set back, so times prove nothing.
func (x *Index) Touch(name string) error {
	now, err := touch(name)
	if err == nil && !later(now, x.newest) {
		err = fmt.Errorf("index: %w: it is from the future", ErrDamaged)
	}
	return err
}

// CheckTime is Touch for a path that this process cannot change: it goes by the machine's clock.
func (x *Index) CheckTime(string) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &now); err != nil {
		return err
	}
	if !later(now, x.newest) {
		return fmt.Errorf("index: %w: it is from the future", ErrDamaged)
	}
	return nil
}

// Size returns the approximate size on disk, in bytes: whole blocks, and one for
// each directory.
func (x *Index) Size() int64 {
	var size int64
	for i := range x.entries {
		size += onDisk(x.entries[i].bytes)
	}
	return size
}

// Submodules lists the submodules of a checkout, which are empty directories.
func (x *Index) Submodules() []api.LeftOut {
	var list []api.LeftOut
	for i := range x.entries {
		if e := &x.entries[i]; e.dir && e.id != "" {
			list = append(list, submodule(e.path))
		}
	}
	return list
}

// unchanged returns the object name of a file in a workspace over this directory if
// the file is unchanged, or "".
func (x *Index) unchanged(p string, s stamp) string {
	if x == nil {
		return ""
	}
	if i, ok := x.files[p]; ok && x.entries[i].same(s) {
		return x.entries[i].id
	}
	return ""
}

// readIndexed reads the content of an entry and returns its object name.
func (r *Repo) readIndexed(ctx context.Context, root *os.File, e *indexed) (string, error) {
	if e.mode&unix.S_IFMT == unix.S_IFLNK {
		target, why := readLink(int(root.Fd()), e.path)
		if why != "" {
			return "", fmt.Errorf("%s: %s", Printable(e.path), why)
		}
		return r.objectID("blob", []byte(target)), nil
	}
	fd, err := openBelow(int(root.Fd()), e.path, unix.O_RDONLY)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: e.path, Err: err}
	}
	f := os.NewFile(uintptr(fd), e.path)
	defer f.Close() //nolint:errcheck // only read
	h := r.objectHash("blob", e.bytes)
	n, err := io.Copy(h, io.LimitReader(contextReader{ctx, f}, e.bytes+1))
	if err == nil && n != e.bytes {
		err = fmt.Errorf("%s: has %d bytes, want %d", Printable(e.path), n, e.bytes)
	}
	return hex.EncodeToString(h.Sum(nil)), err
}
