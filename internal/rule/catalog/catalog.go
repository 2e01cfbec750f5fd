// Package catalog reads the catalog and verifies what it returns.
//
// A catalog is a sequence of revisions in a content store. The store is not
// trusted: the head is verified by signatures of enough keys of the trust root,
// everything else by digests that the head names. A revision that is incomplete,
// unsigned, or older than one seen before is an error with a Fault.
//
// The package cannot write: it holds no key, gets a store with read methods only,
// and imports neither os nor the packages that publish.
//
// It carries the reading side of R-B5 and R-C4.
package catalog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// Limits of what is read. deploy writes nothing larger.
const (
	MaxRevision  = 8 << 20  // bytes of a revision document
	MaxDocument  = 4 << 20  // bytes of an artifact document
	MaxBundle    = 50 << 20 // bytes of all files of a capability
	MaxFiles     = 10_000   // files of a capability
	MaxArtifacts = 10_000
	maxManifest  = 64 << 20
	maxEnvelopes = 64
)

// Reader is the store of a catalog. Get verifies content against its digest.
type Reader interface {
	Index(ctx context.Context) ([]byte, error)
	Get(ctx context.Context, d api.Digest, limit int64) ([]byte, error)
	Stat(ctx context.Context, d api.Digest) (size int64, err error)
	List(ctx context.Context, fn func(api.Digest) error) error
}

// Catalog is a catalog in a store, under a trust root.
type Catalog struct {
	store Reader
	root  seal.TrustRoot
}

// Open returns the catalog in store, without reading it.
func Open(store Reader, root seal.TrustRoot) (*Catalog, error) {
	if store == nil {
		return nil, errors.New("catalog: no store")
	}
	if err := root.Validate(); err != nil {
		return nil, fault(FaultMalformed, err, "catalog")
	}
	return &Catalog{store: store, root: root}, nil
}

// TrustRoot returns the keys whose signatures count.
func (c *Catalog) TrustRoot() seal.TrustRoot { return c.root }

// Version identifies the state of an index: with equal versions, Current reads the
// same head.
type Version string

// Version reads only the index.
func (c *Catalog) Version(ctx context.Context) (Version, error) {
	b, err := c.store.Index(ctx)
	if err != nil {
		return "", readFault(err, "catalog index")
	}
	return Version(api.DigestOf(b)), nil
}

// Current returns the head of the catalog after verifying its signatures and
// artifacts, the presence of every file, and the link to the previous revision.
// CheckHighWater detects a rollback behind what the caller has seen.
func (c *Catalog) Current(ctx context.Context) (*Revision, error) {
	idx, err := c.index(ctx)
	if err != nil {
		return nil, err
	}
	desc, ok := idx.tags[TagCurrent]
	if !ok {
		if len(idx.tags) == 0 || idx.onlyProposal() {
			return nil, fault(FaultEmpty, nil, "the catalog has no revision yet")
		}
		return nil, fault(FaultMalformed, nil, "catalog index: has revisions, but no tag %q", TagCurrent)
	}
	r, err := c.load(ctx, idx, desc)
	if err != nil {
		return nil, err
	}
	if err := c.checkPlace(ctx, idx, r); err != nil {
		return nil, err
	}
	return r, nil
}

// checkPlace checks the tags of a head.
func (c *Catalog) checkPlace(ctx context.Context, idx *index, r *Revision) error {
	if same, ok := idx.tags[TagOf(r.Number())]; !ok || !same.same(idx.tags[TagCurrent]) {
		return fault(FaultMalformed, nil, "catalog index: tags %q and %q differ", TagCurrent, TagOf(r.Number()))
	}
	if n := idx.highest(); n > r.Number() {
		return fault(FaultRollback, nil, "catalog index: %q is revision %d, but revision %d exists", TagCurrent, r.Number(), n)
	}
	_, err := c.previous(ctx, &r.doc)
	return err
}

