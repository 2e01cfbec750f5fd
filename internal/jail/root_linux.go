package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The root of a jail, built by its pid 1. Everything writable is on one tmpfs with hard limits:
//
//	STAGE/root    the skeleton, bound read-only as /       STAGE/upper, work   the workspace's copy-on-write layer
//	STAGE/tmp     /tmp                                     STAGE/home          /home/agent
//	STAGE/shm     /dev/shm                                 STAGE/lower/N       where the read-only layers are attached
//
// Once the old root is unmounted, the tmpfs is reachable only through those binds.

// ids are the uids, equal to the gids, inside the jail.
type ids struct{ init, agent int }

const (
	agentID = 1000
	rootID  = 0
)

func (s *setup) ids() ids {
	if s.Root {
		return ids{init: rootID, agent: agentID}
	}
	return ids{init: agentID, agent: agentID}
}

type builder struct {
	setup  *setup
	ids    ids
	stage  string
	root   string
	lower  []int // detached mounts
	extra  []int
	stream int // tar of the workspace, or -1
	upper  int // descriptor of the overlay's writable layer, or -1
	layers []string
}

// skeletonFiles returns the number of inodes that building takes, beyond those the jail may create; each bound path takes a
// few directories.
func (s *setup) skeletonFiles() int { return 80 + len(s.Lower) + 8*len(s.ReadOnly) }

func (b *builder) build() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return missing("user namespace", err)
	}
	steps := []struct {
		layer string
		do    func() error
	}{
		{"private root", b.writable},
		{"private root", b.toolchain},
		{"private root", b.etc},
		{"private /dev", b.dev},
		{"private /proc", b.proc},
		{"private root", b.readOnlyPaths},
		{"workspace", b.workspace},
		{"private root", b.finish},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			return missing(step.layer, err)
		}
	}
	b.layers = append(b.layers, "private root (pivot_root, read-only, nosuid, nodev)", "private /dev", "private /proc (hidepid)")
	return nil
}

func (b *builder) writable() error {
	for _, stage := range []string{"/sys", "/mnt", "/run"} {
		if st, err := os.Lstat(stage); err == nil && st.IsDir() {
			b.stage = stage
			break
		}
	}
	if b.stage == "" {
		return errors.New("the host has none of /sys, /mnt and /run to build on")
	}
	fd, err := newFilesystem("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV,
		"size", strconv.FormatInt(b.setup.Limits.Disk, 10),
		"nr_inodes", strconv.Itoa(b.setup.Limits.Files+b.setup.skeletonFiles()), "mode", "0711")
	if err != nil {
		return err
	}
	if err := attach(fd, b.stage); err != nil {
		return err
	}
	b.root = b.stage + "/root"
	for _, dir := range []struct {
		name  string
		mode  os.FileMode
		agent bool
	}{
		{"root", 0o755, false},
		{"lower", 0o755, false},
		{"empty", 0o555, false},
		{"work", 0o755, false},
		{"upper", 0o755, true},
		{"home", 0o700, true},
		{"tmp", 0o700, true},
		{"shm", 0o700, true},
	} {
		path := filepath.Join(b.stage, dir.name)
		if err := os.Mkdir(path, dir.mode); err != nil {
			return err
		}
		if dir.agent {
			if err := os.Chown(path, b.ids.agent, b.ids.agent); err != nil {
				return err
			}
		}
	}
	return bind(b.root, b.root, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
}

// toolchain binds the host's program directories, or copies their symbolic links.
func (b *builder) toolchain() error {
	for _, path := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		st, err := os.Lstat(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if st.Mode()&os.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			if err := os.Symlink(target, b.root+path); err != nil {
				return err
			}
			continue
		}
		if err := b.show(path); err != nil {
			return err
		}
	}
	return nil
}

// show binds a host path read-only at the same path.
func (b *builder) show(path string) error {
	fd, err := cloneTree(path)
	if err != nil {
		return err
	}
	return b.showTree(fd, path)
}

func (b *builder) showTree(fd int, path string) error {
	directory, err := isDirectory(fd)
	if err == nil {
		err = setAttr(fd, readOnlyBind)
	}
	if err == nil && !b.covered(path) {
		err = mountPoint(b.root+path, directory)
	}
	if err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("show %s: %w", path, err)
	}
	return attach(fd, b.root+path)
}

// covered reports whether an earlier read-only bind already provides path.
func (b *builder) covered(path string) bool {
	_, err := os.Lstat(b.root + path)
	return err == nil
}

func (b *builder) readOnlyPaths() error {
	for i, path := range b.setup.ReadOnly {
		fd, err := b.extraTree(i, path)
		if err != nil {
			return err
		}
		if strings.HasPrefix(path, "/tmp/") {
			if err := b.tmpMountPoint(fd, path); err != nil {
				return err
			}
			continue
		}
		if err := b.showTree(fd, path); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) extraTree(i int, path string) (int, error) {
	if b.setup.Root {
		return b.extra[i], nil
	}
	return cloneTree(path)
}

// tmpMountPoint binds a read-only path below /tmp, which is a mount of its own and must be bound first.
func (b *builder) tmpMountPoint(fd int, path string) error {
	if _, err := os.Lstat(b.root + "/tmp"); errors.Is(err, os.ErrNotExist) {
		if err := b.bindWritable("tmp", "/tmp"); err != nil {
			_ = unix.Close(fd)
			return err
		}
	}
	return b.showTree(fd, path)
}

func (b *builder) bindWritable(name, target string) error {
	if err := os.MkdirAll(b.root+target, 0o755); err != nil { //nolint:gosec // the agent reads it
		return err
	}
	return bind(filepath.Join(b.stage, name), b.root+target, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
}

// finish makes the skeleton read-only, pivots, and unmounts the host's root.
func (b *builder) finish() error {
	if _, err := os.Lstat(b.root + "/tmp"); errors.Is(err, os.ErrNotExist) {
		if err := b.bindWritable("tmp", "/tmp"); err != nil {
			return err
		}
	}
	if err := b.bindWritable("home", HomeDir); err != nil {
		return err
	}
	if err := os.MkdirAll(b.root+"/run", 0o755); err != nil { //nolint:gosec // the agent reads it
		return err
	}
	if err := unix.Chdir(b.root); err != nil {
		return err
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, b.root, 0, &unix.MountAttr{Attr_set: readOnlyBind}); err != nil {
		return fmt.Errorf("make the root read-only: %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("drop the host's root: %w", err)
	}
	return unix.Chdir("/")
}
