package jail

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/worker/mounttree"
)

// workspace creates /workspace: an overlay over the lower directories, or a copy of them if the kernel refuses that.
func (b *builder) workspace() error {
	target := b.root + WorkspaceDir
	if err := os.Mkdir(target, 0o755); err != nil { //nolint:gosec // the agent reads it
		return err
	}
	if b.setup.Copy {
		b.layers = append(b.layers, "workspace: copy")
		if err := unpack(os.NewFile(uintptr(b.stream), "workspace stream"), b.stage+"/upper", b.ids.agent); err != nil {
			return fmt.Errorf("copy into the workspace: %w", err)
		}
		return b.bindWritable("upper", WorkspaceDir)
	}
	if len(b.setup.Lower) == 0 {
		b.layers = append(b.layers, "workspace: empty")
		return b.bindWritable("upper", WorkspaceDir)
	}
	if err := b.overlay(target); err != nil {
		return &overlayError{err}
	}
	b.layers = append(b.layers, "workspace: overlay")
	return nil
}

// overlayError tells the owner to retry with a copy.
type overlayError struct{ err error }

func (e *overlayError) Error() string { return "overlay: " + e.err.Error() }
func (e *overlayError) Unwrap() error { return e.err }

func (b *builder) overlay(target string) error {
	// Without user xattrs on tmpfs (before Linux 6.6) an overlay cannot tell a replaced directory from a merged one.
	probe := b.stage + "/upper"
	if err := unix.Setxattr(probe, "user.bailiwick", []byte("x"), 0); err != nil {
		return fmt.Errorf("extended attributes on tmpfs: %w", err)
	}
	if err := unix.Removexattr(probe, "user.bailiwick"); err != nil {
		return fmt.Errorf("extended attributes on tmpfs: %w", err)
	}
	layers := make([]string, 0, len(b.setup.Lower))
	for i, path := range b.setup.Lower {
		point := b.stage + "/lower/" + strconv.Itoa(i) // our own name: a host path may contain separators of the option
		if err := os.Mkdir(point, 0o755); err != nil { //nolint:gosec // a mount point
			return err
		}
		fd, err := b.lowerTree(i, path)
		if err != nil {
			return err
		}
		if err := mounttree.Attach(fd, point); err != nil {
			return err
		}
		layers = append(layers, point)
	}
	fd, err := mounttree.New("overlay", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV,
		"userxattr", "", "xino", "off", "lowerdir", strings.Join(layers, ":"), "upperdir", b.stage+"/upper", "workdir", b.stage+"/work")
	if err != nil {
		return err
	}
	if b.upper, err = unix.Open(b.stage+"/upper", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("open the writable layer: %w", err)
	}
	return mounttree.Attach(fd, target)
}

func (b *builder) lowerTree(i int, path string) (int, error) {
	if b.setup.Root {
		return b.lower[i], nil
	}
	fd, err := mounttree.Clone(path)
	if err != nil {
		return -1, err
	}
	if err := mounttree.SetAttr(fd, mounttree.ReadOnly); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func isOverlay(err error) bool {
	var o *overlayError
	return errors.As(err, &o)
}
