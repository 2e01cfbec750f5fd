//go:build unix

package deploy

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile keeps a second writer out for as long as the result is open. The
// kernel lets go of it when the process ends, however it ends.
func lockFile(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // G304: beside the catalog that the caller named
	if err != nil {
		return nil, fmt.Errorf("catalog lock: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) //nolint:gosec // G115: a file descriptor fits
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errors.Join(errLocked(), f.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("catalog lock %s: %w", path, err), f.Close())
	}
	return f, nil
}
