package console

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
)

// WriteFile creates a file and removes it again if fill fails. An existing file
// or link is never overwritten.
func WriteFile(path string, fill func(io.Writer) error) error {
	return AlreadyExists(durable.WriteNew(nil, path, 0o644, fill))
}

// Folder is a folder that files are written to, and nowhere else.
type Folder struct {
	path string
	root *os.Root
}

// CreateFolder creates a folder, or opens it if it exists. The caller closes it.
func CreateFolder(path string) (Folder, error) {
	if err := os.MkdirAll(path, 0o755); err != nil { //nolint:gosec // G301: the user's own folder
		return Folder{}, err
	}
	root, err := os.OpenRoot(path)
	return Folder{path, root}, err
}

// Close closes the folder.
func (d Folder) Close() error { return d.root.Close() }

// WriteFile is like the function WriteFile for a file below the folder. It
// returns the path of the file.
func (d Folder) WriteFile(name string, fill func(io.Writer) error) (string, error) {
	if err := d.root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return "", err
	}
	return filepath.Join(d.path, name), AlreadyExists(durable.WriteNew(d.root, name, 0o644, fill))
}

// ReplaceFile is like WriteFile, and replaces an existing file or link. A failed
// fill leaves the existing one.
func (d Folder) ReplaceFile(name string, fill func(io.Writer) error) (string, error) {
	temp := name + ".new"
	if err := d.root.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return "", err
	}
	if _, err := d.WriteFile(temp, fill); err != nil {
		return "", err
	}
	if err := d.root.Rename(temp, name); err != nil {
		return "", errors.Join(err, d.root.Remove(temp))
	}
	return filepath.Join(d.path, name), nil
}

// AlreadyExists adds a hint to the error of a file that exists already, or whose
// folder does not.
func AlreadyExists(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return api.Errorf(api.CodeInvalid, "%w", err).WithHint("create its folder first, or name another path")
	}
	if errors.Is(err, fs.ErrExist) {
		return api.Errorf(api.CodeConflict, "%w", err).WithHint("existing files are not overwritten; name another path")
	}
	return err
}
