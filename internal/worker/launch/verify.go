package launch

import (
	"context"
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
	rule     *api.WriteRule // by which people approved it; nil: nobody has to
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
	payload, by, err := a.Keys.Verify(a.Manifest, seal.Manifest)
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
	return v, l.revisions.read(ctx, m.RevisionDigest, l.sys != nil, func(cat *catalog.Catalog, rev, head *catalog.Revision) (err error) {
		if v.named, err = rev.Bind(m); err != nil || l.sys == nil {
			return err
		}
		if err := l.sys.marks.follow(ctx, cat, head, rev, &a.Keys, by.ID, m, l.cfg.Now); err != nil {
			return err
		}
		v.rule = head.Writes(m.Principal, v.named.Subagent.Effect)
		if v.rule == nil {
			return nil
		}
		return l.sys.operators.approved(a.Keys.First().ID, m, v.rule, a.Approval, now)
	})
}

// maxRevisions is how many verified revisions are kept.
const maxRevisions = 4

// revisions reads the catalog, whose signatures count by a trust root.
type revisions struct {
	dirs api.Dirs

	mu     sync.Mutex
	reader seal.TrustRootReader
	last   string                           // the trust root that known was verified by; guarded by mu
	known  map[api.Digest]*catalog.Revision // guarded by mu
	head   *catalog.Revision                // as it was read last; guarded by mu
}

// read calls fn with the revision whose document has digest d, or the head without one; and
// with the catalog and its head, if fn wants them.
func (r *revisions) read(ctx context.Context, d api.Digest, wantHead bool, fn func(cat *catalog.Catalog, rev, head *catalog.Revision) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	root, raw, err := r.reader.LoadDeployKeys(r.dirs)
	if err != nil {
		return err
	}
	if r.last != string(raw) || len(r.known) > maxRevisions {
		r.last, r.known, r.head = string(raw), map[api.Digest]*catalog.Revision{}, nil
	}
	if rev := r.known[d]; rev != nil && !wantHead {
		return fn(nil, rev, nil)
	}
	store, err := blob.Open(blob.Config{Dir: r.dirs.Catalog()})
	if err != nil {
		return err
	}
	defer store.Close() //nolint:errcheck // only read
	cat, err := catalog.Open(store, root)
	if err != nil {
		return err
	}
	if wantHead {
		version, err := cat.Version(ctx)
		if err == nil && (r.head == nil || r.head.Version() != version) {
			r.head, err = cat.Current(ctx)
		}
		if err != nil {
			r.head = nil
			return err
		}
		r.known[r.head.Digest()] = r.head
		if d == "" {
			d = r.head.Digest()
		}
	}
	rev := r.known[d]
	if rev == nil {
		if rev, err = cat.At(ctx, d); err != nil {
			return err
		}
		r.known[d] = rev
	}
	return fn(cat, rev, r.head)
}
