package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/durable"
)

// File is a blob as the file system has it.
type File struct {
	Digest api.Digest
	Size   int64
}

// Files calls fn for every blob, in the order of the file system. What is no
// blob is left alone.
func (s *Store) Files(ctx context.Context, fn func(File) error) (err error) {
	dir, err := s.root.Open(blobDir)
	if err != nil {
		return fmt.Errorf("content store %s: %w", s.cfg.Dir, err)
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	for {
		entries, readErr := dir.ReadDir(1024) // io.EOF at the end
		for _, e := range entries {
			d, err := api.ParseDigest("sha256:" + e.Name())
			if err != nil || !e.Type().IsRegular() {
				continue
			}
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue // removed meanwhile
			}
			if err == nil {
				err = fn(File{d, info.Size()})
			}
			if err != nil {
				return err
			}
		}
		if errors.Is(readErr, io.EOF) {
			return nil
		}
		if err := errors.Join(readErr, ctx.Err()); err != nil {
			return err
		}
	}
}

// Sweep removes blobs that nothing refers to. What refers to a blob is for the
// caller to know, and must be found out after the sweep began.
type Sweep struct {
	store  *Store
	spared map[api.Digest]bool // guarded by store.holds.mu
	dirty  bool
}

// Sweep begins one. There is one at a time.
func (s *Store) Sweep() (*Sweep, error) {
	s.holds.mu.Lock()
	defer s.holds.mu.Unlock()
	if s.holds.sweep != nil {
		return nil, fmt.Errorf("content store %s: a sweep is under way", s.cfg.Dir)
	}
	w := &Sweep{store: s, spared: map[api.Digest]bool{}}
	for d := range s.holds.held {
		w.spared[d] = true
	}
	s.holds.sweep = w
	return w, nil
}

// Remove removes a blob unless somebody holds it, or has since the sweep
// began, and reports whether it is gone.
func (w *Sweep) Remove(d api.Digest) (bool, error) {
	if _, err := api.ParseDigest(string(d)); err != nil {
		return false, err
	}
	// Under the lock: whoever puts d either holds it by now, or finds it gone.
	w.store.holds.mu.Lock()
	defer w.store.holds.mu.Unlock()
	if w.spared[d] {
		return false, nil
	}
	err := w.store.root.Remove(blobPath(d))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("blob %s: %w", d, err)
	}
	w.dirty = true
	return true, nil
}

// Spares reports whether Remove would leave d now.
func (w *Sweep) Spares(d api.Digest) bool {
	w.store.holds.mu.Lock()
	defer w.store.holds.mu.Unlock()
	return w.spared[d]
}

// End ends the sweep. When it returns without an error, what was removed stays
// so.
func (w *Sweep) End() error {
	w.store.holds.mu.Lock()
	if w.store.holds.sweep == w {
		w.store.holds.sweep = nil
	}
	w.store.holds.mu.Unlock()
	if !w.dirty {
		return nil
	}
	return durable.SyncIn(w.store.root, blobDir)
}

// DropUnfinished removes what writers left that were killed. It is for the one
// owner of a store, before anybody writes.
func (s *Store) DropUnfinished() error {
	entries, err := fs.ReadDir(s.root.FS(), tempDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("content store %s: %w", s.cfg.Dir, err)
	}
	var errs []error
	for _, e := range entries {
		if path.Ext(e.Name()) != tempEnd {
			continue
		}
		if err := s.root.Remove(path.Join(tempDir, e.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
