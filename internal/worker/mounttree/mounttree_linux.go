package mounttree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// ReadOnly are the attributes of a tree that is only read: it starts no setuid program and opens no device either.
const ReadOnly = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV

// AgentView is where a program under a uid block sees directories a second time: below it at their own paths, read-only, with
// files of their owners as the agent's. A jail takes its lower layers from there, since only real root makes idmapped mounts.
const AgentView = "/run/bailiwick-agent"

// Scratch is where a program under a uid block has a directory that no other account writes.
const Scratch = "/run/bailiwick-scratch"

// Clone copies the mount at path, with everything mounted below it, as a detached mount.
func Clone(path string) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return -1, &os.PathError{Op: "clone mount of", Path: path, Err: err}
	}
	return fd, nil
}

// SetAttr adds attributes to a detached mount and everything mounted below it. It makes them private: otherwise a mount that
// another one is attached to would still be a peer of the host's, and the host would get the other one, too.
func SetAttr(fd int, attr uint64) error {
	return unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: attr, Propagation: unix.MS_PRIVATE})
}

// Idmap maps the owners of a detached mount by the user namespace userns.
func Idmap(fd, userns int) error {
	return unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns), //nolint:gosec // a descriptor
	})
}

// Owner returns a user namespace that maps one owner on disk to one owner on the host, for [Idmap]. A child creates it that is
// stopped at its exec, before it runs any code, and killed once the namespace is open.
func Owner(uid, gid, toUID, toGID int) (*os.File, error) {
	runtime.LockOSThread() // tracing is by thread
	defer runtime.UnlockOSThread()
	p, err := os.StartProcess("/proc/self/exe", []string{"bailiwick-idmap"}, &os.ProcAttr{Env: []string{}, Sys: &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER, Ptrace: true, Pdeathsig: syscall.SIGKILL,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: toUID, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: gid, HostID: toGID, Size: 1}},
	}})
	if err != nil {
		return nil, fmt.Errorf("make a user namespace: %w", err)
	}
	defer func() { _ = p.Kill(); _, _ = p.Wait() }()
	return os.Open(fmt.Sprintf("/proc/%d/ns/user", p.Pid))
}

// Attach moves a detached mount onto target and closes the descriptor in any case.
func Attach(fd int, target string) error {
	defer func() { _ = unix.Close(fd) }()
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "attach mount at", Path: target, Err: err}
	}
	return nil
}

// Bind shows source at target, which must exist, with the given attributes on every mount below.
func Bind(source, target string, attr uint64) error {
	fd, err := Clone(source)
	if err != nil {
		return err
	}
	if err := SetAttr(fd, attr); err != nil {
		_ = unix.Close(fd)
		return &os.PathError{Op: "restrict mount of", Path: source, Err: err}
	}
	return Attach(fd, target)
}

// New creates a detached mount of a file system type. Options are key, value pairs; an empty value is a flag.
func New(kind string, attr int, options ...string) (int, error) {
	ctx, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("open file system %s: %w", kind, err)
	}
	defer func() { _ = unix.Close(ctx) }()
	for i := 0; i+1 < len(options); i += 2 {
		if options[i+1] == "" {
			err = unix.FsconfigSetFlag(ctx, options[i])
		} else {
			err = unix.FsconfigSetString(ctx, options[i], options[i+1])
		}
		if err != nil {
			return -1, fmt.Errorf("file system %s, option %s=%s: %w", kind, options[i], options[i+1], err)
		}
	}
	if err := unix.FsconfigCreate(ctx); err != nil {
		return -1, fmt.Errorf("create file system %s: %w", kind, err)
	}
	fd, err := unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, attr)
	if err != nil {
		return -1, fmt.Errorf("mount file system %s: %w", kind, err)
	}
	return fd, nil
}

// Point creates target as a mount point: a directory, or an empty file.
func Point(target string, directory bool) error {
	if directory {
		return os.MkdirAll(target, 0o755) //nolint:gosec // the agent reads it
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil { //nolint:gosec // the agent reads it
		return err
	}
	fd, err := unix.Open(target, unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o444)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "make mount point", Path: target, Err: err}
	}
	return unix.Close(fd)
}

// IsDirectory checks an open descriptor, so that what is checked is what gets mounted.
func IsDirectory(fd int) (bool, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, err
	}
	return st.Mode&unix.S_IFMT == unix.S_IFDIR, nil
}
