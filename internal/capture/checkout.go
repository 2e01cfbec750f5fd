package capture

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
)

// CheckedOut says what a checkout put down.
type CheckedOut struct {
	Tree       string        // object name
	Files      int           // files and symbolic links
	Submodules []api.LeftOut // submodules: empty directories, nothing was fetched
}

// Checkout writes the files of a commit or tree (full object name; "" is the
// empty tree) into dir, which exists and is empty. Content is the blobs' exact
// bytes, each verified against its name: no filter, line ending conversion or
// keyword of any attribute or configuration applies, and no hook runs. Files
// are 0644 or 0755, directories 0755, and belong to this process.
func (r *Repo) Checkout(ctx context.Context, treeish, dir string) (CheckedOut, error) {
	o, err := r.openObjects(ctx)
	if err != nil {
		return CheckedOut{}, fmt.Errorf("checkout: %w", err)
	}
	defer o.close()
	t, err := o.tree(treeish)
	if err != nil {
		return CheckedOut{}, fmt.Errorf("checkout: %w", err)
	}
	done := CheckedOut{Tree: t.id}
	w, err := newTreeWriter(dir)
	if err != nil {
		return done, fmt.Errorf("checkout into %w", err)
	}
	defer w.close()
	if err := o.writeTree(w, t.files); err != nil {
		return done, fmt.Errorf("checkout of %s: %w", t.id, err)
	}
	for _, p := range t.gitlinks {
		if err := w.enter(p); err != nil {
			return done, fmt.Errorf("checkout of %s: %w", Printable(p), err)
		}
		done.Submodules = append(done.Submodules, submodule(p))
	}
	done.Files = len(t.files) - len(t.gitlinks)
	return done, nil
}

func submodule(p string) api.LeftOut {
	return api.LeftOut{Path: Printable(p), Why: "a submodule; it is not fetched, its directory is empty"}
}

// writeTree writes files. It is the last thing that is asked of o.
func (o *objects) writeTree(w *treeWriter, files []treeFile) error {
	asked := make(chan struct{})
	go func() { // ends when all is asked for, or close has ended git
		defer close(asked)
		in := bufio.NewWriterSize(o.in, 1<<15)
		for _, f := range files {
			if f.mode != modeGitlink {
				_, _ = in.WriteString("contents " + f.id + "\n") // in keeps its error; what is not asked for is missed below
			}
		}
		_, _ = in.WriteString("flush\n")
		_ = in.Flush()
	}()
	defer func() { o.close(); <-asked }()
	for _, f := range files {
		if f.mode == modeGitlink {
			continue
		}
		if err := o.writeFile(w, f); err != nil {
			return fmt.Errorf("%s: %w", Printable(f.path), err)
		}
	}
	return nil
}

func (o *objects) writeFile(w *treeWriter, f treeFile) error {
	id, kind, size, err := o.next()
	if err != nil {
		return err
	}
	if id != f.id || kind != "blob" {
		return fmt.Errorf("object %s: a %s where a file should be", f.id, Printable(kind))
	}
	if err := w.enter(parent(f.path)); err != nil {
		return err
	}
	h := o.repo.objectHash("blob", size)
	content := io.TeeReader(io.LimitReader(o.out, size), h)
	if f.mode == modeLink {
		err = w.link(path.Base(f.path), content, size)
	} else {
		err = w.file(path.Base(f.path), content, size, f.mode&0o777)
	}
	if err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != id {
		return fmt.Errorf("object %s: the repository has other content under this name (%s)", id, got)
	}
	if _, err := o.out.Discard(1); err != nil {
		return fmt.Errorf("git cat-file: %w", err)
	}
	return nil
}

func parent(p string) string {
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		return p[:i]
	}
	return ""
}

// treeWriter makes files below root, one directory at a time. It creates and
// never opens what is there, and follows no symbolic link.
type treeWriter struct {
	root *os.File
	dir  int // handle of the directory at, or -1
	at   string
	buf  [64 << 10]byte
}

func (w *treeWriter) close() {
	if w.dir >= 0 {
		_ = unix.Close(w.dir)
	}
	_ = w.root.Close()
}

// enter makes p the current directory, creating what is missing of it.
func (w *treeWriter) enter(p string) error {
	if w.dir >= 0 && w.at == p {
		return nil
	}
	fd, err := openBelow(int(w.root.Fd()), dot(p), unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOENT) && p != "" {
		if err := w.enter(parent(p)); err != nil {
			return err
		}
		if err := unix.Mkdirat(w.dir, path.Base(p), 0o755); err != nil {
			return fmt.Errorf("make directory: %w", err)
		}
		if fd, err = openBelow(w.dir, path.Base(p), unix.O_RDONLY|unix.O_DIRECTORY); err == nil {
			err = unix.Fchmod(fd, 0o755)
		}
	}
	if err != nil {
		return fmt.Errorf("open directory: %w", err)
	}
	if w.dir >= 0 {
		_ = unix.Close(w.dir)
	}
	w.dir, w.at = fd, p
	return nil
}

func dot(p string) string {
	if p == "" {
		return "."
	}
	return p
}

func (w *treeWriter) link(name string, content io.Reader, size int64) error {
	if size < 1 || size >= unix.PathMax {
		return fmt.Errorf("symbolic link with a target of %d bytes", size)
	}
	target, err := io.ReadAll(content)
	if err != nil || int64(len(target)) != size {
		return errors.Join(errors.New("git cat-file: short answer"), err)
	}
	if strings.IndexByte(string(target), 0) >= 0 {
		return errors.New("symbolic link whose target has a NUL")
	}
	return unix.Symlinkat(string(target), w.dir, name)
}

func (w *treeWriter) file(name string, content io.Reader, size int64, perm uint32) error {
	fd, err := unix.Openat(w.dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, perm)
	if err != nil {
		return err
	}
	defer func() {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}()
	for left := size; left > 0; {
		n, err := io.ReadFull(content, w.buf[:min(left, int64(len(w.buf)))])
		if err != nil {
			return fmt.Errorf("git cat-file: %w", err)
		}
		for b := w.buf[:n]; len(b) > 0; {
			m, err := unix.Write(fd, b)
			if err != nil && !errors.Is(err, unix.EINTR) {
				return err
			}
			b = b[max(m, 0):]
		}
		left -= int64(n)
	}
	if err := unix.Fchmod(fd, perm); err != nil { // whatever the umask
		return err
	}
	err = unix.Close(fd)
	fd = -1
	return err
}
