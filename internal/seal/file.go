package seal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"

	"github.com/bailiwick-dev/bailiwick/internal/durable"
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

// createFile creates a file durably; it never overwrites.
func createFile(path string, b []byte, mode fs.FileMode) error {
	if err := durable.Create(path, b, mode); err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	return nil
}
