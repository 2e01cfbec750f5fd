package seal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// readGuarded reads a small regular file and refuses one whose permissions
// have any bit of forbidden. The check is on the open file, so that it is
// about the bytes that are read.
func readGuarded(path, what string, limit int64, forbidden fs.FileMode, fix string) (b []byte, err error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if !st.Mode().IsRegular() { // before opening: a fifo would never open
		return nil, fmt.Errorf("%s %s: not a regular file", what, path)
	}
	f, err := os.Open(path) //nolint:gosec // G304: the caller names its own key or trust root
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if st, err = f.Stat(); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s %s: not a regular file", what, path)
	}
	// Windows has no such bits; there the directory's access list counts.
	if perm := st.Mode().Perm(); runtime.GOOS != "windows" && perm&forbidden != 0 {
		return nil, fmt.Errorf("%s %s: others have access to it (mode %04o); run: %s %s", what, path, perm, fix, path)
	}
	b, err = io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s %s: larger than %d bytes", what, path, limit)
	}
	return b, nil
}

// createFile writes a new file durably and whole: it appears under its name
// complete or not at all, and never takes the place of another.
func createFile(path string, b []byte, mode fs.FileMode) error {
	// A link fails where a rename would overwrite.
	return writeFile(path, b, mode, os.Link)
}

// replaceFile is createFile for a file that takes the place of another.
func replaceFile(path string, b []byte, mode fs.FileMode) error {
	return writeFile(path, b, mode, os.Rename)
}

func writeFile(path string, b []byte, mode fs.FileMode, place func(from, to string) error) (err error) {
	temp := filepath.Join(filepath.Dir(path), ".new-"+rand.Text())
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode) //nolint:gosec // G304: as above
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	defer func() {
		if removeErr := os.Remove(temp); !errors.Is(removeErr, fs.ErrNotExist) { // a rename took it
			err = errors.Join(err, removeErr)
		}
	}()
	_, err = f.Write(b)
	if err == nil {
		err = f.Chmod(mode) // whatever the umask says
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	if err := place(temp, path); err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // directories cannot be synced there
	}
	d, err := os.Open(dir) //nolint:gosec // G304: as above
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