// At returns the revision whose document has digest d, verified as by Current. A
// worker uses it for the revision of its manifest.
func (c *Catalog) At(ctx context.Context, d api.Digest) (*Revision, error) {
	idx, doc, desc, err := c.locate(ctx, d)
	if err != nil {
		return nil, err
	}
	r, err := c.load(ctx, idx, desc)
	if err == nil && r.Digest() != d {
		return nil, fault(FaultMalformed, nil, "revision %d: the index has %s, want %s", doc.Number, r.Digest().Short(), d.Short())
	}
	return r, err
}

// Signed returns the revision document with digest d and its envelopes, for callers
// that pass them on to a verifier. It checks digests but no signatures, so that
// evidence stays available after a change of the trust root.
func (c *Catalog) Signed(ctx context.Context, d api.Digest) (api.Revision, [][]byte, error) {
	idx, doc, desc, err := c.locate(ctx, d)
	if err != nil {
		return api.Revision{}, nil, err
	}
	envelopes, err := c.envelopes(ctx, idx, desc.Digest)
	return doc, envelopes, err
}

// locate returns the revision document with digest d, and the index entry of its
// number.
func (c *Catalog) locate(ctx context.Context, d api.Digest) (*index, api.Revision, descriptor, error) {
	idx, err := c.index(ctx)
	if err != nil {
		return nil, api.Revision{}, descriptor{}, err
	}
	doc, err := c.document(ctx, d)
	if err != nil {
		return nil, api.Revision{}, descriptor{}, err
	}
	desc, ok := idx.tags[TagOf(doc.Number)]
	if !ok {
		err = fault(FaultUnsigned, nil, "revision %d (%s): not in the catalog's index", doc.Number, d.Short())
	}
	return idx, doc, desc, err
}

// Numbered returns the revision with this number, verified as by Current.
func (c *Catalog) Numbered(ctx context.Context, number uint64) (*Revision, error) {
	idx, err := c.index(ctx)
	if err != nil {
		return nil, err
	}
	desc, ok := idx.tags[TagOf(number)]
	if !ok {
		return nil, api.Errorf(api.CodeNotFound, "revision %d: not in the catalog", number)
	}
	r, err := c.load(ctx, idx, desc)
	if err != nil {
		return nil, err
	}
	if r.Number() != number {
		return nil, fault(FaultMalformed, nil, "catalog index: %q is revision %d", TagOf(number), r.Number())
	}
	return r, nil
}

// Proposal returns the revision that needs more signatures, or nil. It is complete
// and signed by at least one key of the trust root, but has no effect.
func (c *Catalog) Proposal(ctx context.Context) (*Revision, error) {
	idx, err := c.index(ctx)
	if err != nil {
		return nil, err
	}
	desc, ok := idx.tags[TagProposal]
	if !ok {
		return nil, nil //nolint:nilnil // usually there is no proposal
	}
	return c.loadAllowing(ctx, idx, desc, seal.ErrThreshold)
}

// load returns a verified revision.
func (c *Catalog) load(ctx context.Context, idx *index, desc descriptor) (*Revision, error) {
	return c.loadAllowing(ctx, idx, desc, nil)
}

// loadAllowing is load, but accepts signatures with the error tolerated. It
// verifies the signatures before it reads the artifacts.
func (c *Catalog) loadAllowing(ctx context.Context, idx *index, desc descriptor, tolerated error) (*Revision, error) {
	manifest, err := c.get(ctx, desc.Digest, maxManifest, "revision manifest")
	if err != nil {
		return nil, err
	}
	config, err := configOf(manifest)
	if err != nil {
		return nil, fault(FaultMalformed, err, "revision manifest %s", desc.Digest.Short())
	}
	doc, err := c.get(ctx, config, MaxRevision, "revision")
	if err != nil {
		return nil, err
	}
	envelopes, err := c.envelopes(ctx, idx, desc.Digest)
	if err != nil {
		return nil, err
	}
	keys, err := seal.VerifyDetached(doc, envelopes, seal.Revision, c.root)
	if err != nil && (tolerated == nil || !errors.Is(err, tolerated)) {
		return nil, sealFault(err, "revision %s", config.Short())
	}
	r := &Revision{digest: config, manifest: desc.Digest, signers: keys, version: idx.version}
	if r.doc, err = decodeRevision(doc); err != nil {
		return nil, fault(FaultMalformed, err, "revision %s", config.Short())
	}
	if r.set, err = c.artifacts(ctx, &r.doc); err != nil {
		return nil, err
	}
	if err := c.checkComplete(ctx, r, doc, manifest, desc); err != nil {
		return nil, err
	}
	return r, nil
}

