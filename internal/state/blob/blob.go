// Package blob stores content under its own SHA-256 digest, in an OCI image
// layout on disk, which registries, mirrors and oras read unchanged.
//
// Puts are durable and reads are verified: a file that does not match its name
// is an integrity error that names both. The package never follows a link out
// of the store, removes blobs only on Sweep.Remove, and then only unprotected
// ones, and does not interpret content. It creates index.json with the
// layout and only reads it afterwards.
//
// It carries the storage side of R-C4 (content-addressed artifacts) and R-D5
// (content-addressed results).
package blob

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content/oci"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
)

// ErrNoStore means that a directory has no layout.
var ErrNoStore = errors.New("no content store there")

const (
	// MaxSize is the largest blob, in bytes.
	MaxSize = 16 << 30
	// MaxIndex is the largest index.json, in bytes.
	MaxIndex = 16 << 20

	blobDir   = ocispec.ImageBlobsDir + "/sha256"
	tempDir   = "ingest" // as oras names it
	tempEnd   = ".part"
	layoutDoc = `{"imageLayoutVersion":"` + ocispec.ImageLayoutVersion + `"}`
)

// Config configures a store.
type Config struct {
	Dir string
	// Private makes all files readable by their owner only.
	Private bool
	// Swept means that the store is garbage-collected by sweeps: Put then needs
	// a context of Protect.
	Swept bool
}

func (c Config) fileMode() fs.FileMode {
	if c.Private {
		return 0o600
	}
	return 0o644
}

func (c Config) dirMode() fs.FileMode {
	if c.Private {
		return 0o700
	}
	return 0o755
}

// Store is a content store, safe for concurrent use by goroutines and processes.
type Store struct {
	cfg  Config
	root *os.Root
	oci  *oci.ReadOnlyStorage

	protections protections
}

// Create creates an empty store and opens it. It refuses a directory that is not
// empty, except for the remains of an interrupted Create.
func Create(cfg Config) (*Store, error) {
	if err := os.MkdirAll(cfg.Dir, cfg.dirMode()); err != nil {
		return nil, fmt.Errorf("content store: %w", err)
	}
	root, err := os.OpenRoot(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("content store: %w", err)
	}
	s := &Store{cfg: cfg, root: root}
	index, err := canon.Marshal(EmptyIndex())
	if err == nil {
		err = s.clearUnfinished(index)
	}
	if err == nil {
		err = s.makeDirs(".", ocispec.ImageBlobsDir, blobDir, tempDir)
	}
	if err == nil {
		err = s.syncNames()
	}
	// oci-layout last: it is what makes the directory a store.
	if err == nil {
		err = s.writeNew(ocispec.ImageIndexFile, index)
	}
	if err == nil {
		err = s.writeNew(ocispec.ImageLayoutFile, []byte(layoutDoc))
	}
	if err = errors.Join(err, root.Close()); err != nil {
		return nil, fmt.Errorf("content store %s: %w", cfg.Dir, err)
	}
	return Open(cfg)
}

// makeDirs creates directories with the mode of the store, whatever the umask.
func (s *Store) makeDirs(names ...string) error {
	for _, name := range names {
		if err := s.root.MkdirAll(name, s.cfg.dirMode()); err != nil {
			return err
		}
		if err := s.root.Chmod(name, s.cfg.dirMode()); err != nil && runtime.GOOS != "windows" {
			return err
		}
	}
	return nil
}

// EmptyIndex is an index.json without entries.
func EmptyIndex() ocispec.Index {
	index := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{}}
	index.SchemaVersion = 2
	return index
}

// Open opens an existing store.
func Open(cfg Config) (*Store, error) {
	root, err := os.OpenRoot(cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("content store %s: %w", cfg.Dir, ErrNoStore)
	}
	if err != nil {
		return nil, fmt.Errorf("content store: %w", err)
	}
	s := &Store{cfg: cfg, root: root, oci: oci.NewStorageFromFS(regularFS{root})}
	if err := s.checkLayout(); err != nil {
		return nil, errors.Join(fmt.Errorf("content store %s: %w", cfg.Dir, err), root.Close())
	}
	return s, nil
}

func (s *Store) checkLayout() error {
	b, err := s.readSmall(ocispec.ImageLayoutFile, 4<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNoStore
	}
	if err != nil {
		return err
	}
	var l ocispec.ImageLayout
	if err := canon.Decode(b, &l); err != nil {
		return fmt.Errorf("%s: %w", ocispec.ImageLayoutFile, err)
	}
	if again, err := canon.Marshal(l); err != nil || !bytes.Equal(again, bytes.TrimSpace(b)) {
		return fmt.Errorf("%s: not in canonical form", ocispec.ImageLayoutFile)
	}
	if l.Version != ocispec.ImageLayoutVersion {
		return fmt.Errorf("%s: version %.40q, want %q", ocispec.ImageLayoutFile, l.Version, ocispec.ImageLayoutVersion)
	}
	return nil
}

// Close releases the directory.
func (s *Store) Close() error { return s.root.Close() }

// Dir returns the directory of the store.
func (s *Store) Dir() string { return s.cfg.Dir }

// Path returns the path of a blob, for messages.
func (s *Store) Path(d api.Digest) string {
	return filepath.Join(s.cfg.Dir, filepath.FromSlash(blobPath(d)))
}

func blobPath(d api.Digest) string { return path.Join(blobDir, d.Hex()) }

// Index returns the bytes of index.json, which a store cannot verify.
func (s *Store) Index(context.Context) ([]byte, error) {
	b, err := s.readSmall(ocispec.ImageIndexFile, MaxIndex)
	if err != nil {
		return nil, fmt.Errorf("content store %s: %w", s.cfg.Dir, err)
	}
	return b, nil
}

func (s *Store) readSmall(name string, limit int64) (b []byte, err error) {
	f, err := regularFS{s.root}.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b, err = io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s: larger than %d bytes", name, limit)
	}
	return b, err
}

// List calls fn with the digest of every blob, in bytewise order. Any other file
// is an error.
func (s *Store) List(ctx context.Context, fn func(api.Digest) error) error {
	entries, err := fs.ReadDir(s.root.FS(), blobDir)
	if err != nil {
		return fmt.Errorf("content store %s: %w", s.cfg.Dir, err)
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		d, err := api.ParseDigest("sha256:" + e.Name())
		if err != nil {
			return fmt.Errorf("content store %s: %s/%s is not a blob", s.cfg.Dir, blobDir, e.Name())
		}
		if err := fn(d); err != nil {
			return err
		}
	}
	return nil
}

// writeNew writes a file of the layout.
func (s *Store) writeNew(name string, b []byte) error {
	temp := name + "." + rand.Text() + tempEnd
	f, err := durable.NewTemp(s.root, temp, s.cfg.fileMode())
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return place(f, name, err)
}
