package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/worker/mounttree"
)

// Host files are shown through read-only overlays, never by a plain bind of a directory. A bind shares inodes with the host,
// and a read-only mount does not stop connect(2) on a socket, open(2) of a pipe, flock(2) or inotify(7). An overlay has inodes
// of its own: a socket on it has no listener, a pipe no other end, in whatever directory the host makes one later, and locks,
// leases and watches on it reach nobody else. A single regular file is bound from an overlay of its directory; where that is
// impossible it is bound from the host, and a layer says so.

const exposeLayer = "host files by overlay (no host sockets, pipes or devices)"

// expose shows the host file or directory source, which the host has at name, at path in the jail. An overlay does not cross
// mounts, and the kernel hides what an ordinary user would uncover below one: a directory with mounts below it is recreated, and
// its entries are shown one by one.
func (b *builder) expose(source, name, path string) error {
	fd, err := openHost(source)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: source, Err: err}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return b.exposeFile(fd, source, name, path)
	case unix.S_IFDIR:
		if b.mounts.Below(source) {
			return b.exposeEntries(source, name, path)
		}
		return b.exposeDir(fd, path)
	default:
		return errSpecial
	}
}

var errSpecial = errors.New("it is neither a regular file nor a directory")

// openHost opens a host path, without following a symbolic link that was put there since the path was checked.
func openHost(path string) (int, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// cloneHost copies the mount at a host path, with everything mounted below it, as a detached mount.
func cloneHost(path string) (int, error) {
	fd, err := openHost(path)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(fd) }()
	mount, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return -1, &os.PathError{Op: "clone mount of", Path: path, Err: err}
	}
	return mount, nil
}

// exposeFile shows the regular file that fd refers to.
func (b *builder) exposeFile(fd int, source, name, path string) error {
	own := -1
	for _, at := range []string{source, name} { // as root the source is a mount of the file alone
		if own = b.besideOverlay(fd, at); own >= 0 {
			break
		}
	}
	if own >= 0 {
		defer func() { _ = unix.Close(own) }()
		fd = own
	} else {
		b.bound++
	}
	mount, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("clone mount of %s: %w", path, err)
	}
	if err := mounttree.SetAttr(mount, mounttree.ReadOnly); err != nil {
		_ = unix.Close(mount)
		return fmt.Errorf("restrict mount of %s: %w", path, err)
	}
	return b.attachAt(mount, path, false)
}

// besideOverlay opens the regular file fd, called name, in an overlay of its directory, or returns -1: if the file is a mount
// of its own, or if pid 1 cannot reach the directory or has mounts of the host below it.
func (b *builder) besideOverlay(fd int, name string) int {
	dir, base := filepath.Split(name)
	parent, err := openHost(filepath.Clean(dir))
	if err != nil {
		return -1
	}
	defer func() { _ = unix.Close(parent) }()
	var want, got unix.Stat_t
	const resolve = unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH
	same, err := unix.Openat2(parent, base, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: resolve})
	if err != nil {
		return -1
	}
	defer func() { _ = unix.Close(same) }()
	if unix.Fstat(fd, &want) != nil || unix.Fstat(same, &got) != nil || want.Dev != got.Dev || want.Ino != got.Ino {
		return -1
	}
	view, tried := b.beside[dir]
	if !tried {
		view = b.attachBeside(parent)
		b.beside[dir] = view
	}
	if view < 0 {
		return -1
	}
	own, err := unix.Openat2(view, base, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: resolve})
	if err != nil {
		return -1
	}
	if unix.Fstat(own, &got) != nil || got.Mode&unix.S_IFMT != unix.S_IFREG {
		_ = unix.Close(own)
		return -1
	}
	return own
}

// attachBeside returns an overlay of a directory, or -1. It is attached, since files of a detached mount cannot be bound.
func (b *builder) attachBeside(dir int) int {
	mount, err := b.view(dir)
	if err != nil {
		return -1
	}
	view, err := unix.FcntlInt(uintptr(mount), unix.F_DUPFD_CLOEXEC, 0) //nolint:gosec // a descriptor
	if err != nil {
		_ = unix.Close(mount)
		return -1
	}
	if err := mounttree.Attach(mount, b.stage+"/beside"); err != nil {
		_ = unix.Close(view)
		return -1
	}
	return view
}

// exposeDir shows the directory that fd refers to.
func (b *builder) exposeDir(fd int, path string) error {
	mount, err := b.view(fd)
	if err != nil {
		return &MissingError{Layer: exposeLayer, Detail: fmt.Sprintf("%s: %v", path, err), Fix: fix(exposeLayer)}
	}
	return b.attachAt(mount, path, true)
}

// view returns a detached overlay of the directory that fd refers to. The directory becomes the current one for the option,
// which cannot spell every path; an overlay without a writable layer needs two layers.
func (b *builder) view(fd int) (int, error) {
	if err := unix.Fchdir(fd); err != nil {
		return -1, fmt.Errorf("enter it: %w", err)
	}
	defer func() { _ = unix.Chdir("/") }()
	return mounttree.New("overlay", mounttree.ReadOnly, "userxattr", "", "xino", "off", "lowerdir", ".:"+b.stage+"/empty")
}

// exposeEntries shows what is in a directory with mounts below it, in a directory of its own. Left out are entries that are no
// files, directories or symbolic links, and those that the jail may not reach.
func (b *builder) exposeEntries(source, name, path string) error {
	entries, err := os.ReadDir(source)
	if err != nil && !errors.Is(err, unix.EACCES) {
		return err
	}
	dir, err := mounttree.New("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "mode", "0755")
	if err != nil {
		return err
	}
	if err := b.attachAt(dir, path, true); err != nil {
		return err
	}
	for _, e := range entries {
		from, to := filepath.Join(source, e.Name()), filepath.Join(path, e.Name())
		var err error
		switch {
		case e.Type()&os.ModeSymlink != 0:
			var target string
			if target, err = os.Readlink(from); err == nil {
				err = os.Symlink(target, b.root+to)
			}
		case e.Type().IsRegular(), e.IsDir():
			err = b.expose(from, filepath.Join(name, e.Name()), to)
		}
		if err != nil && !errors.Is(err, unix.EACCES) && !errors.Is(err, errSpecial) {
			return err
		}
	}
	return unix.MountSetattr(unix.AT_FDCWD, b.root+path, 0, &unix.MountAttr{Attr_set: mounttree.ReadOnly})
}

// attachAt attaches a detached mount at path, where a mount point is made unless an earlier one provides it.
func (b *builder) attachAt(mount int, path string, directory bool) error {
	if _, err := os.Lstat(b.root + path); err != nil {
		if err := mounttree.Point(b.root+path, directory); err != nil {
			_ = unix.Close(mount)
			return err
		}
	}
	return mounttree.Attach(mount, b.root+path)
}
