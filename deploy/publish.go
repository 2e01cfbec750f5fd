package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
)

// release is a revision or proposal to publish.
type release struct {
	number   uint64
	doc      []byte
	manifest []byte
	fresh    []byte       // the envelope with the new signatures
	signed   []seal.KeyID // keys that signed in earlier envelopes
}

// publish attaches the new signatures and replaces the index, which makes the
// revision or proposal visible.
func (c *Catalog) publish(ctx context.Context, r release) (*Applied, error) {
	ids, err := seal.VerifyDetached(r.doc, [][]byte{r.fresh}, seal.Revision, c.cfg.TrustRoot)
	if err != nil && !errors.Is(err, seal.ErrThreshold) {
		return nil, err // a broken signer
	}
	ids = append(ids, r.signed...)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	signature, err := catalog.SignatureManifest(r.manifest, r.fresh)
	if err != nil {
		return nil, err
	}
	for _, b := range [][]byte{r.fresh, signature} {
		if _, err := c.store.Put(ctx, b); err != nil {
			return nil, fmt.Errorf("signature: %w", err)
		}
	}
	done := &Applied{
		Number: r.number, Digest: api.DigestOf(r.doc), Signers: ids,
		Needed: c.cfg.TrustRoot.Threshold, Proposal: len(ids) < c.cfg.TrustRoot.Threshold,
	}
	index, err := c.nextIndex(ctx, r.manifest, signature, done)
	if err != nil {
		return nil, err
	}
	if c.cfg.beforePublish != nil {
		c.cfg.beforePublish()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := c.replaceIndex(index); err != nil {
		return nil, fmt.Errorf("catalog index: %w", err)
	}
	return done, nil
}

// nextIndex returns the index with the revision or proposal added. It removes a
// replaced proposal with its signatures.
func (c *Catalog) nextIndex(ctx context.Context, manifest, signature []byte, done *Applied) ([]byte, error) {
	raw, err := c.store.Index(ctx)
	if err != nil {
		return nil, err
	}
	var index ocispec.Index
	if err := canon.Decode(raw, &index); err != nil {
		return nil, fmt.Errorf("catalog index: %w", err)
	}
	tags := []string{catalog.TagProposal}
	if !done.Proposal {
		tags = []string{catalog.TagOf(done.Number), catalog.TagCurrent}
	}
	kept := keepEntries(index.Manifests, api.DigestOf(manifest), append(tags, catalog.TagProposal))
	for _, t := range tags {
		kept = append(kept, catalog.IndexEntry(manifest, t))
	}
	index.Manifests = append(kept, catalog.SignatureEntry(signature, api.DigestOf(manifest)))
	next, err := canon.Marshal(index)
	if err == nil && len(next) > blob.MaxIndex {
		err = api.Errorf(api.CodeTooLarge, "catalog index: would be larger than %d bytes", blob.MaxIndex)
	}
	return next, err
}

// keepEntries drops the entries with the given tags, and the signatures of
// manifests that then have no tag.
func keepEntries(all []ocispec.Descriptor, manifest api.Digest, tags []string) []ocispec.Descriptor {
	alive := map[string]bool{string(manifest): true}
	var kept []ocispec.Descriptor
	for _, d := range all {
		tag, ok := d.Annotations[ocispec.AnnotationRefName]
		if ok && slices.Contains(tags, tag) {
			continue
		}
		if ok {
			alive[string(d.Digest)] = true
		}
		kept = append(kept, d)
	}
	return slices.DeleteFunc(kept, func(d ocispec.Descriptor) bool {
		subject, ok := catalog.SubjectOf(d)
		return ok && !alive[subject]
	})
}

// replaceIndex replaces the index atomically and durably.
func (c *Catalog) replaceIndex(b []byte) error {
	root, err := os.OpenRoot(c.cfg.Dir)
	if err != nil {
		return err
	}
	// The service must be able to read it, whatever the umask.
	return errors.Join(durable.ReplaceIn(root, ocispec.ImageIndexFile, b, 0o644), root.Close())
}
