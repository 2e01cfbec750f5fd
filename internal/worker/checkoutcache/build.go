package checkoutcache

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
	"github.com/bailiwick-dev/bailiwick/internal/worker/capture"
)

// The files of a finished directory.
const (
	treeDir   = "tree"
	indexFile = "index"
	aboutFile = "about" // its source, commit and size, for people and for List
	bootFile  = "boot"  // the boot in which its content was last written or verified
	gitDir    = "git"
)

const (
	maxIndex = 1 << 30
	maxAbout = 64 << 10
)

type about struct {
	Source string `json:"source,omitempty"`
	Commit string `json:"commit"`
	Bytes  int64  `json:"bytes"`
}

// build creates dir, which must not exist. The key is locked.
func (s *Store) build(key, dir string, a about, fill func(tree string) (*capture.Index, error)) error {
	if err := s.sweepKey(key); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(s.dir, key+newInfix)
	if err != nil {
		return err
	}
	err = s.fill(temp, a, fill)
	if err == nil {
		err = os.Rename(temp, dir) //nolint:gosec // G703: names of our own
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(temp))
	}
	return nil
}

func (s *Store) fill(dir string, a about, fill func(tree string) (*capture.Index, error)) error {
	tree := filepath.Join(dir, treeDir)
	if err := os.Mkdir(tree, 0o755); err != nil { //nolint:gosec // G301: the jail's account reads it
		return err
	}
	if err := os.Chmod(tree, 0o755); err != nil { //nolint:gosec // G302: as above; independent of the umask
		return err
	}
	x, err := fill(tree)
	if err != nil {
		return err
	}
	a.Bytes = x.Size()
	doc, err := canon.Marshal(a)
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{indexFile: x.Encode(), aboutFile: doc, bootFile: []byte(s.boot)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// load returns the index of an unchanged directory, and marks the directory as
// used. The error is capture.ErrDamaged when it has changed.
func (s *Store) load(ctx context.Context, dir string) (*capture.Index, error) {
	damaged := func(err error) (*capture.Index, error) {
		return nil, fmt.Errorf("%w: %w", capture.ErrDamaged, err)
	}
	stored, err := blob.ReadBounded(filepath.Join(dir, indexFile), maxIndex)
	if err != nil {
		return damaged(err)
	}
	x, err := capture.DecodeIndex(stored)
	if err != nil {
		return nil, err
	}
	touch := x.Touch
	if s.readOnly {
		touch = x.CheckTime
	}
	if err := touch(dir); err != nil {
		return damaged(err)
	}
	tree := filepath.Join(dir, treeDir)
	if err := x.Verify(ctx, tree); err != nil {
		return nil, err
	}
	if s.verified(dir) {
		return x, nil
	}
	if err := x.VerifyContent(ctx, tree); err != nil || s.readOnly {
		return x, err
	}
	return x, s.writeBoot(dir)
}

// verified reports whether the content of a directory was written or verified in this boot.
func (s *Store) verified(dir string) bool {
	boot, err := blob.ReadBounded(filepath.Join(dir, bootFile), maxAbout)
	return err == nil && s.boot != "" && string(boot) == s.boot
}

// checkedLately reports whether the files of a verified checkout were compared with its index less than
// a minute ago, so that a service that prepares each attempt does not read them each time.
func (s *Store) checkedLately(dir string) bool {
	st, err := os.Stat(filepath.Join(dir, bootFile))
	if err != nil || !s.verified(dir) {
		return false
	}
	ago := time.Since(st.ModTime())
	return 0 <= ago && ago < time.Minute
}

// writeBoot notes that the content was verified in this boot. Two processes may
// do so at once, hence the random temporary name.
func (s *Store) writeBoot(dir string) error {
	f, err := durable.NewTemp(nil, filepath.Join(dir, bootFile+"-"+rand.Text()), 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(s.boot)
	return f.Rename(filepath.Join(dir, bootFile), err)
}
