package deploy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
)

const setupScript = "setup.sh"

// errMoved means that a file was replaced between Lstat and Open.
var errMoved = errors.New("changed while it was being read")

// bundle reads the files of a capability.
func (r *reader) bundle(d *decl, from string, v *api.Capability) {
	refuse := func(format string, args ...any) { r.At(d.at("from"), d.label()+": from: "+format, args...) }
	dir, err := openDir(r.root, from)
	if err != nil {
		refuse("%v", besideManifest(err))
		return
	}
	b := &bundleReader{ctx: r.ctx, refuse: refuse}
	b.walk(dir, from, "")
	if err := dir.Close(); err != nil {
		refuse("%v", err)
	}
	slices.SortFunc(b.files, func(x, y api.File) int { return strings.Compare(x.Path, y.Path) })
	v.Files = b.files
	for i, f := range v.Files {
		if f.Path == setupScript {
			v.Setup, v.Files[i].Mode = setupScript, 0o755
		}
		r.m.files[f.Digest] = staged{from, f}
	}
	if len(v.Files) == 0 && !b.stop {
		refuse("%s contains no files", from)
	}
}

// besideManifest says where a missing file should be.
func besideManifest(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w; paths are relative to the manifest's directory", err)
	}
	return err
}

// file returns the text of a file in the manifest's directory.
func (r *reader) file(d *decl, n *yaml.Node, what string) string {
	name := r.Line(n, what)
	if name == "" {
		return ""
	}
	refuse := func(err error) string {
		r.At(n, "%s: %s: %v", d.label(), what, besideManifest(err))
		return ""
	}
	dir, err := openDir(r.root, path.Dir(filepath.ToSlash(name)))
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%s: %w", strictyaml.Clip(name), syscall.ENOENT)
	}
	if err != nil {
		return refuse(err)
	}
	b, err := readRegular(dir, path.Base(filepath.ToSlash(name)), strictyaml.MaxText)
	if err = errors.Join(err, dir.Close()); err == nil {
		err = strictyaml.CheckText(string(b))
	}
	if err != nil {
		return refuse(fmt.Errorf("%s: %w", strictyaml.Clip(name), err))
	}
	return string(b)
}

type bundleReader struct {
	ctx    context.Context
	refuse func(format string, args ...any)
	files  []api.File
	total  int64
	stop   bool // a limit was exceeded, or the context is done
}

// walk reads dir, whose path is rel in the bundle and from/rel in messages.
func (b *bundleReader) walk(dir *os.Root, from, rel string) {
	names, err := namesIn(dir)
	if err != nil {
		b.refuse("%s: %v", path.Join(from, rel), err)
	}
	for _, name := range names {
		if b.stop = b.stop || b.ctx.Err() != nil; b.stop {
			return
		}
		p := path.Join(rel, name)
		if err := catalog.CheckPath(p); err != nil {
			b.refuse("%q: %v", path.Join(from, p), err)
		} else if err := b.entry(dir, name, from, p); err != nil {
			b.refuse("%s: %v", path.Join(from, p), err)
		}
	}
}

// entry reads one file or directory.
func (b *bundleReader) entry(dir *os.Root, name, from, p string) error {
	st, err := dir.Lstat(name)
	switch {
	case err != nil:
		return err
	case st.IsDir():
		sub, err := descend(dir, name)
		if err == nil {
			b.walk(sub, from, p)
			_ = sub.Close() // read only
		}
		return err
	case st.Mode().IsRegular():
		return b.add(dir, name, p)
	}
	return fmt.Errorf("is %s; a capability may contain regular files only", typeOf(st.Mode()))
}

