package deploy

import (
	"context"
	"errors"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalogdiff"
)

// Proposal is a revision that needs more signatures, with its changes.
type Proposal struct {
	Revision *Revision
	api.CatalogDiff
}

// Proposal returns the current proposal, or nil.
func (c *Catalog) Proposal(ctx context.Context) (*Proposal, error) {
	r, err := c.read.Proposal(ctx)
	if err != nil || r == nil {
		return nil, err
	}
	head, err := c.Current(ctx)
	if err != nil {
		return nil, err
	}
	var before *catalog.Set
	if head != nil {
		before = head.Set()
	}
	return &Proposal{r, c.Compare(ctx, before, r.Set())}, nil
}

// Compare compares the artifacts of two revisions with the content of their files. A nil
// set is empty.
func (c *Catalog) Compare(ctx context.Context, before, after *catalog.Set) api.CatalogDiff {
	d := catalogdiff.Compare(before, after)
	catalogdiff.ShowContents(d, before, after, c.stored(ctx), c.stored(ctx))
	return d
}

// stored reads files of the catalog.
func (c *Catalog) stored(ctx context.Context) catalogdiff.Contents {
	return func(f api.File) ([]byte, error) { return c.store.Get(ctx, f.Digest, catalogdiff.MaxContent) }
}

// Sign adds signatures to the proposal with digest d, which is the one that the
// signer reviewed. At the threshold it becomes the current revision.
func (c *Catalog) Sign(ctx context.Context, d api.Digest, signers ...Signer) (_ *Applied, err error) {
	if err := c.checkApproval(Approval{Signers: signers}); err != nil {
		return nil, err
	}
	lock, err := c.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	proposal, err := c.read.Proposal(ctx)
	if err != nil {
		return nil, err
	}
	if proposal == nil {
		return nil, api.Errorf(api.CodeNotFound, "there is no proposal to sign")
	}
	if proposal.Digest() != d {
		return nil, api.Errorf(api.CodeConflict, "the proposal has changed: it is %s, not %s", proposal.Digest().Short(), d.Short()).WithHint("review the new one, then sign it")
	}
	if err := c.checkFits(ctx, proposal); err != nil {
		return nil, err
	}
	for _, s := range signers {
		if slices.Contains(proposal.Signers(), s.KeyID()) {
			return nil, api.Errorf(api.CodeConflict, "key %s has already signed this proposal", s.KeyID())
		}
	}
	doc, err := canon.Marshal(proposal.Document())
	if err != nil {
		return nil, err
	}
	envelope, err := seal.Sign(ctx, seal.Revision, doc, signers...)
	if err != nil {
		return nil, err
	}
	manifest, err := catalog.Manifest(doc, proposal.Set())
	if err != nil {
		return nil, err
	}
	return c.publish(ctx, release{number: proposal.Number(), doc: doc, manifest: manifest, fresh: envelope, signed: proposal.Signers()})
}

// checkFits refuses a proposal that does not follow the head.
func (c *Catalog) checkFits(ctx context.Context, r *Revision) error {
	head, err := c.Current(ctx)
	if err != nil {
		return err
	}
	var base Mark
	if head != nil {
		base = head.Mark()
	}
	if doc := r.Document(); doc.Number != base.Number+1 || doc.Previous != base.Digest {
		return api.Errorf(api.CodeConflict, "the proposal does not follow %s, the head of the catalog", markText(base)).
			WithHint("apply the manifest again with --replace-proposal")
	}
	return nil
}
