package launch

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
)

// MaxManifest bounds the envelope of a manifest, in bytes.
const MaxManifest = 1 << 20

// verified is an attempt that may start.
type verified struct {
	manifest record.Manifest
	digest   api.Digest // of its envelope
	named    catalog.Named
}

// verify refuses an attempt that is not exactly what the service signed and what humans
// defined.
func (l *Launcher) verify(ctx context.Context, a *Attempt) (v verified, err error) {
	defer func() {
		if err != nil && !durable.IsFault(err) && api.CodeOf(err) == api.CodeInternal {
			err = api.Errorf(api.CodeIntegrity, "%w", err)
		}
	}()
	if len(a.Manifest) > MaxManifest {
		return v, fmt.Errorf("manifest: larger than %d bytes", MaxManifest)
	}
	if err := a.Keys.Validate(); err != nil {
		return v, err
	}
	payload, _, err := a.Keys.Verify(a.Manifest, seal.Manifest)
	if err == nil {
		err = canon.DecodeExact(payload, &v.manifest)
	}
	if err != nil {
		return v, fmt.Errorf("manifest: %w", err)
	}
	v.digest = api.DigestOf(a.Manifest)
	m, now := &v.manifest, l.cfg.Now()
	if err := m.Check(now); err != nil {
		return v, err
	}
	if m.Expires.Sub(now) > MaxValidity {
		return v, fmt.Errorf("manifest of dispatch %s: valid until %s, more than %s from now", m.ID, m.Expires, MaxValidity)
	}
	if _, err := api.ParseDispatchID(string(m.ID)); err != nil {
		return v, fmt.Errorf("manifest: %w", err)
	}
	revision, err := l.revisions.at(ctx, m.RevisionDigest)
	if err == nil {
		v.named, err = revision.Bind(m)
	}
	return v, err
}

// maxRevisions is how many verified revisions are kept.
const maxRevisions = 4

// revisions reads the catalog, whose signatures count by a trust root.
type revisions struct {
	dir, root string

	mu     sync.Mutex
	reader seal.TrustRootReader
	last   string                           // the trust root that known was verified by; guarded by mu
	known  map[api.Digest]*catalog.Revision // guarded by mu
}

// at returns the revision whose document has a digest.
func (r *revisions) at(ctx context.Context, d api.Digest) (*catalog.Revision, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	root, bytes, err := r.reader.Load(r.root)
	if err != nil {
		return nil, err
	}
	if r.last != string(bytes) || len(r.known) >= maxRevisions {
		r.last, r.known = string(bytes), map[api.Digest]*catalog.Revision{}
	}
	if rev := r.known[d]; rev != nil {
		return rev, nil
	}
	store, err := blob.Open(blob.Config{Dir: r.dir})
	if err != nil {
		return nil, err
	}
	cat, err := catalog.Open(store, root)
	var rev *catalog.Revision
	if err == nil {
		rev, err = cat.At(ctx, d)
	}
	if err = errors.Join(err, store.Close()); err != nil {
		return nil, err
	}
	r.known[d] = rev
	return rev, nil
}
