package seal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"

	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
)

// readGuarded reads a small regular file and refuses one whose permissions
// have any bit of forbidden, or that another account owns. It checks the open
// file, whose bytes it reads.
func readGuarded(path, what string, limit int64, forbidden fs.FileMode, fix string) ([]byte, error) {
	return readRegular(path, what, limit, func(st fs.FileInfo) error {
		if !durable.Trusted(st) {
			return fmt.Errorf("%s %s: owned by another account; it must be owned by this account or root", what, path)
		}
		// Windows has no such bits; the directory's access list applies.
		if perm := st.Mode().Perm(); runtime.GOOS != "windows" && perm&forbidden != 0 {
			return fmt.Errorf("%s %s: others have access to it (mode %04o); run: %s %s", what, path, perm, fix, path)
		}
		return nil
	})
}

// readRegular reads a regular file that check does not refuse.
func readRegular(path, what string, limit int64, check func(fs.FileInfo) error) (b []byte, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|durable.Nonblock, 0) //nolint:gosec // G304: the caller names its own key or trust root
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s %s: not a regular file", what, path)
	}
	if err := check(st); err != nil {
		return nil, err
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

// guardDir refuses a directory in which another account can replace a file.
func guardDir(dir, what string) error {
	st, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if !durable.Trusted(st) {
		return fmt.Errorf("%s: directory %s: owned by another account, which can replace the file; it must be owned by this account or root", what, dir)
	}
	// In a sticky directory only its owner and that of a file can replace it.
	if perm := st.Mode().Perm(); runtime.GOOS != "windows" && perm&0o022 != 0 && st.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("%s: directory %s: writable by other accounts (mode %04o), which can replace the file; run: chmod go-w %s", what, dir, perm, dir)
	}
	return nil
}

// createFile creates a file durably; it never overwrites.
func createFile(path string, b []byte, mode fs.FileMode) error {
	if err := durable.Create(path, b, mode); err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	return nil
}
