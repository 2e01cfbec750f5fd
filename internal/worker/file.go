package worker

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/bailiwick-dev/bailiwick/internal/failpoint"
)

// writeDurable makes path appear whole, or not at all, and survive a crash of
// the machine.
func writeDurable(path string, content []byte) error {
	temp := path + ".new"
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // G304: paths are of our own directories
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	failpoint.Hit(failpoint.WorkerResultFile, filepath.Dir(path))
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	failpoint.Hit(failpoint.WorkerResultPlaced, filepath.Dir(path))
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
