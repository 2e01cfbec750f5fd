package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/base/mountinfo"
	"github.com/bailiwick-dev/bailiwick/internal/worker/mounttree"
)

// The root of a jail, built by its pid 1. Everything writable is on one tmpfs with hard limits:
//
//	STAGE/root    a tmpfs of its own, read-only as /       STAGE/upper, work   the workspace's copy-on-write layer
//	STAGE/tmp     /tmp                                     STAGE/home          /home/agent
//	STAGE/shm     /dev/shm                                 STAGE/lower/N       where the workspace's layers are attached
//	STAGE/empty   an empty directory                       STAGE/extra/N       where root's shown paths are attached
//	STAGE/beside  where overlays for single files are attached, one upon another
//	STAGE/proc    a tmpfs of its own, with what /proc shows in the place of the kernel's files
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
	mounts mountinfo.Table // where the host has mounts, and the jail its own below STAGE
	stream int             // tar of the workspace, or -1
	home   int             // tar of the home directory, or -1
	upper  int             // descriptor of the overlay's writable layer, or -1
	layers []string
	beside map[string]int // open overlays of directories with single files that are shown; -1: it has none
	bound  int            // how many of those have no overlay
}

// skeletonFiles returns the number of inodes that building takes, beyond those the jail may create.
func (s *setup) skeletonFiles() int { return 40 + len(s.Lower) + len(s.Shown) }

func (b *builder) build() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return missing("user namespace", err)
	}
	steps := []struct {
		layer string
		do    func() error
	}{
		{"private root", b.writable},
		{exposeLayer, b.toolchain},
		{"private root", b.etc},
		{"private /dev", b.dev},
		{"private /proc", b.proc},
		{exposeLayer, b.shownPaths},
		{"workspace", b.workspace},
		{"private root", b.finish},
	}
	defer func() {
		for _, fd := range b.beside {
			if fd >= 0 {
				_ = unix.Close(fd)
			}
		}
	}()
	for _, step := range steps {
		if err := step.do(); err != nil {
			return missing(step.layer, err)
		}
	}
	b.layers = append(b.layers, "private root (pivot_root, read-only, nosuid, nodev)", exposeLayer, "private /dev", "private /proc (hidepid)")
	if b.bound > 0 {
		b.layers = append(b.layers, fmt.Sprintf("host files by bind, which share locks with the host: %d", b.bound))
	}
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
	fd, err := mounttree.New("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV,
		"size", strconv.FormatInt(b.setup.Limits.Disk, 10),
		"nr_inodes", strconv.Itoa(b.setup.Limits.Files+b.setup.skeletonFiles()), "mode", "0711")
	if err != nil {
		return err
	}
	if err := mounttree.Attach(fd, b.stage); err != nil {
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
		{"extra", 0o755, false},
		{"empty", 0o555, false},
		{"proc", 0o755, false},
		{"beside", 0o755, false},
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
	skeleton, err := mounttree.New("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "mode", "0755")
	if err != nil {
		return err
	}
	if err := mounttree.Attach(skeleton, b.root); err != nil {
		return err
	}
	return b.attachExtra()
}

// attachExtra attaches the shown paths that came as descriptors, and then lists all mounts.
func (b *builder) attachExtra() (err error) {
	for i, fd := range b.extra {
		point := b.extraPath(i)
		directory, err := mounttree.IsDirectory(fd)
		if err == nil {
			err = mounttree.Point(point, directory)
		}
		if err != nil {
			_ = unix.Close(fd)
			return err
		}
		if err := mounttree.Attach(fd, point); err != nil {
			return err
		}
	}
	b.mounts, err = mountinfo.Read()
	return err
}

func (b *builder) extraPath(i int) string { return b.stage + "/extra/" + strconv.Itoa(i) }

// toolchain shows the host's program directories, or copies their symbolic links.
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
		if err := b.expose(path, path, path); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) shownPaths() error {
	for i, m := range b.setup.Shown {
		source := m.Host
		if b.setup.Root {
			source = b.extraPath(i)
		}
		if strings.HasPrefix(m.Jail, "/tmp/") {
			if err := b.bindTmp(); err != nil {
				return err
			}
		}
		if err := b.expose(source, m.Host, m.Jail); err != nil {
			return fmt.Errorf("show %s at %s: %w", m.Host, m.Jail, err)
		}
	}
	return nil
}

// bindTmp provides /tmp, a mount of its own that read-only paths below it need first.
func (b *builder) bindTmp() error {
	if _, err := os.Lstat(b.root + "/tmp"); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return b.bindWritable("tmp", "/tmp")
}

func (b *builder) bindWritable(name, target string) error {
	if err := os.MkdirAll(b.root+target, 0o755); err != nil { //nolint:gosec // the agent reads it
		return err
	}
	return mounttree.Bind(filepath.Join(b.stage, name), b.root+target, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
}

// finish makes the skeleton read-only, pivots, and unmounts the host's root.
func (b *builder) finish() error {
	if err := b.bindTmp(); err != nil {
		return err
	}
	if b.setup.Home {
		if err := unpack(os.NewFile(uintptr(b.home), "home stream"), b.stage+"/home", b.ids.agent); err != nil { //nolint:gosec // a descriptor
			return fmt.Errorf("home directory: %w", err)
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
	if err := unix.MountSetattr(unix.AT_FDCWD, b.root, 0, &unix.MountAttr{Attr_set: mounttree.ReadOnly}); err != nil {
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
