package blob

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
)

// Put stores b durably and returns its digest.
func (s *Store) Put(ctx context.Context, b []byte) (api.Digest, error) {
	d := api.DigestOf(b)
	if err := s.protect(ctx, d); err != nil {
		return d, err
	}
	exists, err := s.existing(ctx, d)
	if exists || err != nil {
		return d, err
	}
	_, _, err = s.PutStream(ctx, bytes.NewReader(b))
	return d, err
}

// PutStream is Put for content from a reader. It also returns the size.
func (s *Store) PutStream(ctx context.Context, r io.Reader) (d api.Digest, size int64, err error) {
	if err := s.root.Mkdir(tempDir, s.cfg.dirMode()); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", 0, fmt.Errorf("content store %s: %w", s.cfg.Dir, err)
	}
	temp := path.Join(tempDir, rand.Text()+tempEnd)
	f, err := durable.NewTemp(s.root, temp, s.cfg.fileMode())
	if err != nil {
		return "", 0, fmt.Errorf("content store %s: %w", s.cfg.Dir, err)
	}
	sum := sha256.New()
	size, err = io.Copy(io.MultiWriter(f, sum), io.LimitReader(reader{ctx, r}, MaxSize+1))
	if err == nil && size > MaxSize {
		err = api.Errorf(api.CodeTooLarge, "larger than %d bytes", int64(MaxSize))
	}
	d = api.Digest("sha256:" + hex.EncodeToString(sum.Sum(nil)))
	if err == nil {
		err = s.protect(ctx, d)
	}
	if err := place(f, blobPath(d), err); err != nil {
		return "", 0, fmt.Errorf("content store %s: write a blob: %w", s.cfg.Dir, err)
	}
	return d, size, nil
}

// existing reports whether the blob exists, intact and durable. A damaged one does
// not count: writing it again repairs it.
func (s *Store) existing(ctx context.Context, d api.Digest) (bool, error) {
	r, err := s.Open(ctx, d)
	if err != nil {
		return false, nil //nolint:nilerr // missing or damaged: it is written
	}
	_, err = io.Copy(io.Discard, r)
	if err = errors.Join(err, r.Close()); err != nil {
		return false, nil //nolint:nilerr // as above
	}
	// Its writer may have been killed before it synced the directory.
	return true, durable.SyncIn(s.root, blobDir)
}

// place gives a temporary file its final name, durably, or removes it if err, the
// error of writing it, is not nil.
func place(f *durable.Temp, final string, err error) error {
	f.Synced = func() { failpoint.Hit(failpoint.BlobWritten, final) }
	f.Placed = func() { failpoint.Hit(failpoint.BlobPlaced, final) }
	return f.Replace(final, err)
}

// reader stops a copy when its context ends.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
