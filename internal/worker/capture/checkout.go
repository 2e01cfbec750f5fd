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

// Checkout writes the files of a commit or tree (full object name; "" is the
// empty tree) into dir, which exists and is empty. Content is the blobs' exact
// bytes, each verified against its name: no attribute, filter or configuration
// applies, and no hook runs. Submodules are empty directories. Files are 0644 or
// 0755, directories 0755, and belong to this process.
func (r *Repo) Checkout(ctx context.Context, treeish, dir string) (err error) {
	defer wrap(&err, "checkout of "+treeish)
	return r.layer(ctx, "", treeish, dir)
}

// wrap prefixes the error of a function with what it does.
func wrap(err *error, what string) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", what, *err)
	}
}

func submodule(p string) api.LeftOut {
	return api.LeftOut{Path: Printable(p), Why: "a submodule; it is not fetched, its directory is empty"}
}

// writeTree writes files, as the last request to o.
func (o *objects) writeTree(w *treeWriter, files []treeFile) error {
	requested := make(chan struct{})
	go func() { // ends when all is requested, or close has killed git
		defer close(requested)
		in := bufio.NewWriterSize(o.in, 1<<15)
		for _, f := range files {
			if f.mode != modeGitlink {
				_, _ = in.WriteString("contents " + f.id + "\n") // in keeps its error; missing answers are found below
			}
		}
		_, _ = in.WriteString("flush\n")
		_ = in.Flush()
	}()
	defer func() { o.close(); <-requested }()
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
		return o.repo.incomplete(err)
	}
	if id != f.id || kind != "blob" {
		return fmt.Errorf("object %s: is a %s, want a blob", f.id, Printable(kind))
	}
	// The size is that of fits, unless somebody exchanges objects of the source.
	if w.written += min(onDisk(size), maxBytes); w.most > 0 && w.written > w.most {
		return &TooLargeError{Bytes: w.written, Limit: w.most, Largest: f.path, LargestBytes: size}
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
		return fmt.Errorf("object %s: content does not match its name (%s)", id, got)
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

// treeWriter creates files below root, one directory at a time. It never opens an
// existing file and follows no symbolic link.
type treeWriter struct {
	root *os.File
	dir  int // descriptor of the directory at, or -1
	at   string
	buf  [64 << 10]byte

	most, written int64 // bytes; most zero: no bound
}

func (w *treeWriter) close() {
	if w.dir >= 0 {
		_ = unix.Close(w.dir)
	}
	_ = w.root.Close()
}

// enter makes p the current directory, creating missing directories.
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
	f := os.NewFile(uintptr(fd), name)
	n, err := io.CopyBuffer(struct{ io.Writer }{f}, content, w.buf[:])
	if err == nil && n != size {
		err = fmt.Errorf("git cat-file: %w", io.ErrUnexpectedEOF)
	}
	if err == nil {
		err = unix.Fchmod(fd, perm) // independent of the umask
	}
	return errors.Join(err, f.Close())
}

// openDir opens a directory of ours.
func openDir(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return os.NewFile(uintptr(fd), dir), nil
}

// newTreeWriter opens dir, which must exist and be empty.
func newTreeWriter(dir string) (*treeWriter, error) {
	root, err := openDir(dir)
	if err != nil {
		return nil, err
	}
	if names, _ := root.Readdirnames(1); len(names) > 0 {
		return nil, errors.Join(fmt.Errorf("%s: not empty", dir), root.Close())
	}
	return &treeWriter{root: root, dir: -1}, nil
}
