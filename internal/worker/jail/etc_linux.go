package jail

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/worker/mounttree"
)

// etc writes a minimal /etc, copies the few host files that common programs need, and shows such directories. It identifies no user of the host and
// has no resolver: the broker resolves names.
func (b *builder) etc() error {
	dir := b.root + "/etc"
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // the agent reads it
		return err
	}
	for name, text := range map[string]string{
		"passwd": "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\nagent:x:1000:1000:agent:" + HomeDir +
			":/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"group":         "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n",
		"hosts":         "127.0.0.1 localhost jail\n::1 localhost jail\n",
		"hostname":      hostName + "\n",
		"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
	} {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o444); err != nil { //nolint:gosec // meant to be read by all
			return err
		}
	}
	for _, path := range []string{
		"/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/ca-certificates",
	} {
		source, err := filepath.EvalSymlinks(path)
		if err != nil {
			continue // hosts differ; none of these is needed for isolation
		}
		st, err := os.Lstat(source)
		if err == nil && st.Mode().IsRegular() {
			err = b.copyFile(source, path)
		} else if err == nil {
			err = b.expose(source, source, path)
		}
		if err != nil {
			return err
		}
	}
	return b.localtime()
}

// copyFile copies a small file of the host, which so has no inode in common with it.
func (b *builder) copyFile(source, path string) error {
	text, err := os.ReadFile(source) //nolint:gosec // one of a few names
	if err != nil {
		return err
	}
	return os.WriteFile(b.root+path, text, 0o444) //nolint:gosec // meant to be read by all
}

func (b *builder) localtime() error {
	const path = "/etc/localtime"
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case st.Mode()&os.ModeSymlink == 0:
		return b.copyFile(path, path)
	}
	target, err := os.Readlink(path)
	if err != nil {
		return err
	}
	return os.Symlink(target, b.root+path)
}

func (b *builder) dev() error {
	dev := b.root + "/dev"
	if err := os.Mkdir(dev, 0o755); err != nil { //nolint:gosec // the agent reads it
		return err
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom"} {
		if err := mounttree.Point(dev+"/"+name, false); err != nil {
			return err
		}
		if err := mounttree.Bind("/dev/"+name, dev+"/"+name, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
		"ptmx": "pts/ptmx",
	} {
		if err := os.Symlink(target, dev+"/"+name); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dev+"/pts", 0o755); err != nil { //nolint:gosec // the agent reads it
		return err
	}
	pts, err := mounttree.New("devpts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, "ptmxmode", "0666", "mode", "0600", "max", "64")
	if err != nil {
		return err
	}
	if err := mounttree.Attach(pts, dev+"/pts"); err != nil {
		return err
	}
	return b.bindWritable("shm", "/dev/shm")
}

const hostName = "jail"
