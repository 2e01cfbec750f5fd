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
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
)

// File is a blob in the file system, unverified.
type File struct {
	Digest api.Digest
	Size   int64
}

// Files calls fn for every blob, in the order of the file system. It ignores
// files that are not blobs.
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

// Sweep removes blobs that nothing refers to. Its caller finds out what refers
// to which blob, after the sweep began.
type Sweep struct {
	store     *Store
	protected map[api.Digest]bool // guarded by store.protections.mu
	dirty     bool
}

// Sweep begins a sweep; only one may be in progress.
func (s *Store) Sweep() (*Sweep, error) {
	s.protections.mu.Lock()
	defer s.protections.mu.Unlock()
	if s.protections.sweep != nil {
		return nil, fmt.Errorf("content store %s: a sweep is in progress", s.cfg.Dir)
	}
	w := &Sweep{store: s, protected: map[api.Digest]bool{}}
	for d := range s.protections.counts {
		w.protected[d] = true
	}
	s.protections.sweep = w
	return w, nil
}

// Remove removes a blob unless it is protected, or was since the sweep began,
// and reports whether it is gone.
func (w *Sweep) Remove(d api.Digest) (bool, error) {
	if _, err := api.ParseDigest(string(d)); err != nil {
		return false, err
	}
	// Under the lock: a concurrent Put of d has protected it, or finds it gone.
	w.store.protections.mu.Lock()
	defer w.store.protections.mu.Unlock()
	if w.protected[d] {
		return false, nil
	}
	err := w.store.root.Remove(blobPath(d))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("blob %s: %w", d, err)
	}
	w.dirty = w.dirty || err == nil
	return true, nil
}

// Protected reports whether Remove would keep d now.
func (w *Sweep) Protected(d api.Digest) bool {
	w.store.protections.mu.Lock()
	defer w.store.protections.mu.Unlock()
	return w.protected[d]
}

// Close ends the sweep. When it returns without an error, the removals are
// durable.
func (w *Sweep) Close() error {
	w.store.protections.mu.Lock()
	if w.store.protections.sweep == w {
		w.store.protections.sweep = nil
	}
	w.store.protections.mu.Unlock()
	if !w.dirty {
		return nil
	}
	return durable.SyncIn(w.store.root, blobDir)
}

// RemoveTemp removes the temporary files that killed writers left. It is for the
// only owner of a store, before any write.
func (s *Store) RemoveTemp() error {
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
