package checkoutcache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
)

// ErrInUse means that a worker uses, creates or removes a checkout.
var ErrInUse = durable.ErrLocked

const (
	lockSuffix   = ".lock"
	newInfix     = ".new-"
	removedInfix = ".gone-"
)

// Entry describes a checkout.
type Entry struct {
	Key      string // its name in the store
	Source   string // the repository; empty if unreadable
	Commit   string
	Bytes    int64 // approximate size on disk
	LastUsed time.Time
}

// List returns all finished checkouts, by name.
func (s *Store) List() ([]Entry, error) {
	names, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []Entry
	for _, d := range names {
		if !d.IsDir() || !keyShape.MatchString(d.Name()) {
			continue
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // just removed
		}
		if err != nil {
			return nil, err
		}
		_, commit, _ := strings.Cut(d.Name(), "-")
		e := Entry{Key: d.Name(), Commit: commit, LastUsed: info.ModTime()}
		for _, dir := range []string{"", gitDir} {
			a := readAbout(filepath.Join(s.path(e.Key), dir, aboutFile))
			e.Bytes += a.Bytes
			if dir == "" {
				e.Source = a.Source
			}
		}
		list = append(list, e)
	}
	return list, nil
}

func readAbout(name string) (a about) {
	b, err := blob.ReadBounded(name, maxAbout)
	if err != nil || canon.DecodeExact(b, &a) != nil || a.Bytes < 0 {
		return about{}
	}
	return a
}

// Remove removes a checkout that List returned. The error is ErrInUse when it is
// in use or was used since.
func (s *Store) Remove(e Entry) error {
	if !keyShape.MatchString(e.Key) {
		return fmt.Errorf("checkout %s: malformed name", e.Key)
	}
	lock, err := s.tryLock(e.Key, os.O_CREATE)
	if err != nil {
		return fmt.Errorf("checkout %s: %w", e.Key, err)
	}
	defer lock.Close() //nolint:errcheck // closing releases the lock
	dir := s.path(e.Key)
	f, err := lockDir(dir, durable.TryLock)
	if errors.Is(err, fs.ErrNotExist) {
		return os.Remove(lock.Name())
	}
	if err != nil {
		return fmt.Errorf("checkout %s: %w", e.Key, err)
	}
	defer f.Close() //nolint:errcheck // only a lock
	st, err := f.Stat()
	if err == nil && !st.ModTime().Equal(e.LastUsed) {
		err = ErrInUse
	}
	if err != nil {
		return fmt.Errorf("checkout %s: %w", e.Key, err)
	}
	trash, err := s.setAside(e.Key, dir)
	if err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(trash), os.Remove(lock.Name()))
}

// setAside renames dir to a name that Acquire does not look up.
func (s *Store) setAside(key, dir string) (string, error) {
	trash, err := os.MkdirTemp(s.dir, key+removedInfix)
	if err != nil {
		return "", err
	}
	return trash, unix.Rename(dir, trash) // replaces the empty one, which os.Rename refuses
}

// discard sets dir aside, if it exists, and removes it unless it is in use: then
// its users keep it, and Sweep removes it later. The key is locked.
func (s *Store) discard(key, dir string) error {
	if st, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) { //nolint:gosec // G703: a name of ours
		return nil
	} else if err != nil {
		return err
	} else if !st.IsDir() {
		return os.Remove(dir) //nolint:gosec // G703: likewise
	}
	trash, err := s.setAside(key, dir)
	if err != nil {
		return err
	}
	_, err = removeUnused(trash)
	return err
}

// removeUnused removes a directory unless it is in use.
func removeUnused(dir string) (bool, error) {
	f, err := lockDir(dir, durable.TryLock)
	if errors.Is(err, ErrInUse) || errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, errors.Join(os.RemoveAll(dir), f.Close()) //nolint:gosec // G703: a name of ours
}

// sweepKey removes what killed processes left of a key, which is locked.
func (s *Store) sweepKey(key string) error {
	unfinished, err := filepath.Glob(s.path(key) + newInfix + "*")
	trash, trashErr := filepath.Glob(s.path(key) + removedInfix + "*")
	errs := []error{err, trashErr}
	for _, dir := range unfinished {
		errs = append(errs, os.RemoveAll(dir))
	}
	for _, dir := range trash {
		_, err := removeUnused(dir)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Sweep removes what killed processes left, and returns how many items that was:
// checkouts half created, half removed or replaced while in use, and lock files
// without a checkout.
func (s *Store) Sweep() (removed int, err error) {
	names, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	var errs []error
	for _, d := range names {
		done, err := s.sweepName(d.Name())
		if done {
			removed++
		}
		if err != nil && !errors.Is(err, ErrInUse) && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return removed, errors.Join(append(errs, err)...)
}

func (s *Store) sweepName(name string) (bool, error) {
	key, rest, _ := strings.Cut(name, ".")
	if !keyShape.MatchString(key) || rest == "" {
		return false, nil // a checkout, or not ours
	}
	rest = "." + rest
	if strings.HasPrefix(rest, removedInfix) {
		return removeUnused(s.path(name))
	}
	if rest != lockSuffix && !strings.HasPrefix(rest, newInfix) {
		return false, nil
	}
	create := 0
	if rest != lockSuffix {
		create = os.O_CREATE
	}
	lock, err := s.tryLock(key, create)
	if err != nil {
		return false, err
	}
	defer lock.Close() //nolint:errcheck // closing releases the lock
	done := false
	if rest != lockSuffix {
		done, err = true, os.RemoveAll(s.path(name))
	}
	if _, serr := os.Lstat(s.path(key)); errors.Is(serr, fs.ErrNotExist) {
		done, err = true, errors.Join(err, os.Remove(lock.Name()))
	}
	return done, err
}
