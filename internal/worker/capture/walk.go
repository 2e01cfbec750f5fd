package capture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Reasons to leave a path out that are used in several places.
const (
	whyUnreadable = "not readable for capture"
	whyMount      = "another file system is mounted there"
	whyChanged    = "changed while it was read"
	whySubmodule  = "a submodule; its content is not captured"
	whyFSError    = "the file system reports an error for it"
)

// entry is a regular file or symbolic link of a workspace, or something that cannot
// be captured, with the reason.
type entry struct {
	path string
	mode uint32 // modeFile, modeExec, modeLink; 0 with a reason
	size int64
	link string // target of a symbolic link
	why  string // not empty: this, and everything below it, is left out
	id   string // object name, once hashed
	stamp
}

// stamp is the metadata that tells one state of a file from another.
type stamp struct {
	dir   bool
	dev   uint64
	ino   uint64
	mode  uint32
	bytes int64
	mtime unix.Timespec
	ctime unix.Timespec
}

// walker lists a hostile directory tree. It never follows a symbolic link, opens
// only directories, and stops at its bounds.
type walker struct {
	ctx     context.Context
	cfg     Config
	skip    func(path string) bool   // ignored
	refuse  func(path string) string // reason to leave a path out, or ""
	list    []entry
	visited int
	cached  bool // unchanged directories are taken from cfg.Index
	names   int64
}

// beneath is the resolution of every name in a workspace.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

