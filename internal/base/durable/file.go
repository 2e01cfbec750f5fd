package durable

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Temp is a file under a temporary name. Its writer ends with Replace, Rename
// or Create. They also close the file, or remove it when passed the error of a
// failed write.
type Temp struct {
	*os.File

	// Synced and Placed, where set, are called when the content is durable, and
	// when the file has its final name, which is not durable yet.
	Synced, Placed func()

	dir  directory
	name string
	mode fs.FileMode
}

// directory is what *os.Root and the functions of package os have in common.
type directory interface {
	Open(name string) (*os.File, error)
	OpenFile(name string, flag int, mode fs.FileMode) (*os.File, error)
	Rename(from, to string) error
	Link(from, to string) error
	Remove(name string) error
}

type osDirectory struct{}

func (osDirectory) Open(name string) (*os.File, error) {
	return os.Open(name) //nolint:gosec // G304: callers name their own files
}

func (osDirectory) OpenFile(name string, flag int, mode fs.FileMode) (*os.File, error) {
	return os.OpenFile(name, flag, mode) //nolint:gosec // G304: as above
}
func (osDirectory) Rename(from, to string) error { return os.Rename(from, to) }
func (osDirectory) Link(from, to string) error   { return os.Link(from, to) }
func (osDirectory) Remove(name string) error     { return os.Remove(name) }

func in(root *os.Root) directory {
	if root == nil {
		return osDirectory{}
	}
	return root
}

// NewTemp opens a temporary file for writing. All names are relative to root,
// or paths where root is nil. A file of that name that a crash left is
// overwritten, so two writers must not share a name.
func NewTemp(root *os.Root, name string, mode fs.FileMode) (*Temp, error) {
	f, err := in(root).OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return nil, err
	}
	return &Temp{File: f, dir: in(root), name: name, mode: mode}, nil
}

// Replace renames the file to name, replacing a file there, and makes the name
// durable. err is the error of writing the file, if any.
func (t *Temp) Replace(name string, err error) error {
	return t.place(name, err, t.dir.Rename, true)
}

// Rename is Replace without the sync of the directory, for a caller that syncs
// it once for several files.
func (t *Temp) Rename(name string, err error) error {
	return t.place(name, err, t.dir.Rename, false)
}

// Create links the file to name and makes the name durable. The error is
// fs.ErrExist when name exists: a link fails where a rename would overwrite.
func (t *Temp) Create(name string, err error) error {
	err = t.place(name, err, t.dir.Link, true)
	if gone := t.dir.Remove(t.name); !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}

func (t *Temp) place(name string, err error, place func(from, to string) error, syncName bool) error {
	if err == nil && runtime.GOOS != "windows" {
		err = t.Chmod(t.mode) // independent of the umask
	}
	if err == nil {
		err = t.Sync()
	}
	err = errors.Join(err, t.Close())
	call(t.Synced)
	if err == nil {
		err = place(t.name, name)
	}
	if err != nil {
		return errors.Join(err, t.dir.Remove(t.name))
	}
	call(t.Placed)
	if !syncName {
		return nil
	}
	return syncDir(t.dir, filepath.Dir(name))
}

func call(f func()) {
	if f != nil {
		f()
	}
}

// Replace makes content the content of path, atomically. It writes path.new
// first, so callers serialize their writes of one path.
func Replace(path string, content []byte, mode fs.FileMode) error {
	return write(nil, path+".new", content, mode, func(t *Temp, err error) error { return t.Replace(path, err) })
}

// ReplaceIn is Replace for a name below root.
func ReplaceIn(root *os.Root, name string, content []byte, mode fs.FileMode) error {
	return write(root, name+".new", content, mode, func(t *Temp, err error) error { return t.Replace(name, err) })
}

// Create writes a new file, which appears under its name complete or not at
// all. The error is fs.ErrExist when path exists.
func Create(path string, content []byte, mode fs.FileMode) error {
	temp := filepath.Join(filepath.Dir(path), ".new-"+rand.Text())
	return write(nil, temp, content, mode, func(t *Temp, err error) error { return t.Create(path, err) })
}

func write(root *os.Root, temp string, content []byte, mode fs.FileMode, finish func(*Temp, error) error) error {
	t, err := NewTemp(root, temp, mode)
	if err != nil {
		return err
	}
	_, err = t.Write(content)
	return finish(t, err)
}

// WriteNew creates the file name below root, or the path name where root is
// nil, and removes it when fill fails. The error is fs.ErrExist when name
// exists, even as a dangling link. Nothing is synced: it is for files that a
// person requested, on any file system.
func WriteNew(root *os.Root, name string, mode fs.FileMode, fill func(io.Writer) error) error {
	f, err := in(root).OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	if err := errors.Join(fill(f), f.Close()); err != nil {
		return errors.Join(err, in(root).Remove(name))
	}
	return nil
}

// Sync makes an existing file or the names in a directory durable.
func Sync(path string) error { return syncDir(osDirectory{}, path) }

// SyncIn is Sync for a name below root.
func SyncIn(root *os.Root, name string) error { return syncDir(root, name) }

func syncDir(dir directory, name string) error {
	if runtime.GOOS == "windows" {
		return nil // a file opened for reading, or a directory, cannot be synced there
	}
	d, err := dir.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
