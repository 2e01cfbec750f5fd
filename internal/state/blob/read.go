package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
)

// Stat returns the size of a blob without verifying its content.
func (s *Store) Stat(_ context.Context, d api.Digest) (int64, error) {
	if _, err := api.ParseDigest(string(d)); err != nil {
		return 0, err
	}
	st, err := s.root.Lstat(blobPath(d))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, s.missing(d)
	}
	if err != nil {
		return 0, fmt.Errorf("blob %s: %w", d, err)
	}
	if !st.Mode().IsRegular() {
		return 0, s.corrupt(d, "is not a regular file")
	}
	return st.Size(), nil
}

// Has reports whether a blob exists, without verifying it.
func (s *Store) Has(ctx context.Context, d api.Digest) (bool, error) {
	_, err := s.Stat(ctx, d)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Get returns a blob of at most limit bytes.
func (s *Store) Get(ctx context.Context, d api.Digest, limit int64) ([]byte, error) {
	r, err := s.Open(ctx, d)
	if err != nil {
		return nil, err
	}
	b, err := r.readAll(limit)
	return b, errors.Join(err, r.Close())
}

// Open returns a reader of a blob. Its content is verified only once the reader
// returns io.EOF; a blob that does not match its digest ends in an integrity
// error instead.
func (s *Store) Open(ctx context.Context, d api.Digest) (*Reader, error) {
	size, err := s.Stat(ctx, d)
	if err != nil {
		return nil, err
	}
	desc := ocispec.Descriptor{MediaType: "application/octet-stream", Digest: digest.Digest(d), Size: size}
	file, err := s.oci.Fetch(ctx, desc)
	if errors.Is(err, errdef.ErrNotFound) {
		return nil, s.missing(d)
	}
	if durable.IsFault(err) {
		return nil, fmt.Errorf("blob %s: %w", d, err)
	}
	if err != nil {
		return nil, s.corrupt(d, err.Error())
	}
	return &Reader{Size: size, store: s, digest: d, file: file, verify: content.NewVerifyReader(file, desc)}, nil
}

// Reader reads a blob and verifies it at the end.
type Reader struct {
	Size int64 // of the file

	store  *Store
	digest api.Digest
	file   io.Closer
	verify *content.VerifyReader
}

// Read reads unverified content; io.EOF means that all of it is verified.
func (r *Reader) Read(p []byte) (int, error) {
	n, err := r.verify.Read(p)
	if errors.Is(err, io.EOF) {
		if bad := r.verify.Verify(); bad != nil {
			return n, r.store.corrupt(r.digest, "does not have this digest")
		}
	}
	return n, err
}

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }

func (r *Reader) readAll(limit int64) ([]byte, error) {
	if r.Size > limit {
		return nil, api.Errorf(api.CodeTooLarge, "blob %s: %d bytes, over the limit of %d", r.digest, r.Size, limit)
	}
	b := make([]byte, r.Size)
	if _, err := io.ReadFull(r, b); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = r.store.corrupt(r.digest, "ends early")
		}
		return nil, err
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		if err == nil || errors.Is(err, io.EOF) {
			err = r.store.corrupt(r.digest, "grew while it was read")
		}
		return nil, err
	}
	return b, nil
}

func (s *Store) missing(d api.Digest) error {
	return &MissingError{Digest: d, Dir: s.cfg.Dir}
}

// MissingError means that a store does not have a blob. It is fs.ErrNotExist and
// has code integrity.
type MissingError struct {
	Digest api.Digest
	Dir    string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("blob %s: not in the store %s", e.Digest, e.Dir)
}

// Unwrap implements the interface of package errors.
func (e *MissingError) Unwrap() []error {
	return []error{&api.Error{Code: api.CodeIntegrity, Message: e.Error()}, fs.ErrNotExist}
}

func (s *Store) corrupt(d api.Digest, what string) error {
	return &CorruptError{Digest: d, Path: s.Path(d), What: what}
}

// CorruptError means that a file of the store does not match its name. It has
// code integrity.
type CorruptError struct {
	Digest api.Digest
	Path   string
	What   string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("blob %s: its file %s %s", e.Digest, e.Path, e.What)
}

// Unwrap implements the interface of package errors.
func (e *CorruptError) Unwrap() error { return &api.Error{Code: api.CodeIntegrity, Message: e.Error()} }

// regularFS opens only regular files, within the store. A planted fifo or device
// must not block a reader.
type regularFS struct{ root *os.Root }

func (f regularFS) Open(name string) (fs.File, error) {
	// A stat first: opening a device may have effects.
	st, err := f.root.Stat(name)
	if err != nil {
		return nil, err
	}
	irregular := &fs.PathError{Op: "open", Path: name, Err: errors.New("not a regular file")}
	if !st.Mode().IsRegular() {
		return nil, irregular
	}
	file, err := f.root.OpenFile(name, os.O_RDONLY|durable.Nonblock, 0)
	if err != nil {
		return nil, err
	}
	if st, err := file.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, errors.Join(err, file.Close(), irregular)
	}
	return file, nil
}

func (f regularFS) Stat(name string) (fs.FileInfo, error) { return f.root.Stat(name) }