func openBelow(dir int, name string, flags uint64) (int, error) {
	flags |= unix.O_CLOEXEC | unix.O_NOFOLLOW
	if flags&unix.O_PATH == 0 {
		flags |= unix.O_NONBLOCK | unix.O_NOCTTY
	}
	how := unix.OpenHow{Flags: flags, Resolve: beneath}
	for range 100 {
		fd, err := unix.Openat2(dir, name, &how)
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
	return -1, unix.EAGAIN
}

// Open opens a path below root for reading, through no symbolic link and no other
// mount; flags are further ones of open(2).
func Open(root *os.File, path string, flags uint64) (*os.File, error) {
	fd, err := openBelow(int(root.Fd()), path, unix.O_RDONLY|flags)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// walk lists everything below the directory name of root, sorted bytewise by
// path; paths are relative to that directory.
func (w *walker) walk(root *os.File, name string) ([]entry, error) {
	fd, err := openBelow(int(root.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, fmt.Errorf("workspace: open %s: %w", name, err)
	}
	if err := w.dir(fd, "", 0); err != nil {
		return nil, err
	}
	return sortedByPath(w.list), nil
}

// sortedByPath moves each of the large entries only once.
func sortedByPath(list []entry) []entry {
	order := make([]*entry, len(list))
	for i := range list {
		order[i] = &list[i]
	}
	slices.SortFunc(order, func(a, b *entry) int { return strings.Compare(a.path, b.path) })
	sorted := make([]entry, len(list))
	for i, e := range order {
		sorted[i] = *e
	}
	return sorted
}

// dir lists one directory and closes it.
func (w *walker) dir(fd int, prefix string, depth int) error {
	f := os.NewFile(uintptr(fd), "workspace directory")
	defer f.Close() //nolint:errcheck // only read
	for {
		names, err := f.Readdirnames(4096)
		for _, name := range names {
			if err := w.visit(fd, name, prefix+name, depth); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("workspace: list %s: %w", Printable(prefix), err)
		}
		if err := w.ctx.Err(); err != nil {
			return context.Cause(w.ctx)
		}
	}
}

func (w *walker) visit(dir int, name, path string, depth int) error {
	w.visited++
	w.names += int64(len(path))
	if w.visited > w.cfg.MaxEntries {
		return &LimitError{What: "files and directories", Limit: int64(w.cfg.MaxEntries)}
	}
	if w.names > w.cfg.MaxNames {
		return &LimitError{What: "bytes of file names", Limit: w.cfg.MaxNames}
	}
	if w.skip(path) {
		return nil
	}
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		// The directory may be readable but not searchable.
		w.list = append(w.list, entry{path: path, why: whyUnreadable})
		return nil //nolint:nilerr // the reason is in the list
	}
	e := entry{path: path, size: st.Size, stamp: stampOf(&st)}
	e.mode, e.why = w.judge(path, &st, depth)
	switch {
	case e.why != "":
	case e.mode == modeLink:
		e.link, e.why = readLink(dir, name)
		e.size = int64(len(e.link))
		w.names += e.size
	case e.mode == modeDir && w.untouched(path, depth):
		return nil
	case e.mode == modeDir:
		fd, err := openBelow(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
		if err == nil {
			return w.dir(fd, path+"/", depth+1)
		}
		if e.why = openProblem(err); e.why == "" {
			return fmt.Errorf("workspace: open %s: %w", Printable(path), err)
		}
	}
	if e.why != "" {
		e.mode = 0
	}
	w.list = append(w.list, e)
	return nil
}

// judge returns the git mode of an entry, or why it is left out.
func (w *walker) judge(path string, st *unix.Stat_t, depth int) (mode uint32, why string) {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		mode = modeFile
		if st.Mode&0o100 != 0 {
			mode = modeExec
		}
		if st.Size > w.cfg.MaxFile {
			why = fmt.Sprintf("a file of more than %d bytes", w.cfg.MaxFile)
		}
	case unix.S_IFDIR:
		mode = modeDir
		if depth >= w.cfg.MaxDepth {
			why = fmt.Sprintf("deeper than %d directories", w.cfg.MaxDepth)
		}
	case unix.S_IFLNK:
		mode = modeLink
	case unix.S_IFIFO:
		why = "a fifo"
	case unix.S_IFSOCK:
		why = "a socket"
	default:
		why = "a device"
	}
	if len(path) > w.cfg.MaxPath {
		return 0, fmt.Sprintf("a path of more than %d bytes", w.cfg.MaxPath)
	}
	if p := pathProblem(path, mode); p != "" {
		return 0, p
	}
	if p := w.refuse(path); p != "" {
		return 0, p
	}
	return mode, why
}

func stampOf(st *unix.Stat_t) stamp {
	return stamp{
		dir: st.Mode&unix.S_IFMT == unix.S_IFDIR, dev: st.Dev, ino: st.Ino, mode: st.Mode,
		bytes: st.Size, mtime: st.Mtim, ctime: st.Ctim,
	}
}

// openProblem returns why a path cannot be opened, or "" when the workspace is not
// the cause.
func openProblem(err error) string {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return whyUnreadable
	case errors.Is(err, unix.EXDEV):
		return whyMount
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return whyChanged
	case errors.Is(err, unix.EIO), errors.Is(err, unix.ESTALE), errors.Is(err, unix.EUCLEAN):
		return whyFSError
	}
	return ""
}

func readLink(dir int, name string) (target, why string) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, buf)
	switch {
	case err != nil:
		return "", whyUnreadable
	case n == 0 || n >= len(buf):
		return "", "a symbolic link whose target is empty or too long"
	}
	return string(buf[:n]), ""
}

// openRegular opens a file from the listing and makes sure that it is still the same
// regular file, so that no fifo or device is ever read.
func openRegular(root *os.File, path string, e *entry) (f *os.File, why string, err error) {
	fd, err := openBelow(int(root.Fd()), path, unix.O_RDONLY)
	if err != nil {
		if why := openProblem(err); why != "" {
			return nil, why, nil
		}
		return nil, "", fmt.Errorf("workspace: open %s: %w", Printable(path), err)
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || stampOf(&st) != e.stamp || st.Mode&unix.S_IFMT != unix.S_IFREG {
		_ = unix.Close(fd)
		return nil, whyChanged, nil //nolint:nilerr // the reason is returned
	}
	return os.NewFile(uintptr(fd), "workspace file"), "", nil
}
