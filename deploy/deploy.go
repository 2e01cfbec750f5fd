// Package deploy writes the catalog: it is the only package that does.
//
// A human, or CI that humans review, declares in a manifest what workers are, what
// they can do and what they can access. Load reads it, Plan compares it with the
// catalog and reports what would change and what would widen authority, and Apply
// publishes one signed revision, all or nothing. With a threshold above one, Apply
// publishes a proposal, and Sign adds signatures until it becomes the revision.
//
// A plan asks servers of tools what they say about them, through a Definer of the caller,
// and refuses what the manifest has no pin of.
//
// The package never dispatches, never reads the environment, and holds no key:
// callers pass signers. No run-time program links it.
//
// It carries R-B1 (deploy-time operations), R-B5 (the writing side), R-B8,
// R-C1, R-C2, R-C4, R-C6, and the reviewed side of R-G1 and R-G2.
package deploy

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
)

// Types that callers outside this module need.
type (
	// Signer signs revisions with a deploy key.
	Signer = seal.Signer
	// TrustRoot lists the keys whose signatures count, and how many are needed.
	TrustRoot = seal.TrustRoot
	// Key is the public half of a deploy key, as in a trust root.
	Key = seal.Key
	// KeyID names a deploy key.
	KeyID = seal.KeyID
	// Revision is a verified revision.
	Revision = catalog.Revision
	// Mark identifies a revision.
	Mark = catalog.Mark
)

// IDOf returns the id of the public half of a deploy key. A Signer outside this
// module needs it.
func IDOf(public []byte) KeyID { return seal.IDOf(public) }

// Config says where a catalog is and which keys sign it.
type Config struct {
	Dir       string           // the OCI layout
	TrustRoot TrustRoot        // whose signatures count
	Now       func() time.Time // the clock that dates revisions; required
	Private   api.Private      // what a plan refuses in the readOnly of a target
	Define    Definer          // asks servers of tools; nil: none is asked

	// beforePublish runs when everything but the index is written: tests kill the
	// process there.
	beforePublish func()
	lockWait      time.Duration // tests wait shorter for another writer
	askWait       time.Duration // and for a server of tools
}

// Catalog is a writable catalog.
type Catalog struct {
	cfg   Config
	store *blob.Store
	read  *catalog.Catalog
}

// Create creates an empty catalog and opens it.
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

// Open opens an existing catalog.
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

// File returns the verified content of a capability's file.
func (c *Catalog) File(ctx context.Context, f api.File) ([]byte, error) {
	return c.store.Get(ctx, f.Digest, catalog.MaxBundle)
}

// Reader returns the verified read-only view of the catalog.
func (c *Catalog) Reader() *catalog.Catalog { return c.read }

// Current returns the verified head, or nil if nothing has been applied.
func (c *Catalog) Current(ctx context.Context) (*Revision, error) {
	r, err := c.read.Current(ctx)
	if catalog.FaultOf(err) == catalog.FaultEmpty {
		return nil, nil //nolint:nilnil // an empty catalog is not an error
	}
	return r, err
}
