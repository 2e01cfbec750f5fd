package inforce

import (
	"context"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
)

// opened is the catalog store, opened once to be read.
type opened struct {
	token   string // equal tokens: nothing changed
	root    seal.TrustRoot
	catalog *catalog.Catalog
	blobs   *blob.Store // nil when it could not be opened
}

func (o opened) close() {
	if o.blobs != nil {
		_ = o.blobs.Close() // only read
	}
}

// openStore opens the store and finds out cheaply which state it is in.
func (r *Reader) openStore(ctx context.Context) (o opened, err error) {
	defer func() {
		if err != nil {
			o.token = "error: " + err.Error()
		}
	}()
	var encoded []byte
	if o.root, encoded, err = r.root.LoadDeployKeys(r.cfg.Dirs); err != nil {
		return o, err
	}
	if o.blobs, err = blob.Open(blob.Config{Dir: r.cfg.Dirs.Catalog()}); err != nil {
		return o, fmt.Errorf("catalog: %w", err)
	}
	if o.catalog, err = catalog.Open(o.blobs, o.root); err != nil {
		return o, err
	}
	version, err := o.catalog.Version(ctx)
	if err != nil {
		return o, err
	}
	o.token = string(version) + " " + string(encoded)
	return o, nil
}

// maxPinned bounds how many revisions that are not in force are cached.
const maxPinned = 16

// revisions caches the revisions that unsettled runs were submitted with.
type revisions struct {
	token    string // of the store in which they verified
	byDigest map[api.Digest]*catalog.Revision
}

// At returns the snapshot for a run that was submitted while revision d was in
// force: names mean what they meant then, and policy is that of today (R-C4).
// The revision has to verify against the trust root of today, and while the
// catalog is refused the error is that of Current.
func (r *Reader) At(ctx context.Context, d api.Digest) (Snapshot, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, err := r.refresh(ctx)
	if err != nil || s.Revision == nil || s.Revision.Digest() == d {
		return s, err
	}
	if r.pinned.token != r.token || len(r.pinned.byDigest) > maxPinned {
		r.pinned = revisions{token: r.token, byDigest: map[api.Digest]*catalog.Revision{}}
	}
	if rev := r.pinned.byDigest[d]; rev != nil {
		s.Revision = rev
		return s, nil
	}
	opened, err := r.openStore(ctx)
	defer opened.close()
	if err == nil {
		s.Revision, err = opened.catalog.At(ctx, d)
	}
	if err != nil {
		if ctx.Err() != nil {
			return Snapshot{}, ctx.Err()
		}
		return Snapshot{}, api.Errorf(api.CodeIntegrity, "catalog revision %s, pinned by the run: %w", d.Short(), err).
			WithHint("nothing is dispatched by a revision that does not verify; see: bailiwick catalog verify")
	}
	if opened.token == r.token {
		r.pinned.byDigest[d] = s.Revision
	}
	return s, nil
}

// Origins returns when the content that the names of rev refer to was
// registered. Walking the catalog's history does not delay a decision.
func (r *Reader) Origins(ctx context.Context, rev *catalog.Revision) (catalog.Origins, error) {
	r.originsMu.Lock()
	defer r.originsMu.Unlock()
	if r.origins.Of() == rev.Mark() {
		return r.origins, nil
	}
	opened, err := r.openStore(ctx)
	defer opened.close()
	if err != nil {
		return catalog.Origins{}, err
	}
	found, err := opened.catalog.Origins(ctx, rev, r.origins)
	if err == nil {
		r.origins = found
	}
	return found, err
}