func (c *Catalog) artifacts(ctx context.Context, doc *api.Revision) (*Set, error) {
	set := NewSet()
	for _, ref := range slices.Sorted(maps.Keys(doc.Artifacts)) {
		b, err := c.get(ctx, doc.Artifacts[ref].Digest, MaxDocument, string(ref))
		if err != nil {
			return nil, err
		}
		if err := set.Add(ref, b); err != nil {
			return nil, fault(FaultMalformed, err, "revision %d", doc.Number)
		}
		set.Own(ref, doc.Artifacts[ref].Project)
	}
	if problems := set.Problems(); len(problems) > 0 {
		return nil, fault(FaultMalformed, nil, "revision %d: %s", doc.Number, problems[0])
	}
	return set, nil
}

// checkComplete checks that the OCI manifest is the one that the signed document
// implies, and that every file exists.
func (c *Catalog) checkComplete(ctx context.Context, r *Revision, doc, manifest []byte, desc descriptor) error {
	want, err := Manifest(doc, r.set)
	if err != nil {
		return fault(FaultMalformed, err, "revision %d", r.Number())
	}
	if string(want) != string(manifest) || desc.check(manifest, RevisionType) != nil {
		return fault(FaultMalformed, nil, "revision %d: its OCI manifest %s does not match the signed document", r.Number(), desc.Digest.Short())
	}
	for _, f := range r.set.Files() {
		size, err := c.store.Stat(ctx, f.Digest)
		if err != nil {
			return readFault(err, "revision %d: file %s", r.Number(), f.Path)
		}
		if size != f.Size {
			return fault(FaultCorrupt, nil, "revision %d: file %s (blob %s) has %d bytes, want %d", r.Number(), f.Path, f.Digest, size, f.Size)
		}
	}
	return nil
}

// document returns a revision document by digest, without checking signatures.
func (c *Catalog) document(ctx context.Context, d api.Digest) (api.Revision, error) {
	b, err := c.get(ctx, d, MaxRevision, "revision")
	if err != nil {
		return api.Revision{}, err
	}
	doc, err := decodeRevision(b)
	if err != nil {
		return api.Revision{}, fault(FaultMalformed, err, "revision %s", d.Short())
	}
	return doc, nil
}

// previous returns the document before doc, or nil if doc is the first.
func (c *Catalog) previous(ctx context.Context, doc *api.Revision) (*api.Revision, error) {
	if doc.Number == 1 {
		return nil, nil //nolint:nilnil // the first revision
	}
	before, err := c.document(ctx, doc.Previous)
	if err != nil {
		return nil, fmt.Errorf("revision before %d: %w", doc.Number, err)
	}
	if before.Number != doc.Number-1 {
		return nil, fault(FaultMalformed, nil, "revision %d: the previous revision has number %d", doc.Number, before.Number)
	}
	return &before, nil
}

// File returns the verified content of a capability's file of at most limit bytes.
func (c *Catalog) File(ctx context.Context, f api.File, limit int64) ([]byte, error) {
	return c.get(ctx, f.Digest, limit, "file "+f.Path)
}

func (c *Catalog) get(ctx context.Context, d api.Digest, limit int64, what string) ([]byte, error) {
	b, err := c.store.Get(ctx, d, limit)
	if err != nil {
		return nil, readFault(err, "%s", what)
	}
	if api.DigestOf(b) != d { // do not rely on the store
		return nil, fault(FaultCorrupt, nil, "%s: blob %s does not match its digest", what, d)
	}
	return b, nil
}

// readFault distinguishes damage from an unreadable disk or a cancelled call.
func readFault(err error, format string, args ...any) error {
	if api.CodeOf(err) == api.CodeIntegrity || api.CodeOf(err) == api.CodeTooLarge || errors.Is(err, fs.ErrNotExist) {
		return fault(FaultCorrupt, err, format, args...)
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
