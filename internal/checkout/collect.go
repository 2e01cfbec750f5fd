package checkout

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/blob"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/durable"
)

// ErrInUse says that a worker uses, makes or removes a checkout.
var ErrInUse = durable.ErrLocked

const (
	lockSuffix = ".lock"
	newInfix   = ".new-"
	goneInfix  = ".gone-"
)

// Entry is one checkout, for who decides what to keep.
type Entry struct {
	Key      string // its name in the store
	Source   string // the repository; empty when that cannot be read any more
	Commit   string
	Bytes    int64 // about what it takes on disk
	LastUsed time.Time
}

// List returns all checkouts, by name. What is being made or removed is none.
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

// Remove removes a checkout that List returned. The error is ErrInUse when
// somebody uses it, or has used it since.
func (s *Store) Remove(e Entry) error {
	if !keyShape.MatchString(e.Key) {
		return fmt.Errorf("checkout %s: not a name of one", e.Key)
	}
	lock, err := s.tryLock(e.Key, os.O_CREATE)
	if err != nil {
		return fmt.Errorf("checkout %s: %w", e.Key, err)
	}
	defer lock.Close() //nolint:errcheck // its end is the end of the lock
	dir := s.path(e.Key)
	f, err := exclusive(dir)
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
	gone, err := s.aside(e.Key, dir)
	if err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(gone), os.Remove(lock.Name()))
}

// exclusive locks a directory that nobody holds.
func exclusive(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0) //nolint:gosec // G304: our own directory
	if err != nil {
		return nil, err
	}
	if err := lockNamed(f, dir, durable.TryLock); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// aside renames dir to a name under which nobody looks for it.
func (s *Store) aside(key, dir string) (string, error) {
	gone, err := os.MkdirTemp(s.dir, key+goneInfix)
	if err != nil {
		return "", err
	}
	return gone, unix.Rename(dir, gone) // in the place of the empty one, which os.Rename refuses
}

// discard takes dir away, if it is there. Who uses it goes on, and then it is
// left for Sweep. The key is locked.
func (s *Store) discard(key, dir string) error {
	if st, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) { //nolint:gosec // G703: a name of ours
		return nil
	} else if err != nil {
		return err
	} else if !st.IsDir() {
		return os.Remove(dir) //nolint:gosec // G703: likewise
	}
	gone, err := s.aside(key, dir)
	if err != nil {
		return err
	}
	_, err = removeUnused(gone)
	return err
}

// removeUnused removes a directory unless somebody holds it.
func removeUnused(dir string) (bool, error) {
	f, err := exclusive(dir)
	if errors.Is(err, ErrInUse) || errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, errors.Join(os.RemoveAll(dir), f.Close()) //nolint:gosec // G703: a name of ours
}

// sweepKey removes what killed processes left of a key that is locked.
func (s *Store) sweepKey(key string) error {
	half, err := filepath.Glob(s.path(key) + newInfix + "*")
	for _, dir := range half {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	gone, gerr := filepath.Glob(s.path(key) + goneInfix + "*")
	for _, dir := range gone {
		_, rerr := removeUnused(dir)
		gerr = errors.Join(gerr, rerr)
	}
	return errors.Join(err, gerr)
}

// Sweep removes what killed processes left and returns how much that was: half
// checkouts, half removed ones, ones that were replaced while they were in use,
// and locks of none.
func (s *Store) Sweep() (removed int, err error) {
	names, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	var errs []error
	for _, d := range names {
		did, err := s.sweepName(d.Name())
		if did {
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
		return false, nil // a checkout, or nothing of ours
	}
	rest = "." + rest
	if strings.HasPrefix(rest, goneInfix) {
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
	defer lock.Close() //nolint:errcheck // its end is the end of the lock
	did := false
	if rest != lockSuffix {
		did, err = true, os.RemoveAll(s.path(name))
	}
	if _, serr := os.Lstat(s.path(key)); errors.Is(serr, fs.ErrNotExist) {
		did, err = true, errors.Join(err, os.Remove(lock.Name()))
	}
	return did, err
}
