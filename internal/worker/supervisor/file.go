package supervisor

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// replaceFile is durable.Replace with fail points.
func replaceFile(path string, content []byte) error {
	f, err := durable.NewTemp(nil, path+".new", 0o600)
	if err != nil {
		return err
	}
	f.Synced = func() { failpoint.Hit(failpoint.WorkerResultFile, filepath.Dir(path)) }
	f.Placed = func() { failpoint.Hit(failpoint.WorkerResultPlaced, filepath.Dir(path)) }
	_, err = f.Write(content)
	return f.Replace(path, err)
}

// attemptDepth is how many parent directories may have been created for an attempt:
// of the dispatch, of all dispatches, and of the state.
const attemptDepth = 3

// writeResult writes the result once everything that it refers to is durable: the
// log, the directories of content and log, and their parents. Captured content
// is synced as it is written.
func writeResult(dir string, envelope []byte) error {
	logs, err := filepath.Glob(filepath.Join(dir, record.WorkLog, "*"))
	if err != nil {
		return err
	}
	paths := append(logs, filepath.Join(dir, record.WorkLog), filepath.Join(dir, record.WorkOut))
	for _, path := range paths {
		if err := durable.Sync(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for up := range attemptDepth + 1 {
		if err := durable.Sync(filepath.Join(dir, strings.Repeat("../", up))); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err // a directory that cannot be read cannot be synced
		}
	}
	return replaceFile(filepath.Join(dir, record.WorkResult), envelope)
}
