package worker

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/bailiwick-dev/bailiwick/internal/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/record"
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
		return errors.Join(err, os.Remove(temp)) //nolint:gosec // G703: as above
	}
	failpoint.Hit(failpoint.WorkerResultFile, filepath.Dir(path))
	if err := os.Rename(temp, path); err != nil { //nolint:gosec // G703: as above
		return err
	}
	failpoint.Hit(failpoint.WorkerResultPlaced, filepath.Dir(path))
	return syncPath(filepath.Dir(path))
}

// attemptDepth is how many folders around an attempt's own were made for it:
// of the dispatch, of all dispatches, and of the state.
const attemptDepth = 3

// writeResult makes the result appear in an attempt's folder, when all that it
// speaks of is durable: the content and the log, their names, and the folder's
// own. What is captured is synced as it is written.
func writeResult(dir string, envelope []byte) error {
	logs, err := filepath.Glob(filepath.Join(dir, record.WorkLog, "*"))
	if err != nil {
		return err
	}
	paths := append(logs, filepath.Join(dir, record.WorkLog), filepath.Join(dir, record.WorkOut))
	for _, path := range paths {
		if err := syncPath(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for up := range attemptDepth + 1 {
		if err := syncPath(filepath.Join(dir, strings.Repeat("../", up))); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err // who may not read a directory cannot sync it
		}
	}
	return writeDurable(filepath.Join(dir, record.WorkResult), envelope)
}

func syncPath(path string) error {
	f, err := os.Open(path) //nolint:gosec // G304: paths are of our own directories
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
