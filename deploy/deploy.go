// Package deploy writes the catalog: it is the only package that does.
//
// A human, or CI that humans review, declares what workers are, what they can
// do and what they have access to in a manifest. Load reads it, Plan compares
// it with the catalog and says what would change and what would widen
// somebody's authority, and Apply publishes one signed revision: all of it or
// nothing. With a threshold above one, Apply publishes a proposal, and Sign
// adds signatures until the proposal becomes the revision.
//
// The package never dispatches, never reads the environment, and holds no
// key: signers are handed to it. No run-time program links it.
//
// It carries R-B1 (deploy-time operations), R-B5 (the writing side), R-B8,
// R-C1, R-C2, R-C4 and R-C6.
package deploy

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/blob"
	"github.com/bailiwick-dev/bailiwick/internal/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/seal"
)

// What callers outside this module need to name.
type (
	// Signer signs revisions with a deploy key.
	Signer = seal.Signer
	// TrustRoot says whose signatures count and how many are needed.
	TrustRoot = seal.TrustRoot
	// Key is a deploy key's public half, as a trust root lists it.
	Key = seal.Key
	// KeyID names a deploy key.
	KeyID = seal.KeyID
	// Revision is a verified revision.
	Revision = catalog.Revision
	// Mark identifies a revision.
	Mark = catalog.Mark
)

// IDOf returns the id of a deploy key's public half. Whoever keeps the other
// half elsewhere makes a Signer of its own with it.
func IDOf(public []byte) KeyID { return seal.IDOf(public) }

// Config says where a catalog is and who may sign it.
type Config struct {
	Dir       string           // of the OCI layout
	TrustRoot TrustRoot        // whose signatures count
	Now       func() time.Time // the clock that dates revisions; required

	// beforePublish runs when everything but the index is written. Tests kill
	// the process there.
	beforePublish func()
}

// Catalog is a catalog that can be written.
type Catalog struct {
	cfg   Config
	store *blob.Store
	read  *catalog.Catalog
}

// Create makes an empty catalog and opens it.
func Create(cfg Config) (*Catalog, error) {
	store, err := blob.Create(blob.Config{Dir: cfg.Dir})
	if err != nil {
		return nil, fmt.Errorf("create the catalog: %w", err)
	}
	if err := store.Close(); err != nil {
		return nil, fmt.Errorf("create the catalog: %w", err)
	}
	return Open(cfg)
}

// Open opens the catalog that Create made.
func Open(cfg Config) (*Catalog, error) {
	if cfg.Now == nil {
		return nil, errors.New("catalog: no clock")
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	cfg.Dir = dir
	store, err := blob.Open(blob.Config{Dir: dir})
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	read, err := catalog.Open(store, cfg.TrustRoot)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &Catalog{cfg: cfg, store: store, read: read}, nil
}

// Close releases the catalog.
func (c *Catalog) Close() error { return c.store.Close() }

// File returns the content of a capability's file, verified.
func (c *Catalog) File(ctx context.Context, f api.File) ([]byte, error) {
	return c.store.Get(ctx, f.Digest, catalog.MaxBundle)
}

// Reader is the verified view of the catalog.
func (c *Catalog) Reader() *catalog.Catalog { return c.read }

// Current returns the verified head, or nil where nothing has been applied.
func (c *Catalog) Current(ctx context.Context) (*Revision, error) {
	r, err := c.read.Current(ctx)
	if catalog.FaultOf(err) == catalog.FaultEmpty {
		return nil, nil //nolint:nilnil // an empty catalog is where everybody starts
	}
	return r, err
}