func (b *bundleReader) add(dir *os.Root, name, p string) error {
	if len(b.files) == catalog.MaxFiles {
		b.stop = true
		return fmt.Errorf("more than %d files", catalog.MaxFiles)
	}
	f, err := openRegular(dir, name)
	if err != nil {
		return err
	}
	sum := sha256.New()
	// One byte more than the limit detects a larger file.
	n, err := io.Copy(sum, io.LimitReader(f.File, catalog.MaxBundle-b.total+1))
	b.total += n
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if b.total > catalog.MaxBundle {
		b.stop = true
		return fmt.Errorf("with this file the capability is larger than %d MiB", catalog.MaxBundle>>20)
	}
	mode := uint32(0o644)
	if f.mode&0o100 != 0 {
		mode = 0o755
	}
	b.files = append(b.files, api.File{Path: p, Mode: mode, Size: n, Digest: api.Digest("sha256:" + hex.EncodeToString(sum.Sum(nil)))})
	return nil
}

// openDir opens a directory below root without following links.
func openDir(root *os.Root, rel string) (*os.Root, error) {
	clean := filepath.ToSlash(filepath.Clean(rel))
	if filepath.IsAbs(rel) || strings.HasPrefix(rel, "/") {
		return nil, fmt.Errorf("%q is absolute; paths are relative to the manifest", strictyaml.Clip(rel))
	}
	if clean == ".." || strings.HasPrefix(clean, "../") {
		return nil, fmt.Errorf("%q leads out of the manifest's directory", strictyaml.Clip(rel))
	}
	at, err := root.OpenRoot(".")
	if err != nil {
		return nil, err
	}
	if clean == "." {
		return at, nil
	}
	for part := range strings.SplitSeq(clean, "/") {
		next, err := descend(at, part)
		if err = errors.Join(err, at.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", strictyaml.Clip(rel), err)
		}
		at = next
	}
	return at, nil
}

// descend opens a directory in dir, and refuses a link to one.
func descend(dir *os.Root, name string) (*os.Root, error) {
	st, err := dir.Lstat(name)
	if err != nil {
		return nil, plainErr(err)
	}
	if !st.IsDir() {
		return nil, fmt.Errorf("%s is %s, want a directory", strictyaml.Clip(name), typeOf(st.Mode()))
	}
	sub, err := dir.OpenRoot(name)
	if err != nil {
		return nil, plainErr(err)
	}
	if now, err := sub.Stat("."); err != nil || !os.SameFile(st, now) {
		return nil, errors.Join(errMoved, sub.Close())
	}
	return sub, nil
}

type regular struct {
	*os.File
	mode fs.FileMode
}

// openRegular opens a regular file in dir, and refuses a link to one.
func openRegular(dir *os.Root, name string) (*regular, error) {
	st, err := dir.Lstat(name)
	if err != nil {
		return nil, plainErr(err)
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("is %s, want a regular file", typeOf(st.Mode()))
	}
	f, err := dir.OpenFile(name, os.O_RDONLY|durable.Nonblock, 0)
	if err != nil {
		return nil, plainErr(err)
	}
	now, err := f.Stat()
	if err != nil || !now.Mode().IsRegular() || !os.SameFile(st, now) {
		return nil, errors.Join(errMoved, f.Close())
	}
	return &regular{f, now.Mode()}, nil
}

func readRegular(dir *os.Root, name string, limit int64) ([]byte, error) {
	f, err := openRegular(dir, name)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f.File, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("larger than %d KiB", limit>>10)
	}
	return b, errors.Join(err, f.Close())
}

func namesIn(dir *os.Root) ([]string, error) {
	d, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(catalog.MaxFiles + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err == nil && len(names) > catalog.MaxFiles {
		err = fmt.Errorf("more than %d files", catalog.MaxFiles)
	}
	if err = errors.Join(err, d.Close()); err != nil {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}

// plainErr drops the name of the system call and the path from an error.
func plainErr(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

func typeOf(m fs.FileMode) string {
	switch {
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	case m.IsDir():
		return "a directory"
	case m&fs.ModeNamedPipe != 0:
		return "a fifo"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	case m.IsRegular():
		return "a regular file"
	}
	return "not a regular file"
}
