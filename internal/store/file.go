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

	"github.com/bailiwick-dev/bailiwick/internal/durable"
)

const (
	fileName      = "state.db"
	applicationID = 0x42574c4b // "BWLK", at byte 68 of the file
	headerSize    = 100
)

func makeDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { //nolint:gosec // G301: the parents hold nothing of ours
		return fmt.Errorf("state directory %s: %w", dir, err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("state directory %s: %w", dir, err)
	}
	if err := checkDir(dir); err != nil {
		return err
	}
	if err := durable.SyncParents(dir); err != nil {
		return fmt.Errorf("state directory %s: %w", dir, err)
	}
	return nil
}

func checkDir(dir string) error {
	fi, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("state directory %s: %w", dir, ErrNotExist)
	}
	if err != nil {
		return fmt.Errorf("state directory %s: %w", dir, err)
	}
	if !fi.IsDir() {
		return fmt.Errorf("state directory %s: not a directory", dir)
	}
	if fi.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("state directory %s: others may enter it (mode %#o): chmod 0700 it", dir, fi.Mode().Perm())
	}
	return nil
}

// createFile builds the database under another name, so that the real name
// never stands for something half made. Migrations come when it is opened.
func createFile(ctx context.Context, dir string) error {
	path, tmp := filepath.Join(dir, fileName), filepath.Join(dir, fileName+".new")
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("state directory %s: %w", dir, ErrExist)
	}
	for _, leftover := range []string{tmp, tmp + "-journal", path + "-wal", path + "-shm"} {
		if err := os.Remove(leftover); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("state directory %s: %w", dir, err)
		}
	}
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // G304: the directory is ours
	if err != nil {
		return fmt.Errorf("state directory %s: %w", dir, err)
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := initFile(ctx, tmp); err != nil {
		return fmt.Errorf("state database %s: %w", path, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("state directory %s: %w", dir, err)
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

// checkFiles looks at the files before SQLite does. It must not run while the
// database is open in this process: closing any descriptor of the file would
// drop SQLite's locks on it.
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
			return &CorruptError{Path: p, What: fmt.Sprintf("others may read or write it (mode %#o)", fi.Mode().Perm()), Fix: "find out who did, then chmod 0600 it"}
		}
		// SQLite would find out later, and leave files behind that are as little
		// to be written as this one.
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

// checkHeader tells what is no database of ours before SQLite, which would
// take an empty file for a new database.
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
