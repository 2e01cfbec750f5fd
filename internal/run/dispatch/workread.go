package dispatch

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/worker/capture"
)

// errNotWork means that a name leads out of the attempt, or to something else than a file.
var errNotWork = fmt.Errorf("not a regular file of the attempt: %w", fs.ErrNotExist)

// openWork opens a file that the worker of an attempt wrote below its directory. In mode system the worker has another account
// than the service, and an attacker may be in its place: no symbolic link leads the service to a file of its own, and it waits for
// no pipe. What is not a regular file counts as missing.
func openWork(dir, name string) (*os.File, error) {
	root, err := os.Open(dir) //nolint:gosec // G304: our own directory
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // only a way to the file
	f, err := capture.Open(root, name, 0)
	for _, other := range []error{unix.ELOOP, unix.EXDEV, unix.ENOTDIR, unix.ENXIO} {
		if errors.Is(err, other) {
			return nil, fmt.Errorf("%s: %w", name, errNotWork)
		}
	}
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		if err == nil {
			err = fmt.Errorf("%s: %w", name, errNotWork)
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// readWork reads a file of openWork of at most limit bytes.
func readWork(dir, name string, limit int64) ([]byte, error) {
	f, err := openWork(dir, name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s: larger than %d bytes", name, limit)
	}
	return b, err
}
