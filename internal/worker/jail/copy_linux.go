package jail

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The fallback for kernels that refuse the overlay: the owner streams the merged content of the lower directories, and pid 1
// of the jail unpacks it onto the bounded tmpfs before the agent runs.

const streamBuffer = 1 << 16

// pack writes the union of the directories, topmost first, as a tar stream.
func pack(w io.Writer, lower []string) error {
	out := bufio.NewWriterSize(w, streamBuffer)
	t := tar.NewWriter(out)
	if err := packDir(t, ".", lower); err != nil {
		return err
	}
	if err := t.Close(); err != nil {
		return err
	}
	return out.Flush()
}

// packDir writes the merged directory rel of all layers, with the rules of an overlay: the topmost entry of a name wins; a
// directory is merged with those below it down to the first non-directory; a whiteout hides the name in all layers below.
func packDir(t *tar.Writer, rel string, layers []string) error {
	members := map[string][]string{}
	closed := map[string]bool{}
	for _, layer := range layers {
		entries, err := os.ReadDir(layer)
		if err != nil {
			return err
		}
		for _, e := range entries {
			name := e.Name()
			hides, err := isWhiteout(e)
			if err != nil {
				return err
			}
			if closed[name] || hides || !e.IsDir() && len(members[name]) > 0 {
				closed[name] = true
				continue
			}
			members[name] = append(members[name], filepath.Join(layer, name))
			closed[name] = !e.IsDir()
		}
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if err := packEntry(t, path.Join(rel, name), members[name]); err != nil {
			return err
		}
	}
	return nil
}

// isWhiteout reports whether e is a character device 0:0.
func isWhiteout(e os.DirEntry) (bool, error) {
	if e.Type()&os.ModeCharDevice == 0 {
		return false, nil
	}
	info, err := e.Info()
	if err != nil {
		return false, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Rdev == 0, nil
}

func packEntry(t *tar.Writer, rel string, at []string) error {
	st, err := os.Lstat(at[0])
	if err != nil {
		return err
	}
	header := &tar.Header{Name: rel, Mode: int64(st.Mode().Perm()), ModTime: st.ModTime(), Format: tar.FormatPAX}
	switch {
	case st.IsDir():
		header.Typeflag = tar.TypeDir
		if err := t.WriteHeader(header); err != nil {
			return err
		}
		return packDir(t, rel, at)
	case st.Mode()&os.ModeSymlink != 0:
		header.Typeflag = tar.TypeSymlink
		if header.Linkname, err = os.Readlink(at[0]); err != nil {
			return err
		}
		return t.WriteHeader(header)
	case st.Mode().IsRegular():
		return packFile(t, header, at[0])
	default:
		return fmt.Errorf("%s is not a file, directory or symbolic link: remove it from the lower directory", at[0])
	}
}

func packFile(t *tar.Writer, header *tar.Header, name string) error {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0) //nolint:gosec // below a lower directory that the caller named
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	header.Typeflag, header.Size = tar.TypeReg, st.Size()
	if err := t.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.CopyN(t, f, st.Size())
	return err
}

// unpack writes a stream of pack below dir, owned by owner. Every path is resolved beneath dir.
func unpack(f *os.File, dir string, owner int) error {
	defer func() { _ = f.Close() }()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	in := tar.NewReader(bufio.NewReaderSize(f, streamBuffer))
	type stamp struct {
		header *tar.Header
		name   string
	}
	var directories []stamp
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(header.Name, "/")
		if err := unpackEntry(root, in, header, name, owner); err != nil {
			return fmt.Errorf("write %q: %w", name, err)
		}
		if header.Typeflag == tar.TypeDir {
			directories = append(directories, stamp{header, name})
		}
	}
	for _, d := range slices.Backward(directories) {
		mode := os.FileMode(d.header.Mode & 0o777) //nolint:gosec // nine bits
		if err := errors.Join(root.Chmod(d.name, mode), root.Chtimes(d.name, d.header.ModTime, d.header.ModTime)); err != nil {
			return err
		}
	}
	return nil
}

func unpackEntry(root *os.Root, in io.Reader, header *tar.Header, name string, owner int) error {
	mode := os.FileMode(header.Mode & 0o777) //nolint:gosec // nine bits
	switch header.Typeflag {
	case tar.TypeDir:
		return errors.Join(root.Mkdir(name, 0o700), root.Lchown(name, owner, owner))
	case tar.TypeSymlink:
		return errors.Join(root.Symlink(header.Linkname, name), root.Lchown(name, owner, owner))
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, in)
		err = errors.Join(err, f.Chmod(mode), f.Chown(owner, owner), f.Close())
		return errors.Join(err, root.Chtimes(name, header.ModTime, header.ModTime))
	default:
		return fmt.Errorf("entry of type %q in the stream", header.Typeflag)
	}
}
