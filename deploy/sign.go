package deploy

import (
	"context"
	"errors"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/seal"
)

// Proposal is a revision that waits for signatures, with what it would
// change.
type Proposal struct {
	Revision *Revision
	Changes  []ArtifactChange
	Widens   []Widening
}

// Proposal returns the proposal that waits, or nil.
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
	return &Proposal{r, Diff(before, r.Set()), Widenings(before, r.Set())}, nil
}

// Sign adds signatures to the proposal whose digest is given: the one that
// the signer was shown. When the threshold is reached it becomes the current
// revision.
func (c *Catalog) Sign(ctx context.Context, d api.Digest, signers ...Signer) (_ *Applied, err error) {
	if err := c.checkApproval(Approval{Signers: signers}); err != nil {
		return nil, err
	}
	lock, err := c.lock()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	waiting, err := c.read.Proposal(ctx)
	if err != nil {
		return nil, err
	}
	if waiting == nil {
		return nil, api.Errorf(api.CodeNotFound, "no proposal waits for a signature")
	}
	if waiting.Digest() != d {
		return nil, api.Errorf(api.CodeConflict, "the proposal is %s now, not %s", waiting.Digest().Short(), d.Short()).
			WithHint("look at the new one, then sign it")
	}
	if err := c.checkFits(ctx, waiting); err != nil {
		return nil, err
	}
	for _, s := range signers {
		if slices.Contains(waiting.Signers(), s.KeyID()) {
			return nil, api.Errorf(api.CodeConflict, "key %s has signed this proposal already, and counts once", s.KeyID())
		}
	}
	doc, err := canon.Marshal(waiting.Document())
	if err != nil {
		return nil, err
	}
	envelope, err := seal.Sign(ctx, seal.Revision, doc, signers...)
	if err != nil {
		return nil, err
	}
	manifest, err := catalog.Manifest(doc, waiting.Set())
	if err != nil {
		return nil, err
	}
	return c.publish(ctx, release{number: waiting.Number(), doc: doc, manifest: manifest, fresh: envelope, signed: waiting.Signers()})
}

// checkFits refuses a proposal that no longer follows the head.
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
		return api.Errorf(api.CodeConflict, "the proposal does not follow %s, where the catalog is now", markText(base)).
			WithHint("apply the manifest again with --replace-proposal")
	}
	return nil
}
