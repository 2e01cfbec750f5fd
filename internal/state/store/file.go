package store

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
)

const (
	fileName      = "state.db"
	applicationID = 0x42574c4b // "BWLK", at byte 68 of the file
	headerSize    = 100
)

// inDir makes the error of a function name the state directory.
func inDir(err *error, dir string) {
	if *err != nil {
		*err = fmt.Errorf("state directory %s: %w", dir, *err)
	}
}

func makeDir(dir string) (err error) {
	defer inDir(&err, dir)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { //nolint:gosec // G301: the parents hold nothing of ours
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := dirProblem(dir); err != nil {
		return err
	}
	return durable.SyncParents(dir)
}

func checkDir(dir string) (err error) {
	defer inDir(&err, dir)
	return dirProblem(dir)
}

func dirProblem(dir string) error {
	fi, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ErrNotExist
	case err != nil:
		return err
	case !fi.IsDir():
		return errors.New("not a directory")
	case fi.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("accessible to others (mode %#o): chmod 0700 it", fi.Mode().Perm())
	}
	return nil
}

// createFile builds the database under a temporary name, so that a crash leaves no
// incomplete one. It is migrated when opened.
func createFile(ctx context.Context, dir string) (err error) {
	defer inDir(&err, dir)
	path, tmp := filepath.Join(dir, fileName), filepath.Join(dir, fileName+".new")
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return ErrExist
	}
	for _, leftover := range []string{tmp, tmp + "-journal", path + "-wal", path + "-shm"} {
		if err := os.Remove(leftover); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // G304: the directory is ours
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		err = initFile(ctx, tmp)
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return err
	}
	return durable.Sync(dir)
}

func initFile(ctx context.Context, path string) (err error) {
	db, err := sql.Open("sqlite", dsn(path, "journal_mode(delete)", "synchronous(extra)"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	for _, q := range []string{
		fmt.Sprintf("PRAGMA application_id = %d", applicationID),
		"CREATE TABLE store_migration (owner TEXT NOT NULL, step INTEGER NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (owner, step)) STRICT, WITHOUT ROWID",
	} {
		if _, err := db.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// checkFiles checks the files before SQLite opens them. It must not run while the
// database is open in this process: closing any descriptor of the file drops
// SQLite's locks on it.
func checkFiles(dir string) error {
	path := filepath.Join(dir, fileName)
	for _, p := range []string{path, path + "-wal", path + "-shm"} {
		fi, err := os.Lstat(p)
		if errors.Is(err, fs.ErrNotExist) {
			if p == path {
				return fmt.Errorf("state directory %s: %w", dir, ErrNotExist)
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("state database %s: %w", path, err)
		}
		if !fi.Mode().IsRegular() {
			return &CorruptError{Path: p, What: "is not a regular file"}
		}
		if fi.Mode().Perm()&0o077 != 0 {
			return &CorruptError{Path: p, What: fmt.Sprintf("is accessible to others (mode %#o)", fi.Mode().Perm()), Fix: "find out why, then chmod 0600 it"}
		}
		// SQLite would notice later, and leave other files that cannot be written.
		f, err := os.OpenFile(p, os.O_RDWR|unix.O_NOFOLLOW, 0) //nolint:gosec // G304: the directory is ours
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			return fmt.Errorf("state database %s cannot be written: %w", path, err)
		}
	}
	return checkHeader(path)
}

// checkHeader refuses foreign files before SQLite, which would take an empty file
// for a new database.
func checkHeader(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0) //nolint:gosec // G304: the directory is ours
	if err != nil {
		return fmt.Errorf("state database %s: %w", path, err)
	}
	defer f.Close() //nolint:errcheck // only read
	h := make([]byte, headerSize)
	if n, err := io.ReadFull(f, h); err != nil {
		return &CorruptError{Path: path, What: fmt.Sprintf("is cut short: %d bytes where the header alone has %d", n, headerSize)}
	}
	if string(h[:16]) != "SQLite format 3\x00" {
		return &CorruptError{Path: path, What: "is not a SQLite database"}
	}
	if id := binary.BigEndian.Uint32(h[68:]); id != applicationID {
		return &CorruptError{Path: path, What: fmt.Sprintf("belongs to another program (application id %#x)", id)}
	}
	return nil
}
