package checkout

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bailiwick-dev/bailiwick/internal/blob"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/capture"
)

// What a finished directory holds.
const (
	treeDir   = "tree"
	indexFile = "index"
	aboutFile = "about" // who it is and what it takes: for people and for List
	bootFile  = "boot"  // the run of the machine in which all of it was last read or written
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

// build makes dir, which is not there. The key is locked.
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
		err = os.Rename(temp, dir) //nolint:gosec // G703: both are names of ours in our own directory
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
	if err := os.Chmod(tree, 0o755); err != nil { //nolint:gosec // G302: whatever the umask, as above
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

// load returns the index of a finished directory that is still as it was made,
// and marks it as used. The error is capture.ErrDamaged when it is not.
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
	if err := x.Touch(dir); err != nil {
		return damaged(err)
	}
	tree := filepath.Join(dir, treeDir)
	if err := x.Verify(ctx, tree); err != nil {
		return nil, err
	}
	if boot, err := blob.ReadBounded(filepath.Join(dir, bootFile), maxAbout); err == nil && s.boot != "" && string(boot) == s.boot {
		return x, nil
	}
	if err := x.VerifyContent(ctx, tree); err != nil {
		return nil, err
	}
	return x, s.writeBoot(dir)
}

// writeBoot notes that all of it was read in this run of the machine. Two may
// do so at once.
func (s *Store) writeBoot(dir string) error {
	f, err := os.CreateTemp(dir, bootFile+"-")
	if err != nil {
		return err
	}
	_, err = f.WriteString(s.boot)
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name())) //nolint:gosec // G703: made above
	}
	return os.Rename(f.Name(), filepath.Join(dir, bootFile)) //nolint:gosec // G703: likewise
}
