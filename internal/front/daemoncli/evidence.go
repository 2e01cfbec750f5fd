package daemoncli

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/background"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/state/anchor"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
	"github.com/bailiwick-dev/bailiwick/internal/state/export"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/evidence"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
)

// attestWait is how long the evidence of a dispatch that has just ended waits for
// its attestation.
const attestWait = 10 * time.Second

// evidenceService exports evidence, and checks it in the background.
type evidenceService struct {
	exporter *export.Exporter
	checker  *export.Checker
	work     *background.Keeper
}

// openEvidence starts to check the evidence of everything that ends from log entry
// from on.
func (s *service) openEvidence(ctx context.Context, from uint64) error {
	cfg := export.Config{
		Ledger: s.ledger, Tree: s.log.Load(), Blobs: s.blobs, Catalog: func(context.Context) (export.Catalog, func(), error) { return openCatalog(s.t.Dirs) }, Records: s.registry.Chain.Envelopes, Record: s.registry.Chain.Envelope, Attest: attestWait,
	}
	cfg.Anchored = func(ctx context.Context, size uint64) ([]bundle.Anchored, error) { return anchored(ctx, s.store, size) }
	cfg.Sizes = func(ctx context.Context, first, last, most uint64) ([]uint64, error) {
		sizes, err := anchor.Sizes(ctx, s.store, first, last, most)
		return bundle.Select(sizes, first, last), err
	}
	cfg.Action = s.approvals.Action
	cfg.Plan = func(ctx context.Context, id api.RunID) (json.RawMessage, error) { return s.archive.Plan(ctx, s.me, id) }
	cfg.Growths = s.archive.Growths
	for _, envelope := range s.keys.history.Rotations {
		cfg.Rotations = append(cfg.Rotations, envelope)
	}
	d := &evidenceService{exporter: export.New(cfg), work: background.Start(ctx)}
	d.checker = export.NewChecker(d.exporter, func(context.Context) (evidence.Trust, error) { return s.keys.auditorTrust(s.t.Dirs) }, s.logger)
	d.work.Go(func(ctx context.Context) { d.checker.Run(ctx, from) })
	s.evidence = d
	return nil
}

func (d *evidenceService) close() { d.work.Close() }

// auditorTrust returns the trust file that audit trust prints.
func (k *keys) auditorTrust(dirs api.Dirs) (evidence.Trust, error) {
	b, err := k.trust(dirs)
	if err != nil {
		return evidence.Trust{}, err
	}
	return evidence.ParseTrust(b)
}

// anchored returns two checkpoints of each anchor: the newest, and the first that
// covers the first size entries, which proves best when they existed.
func anchored(ctx context.Context, st *store.Store, size uint64) ([]bundle.Anchored, error) {
	covering, err := anchor.Covering(ctx, st, size)
	if err != nil {
		return nil, err
	}
	newest, err := anchor.Newest(ctx, st)
	if err != nil {
		return nil, err
	}
	var list []bundle.Anchored
	for i, r := range append(covering, newest...) {
		same := func(o receipt.Receipt) bool { return o.Name == r.Name && o.Checkpoint() == r.Checkpoint() }
		if i >= len(covering) && slices.ContainsFunc(covering, same) {
			continue
		}
		b, err := r.Encode()
		if err != nil {
			return nil, err
		}
		list = append(list, bundle.Anchored{Checkpoint: r.Signed, Name: r.Name, Kind: string(r.Kind), Receipt: b})
	}
	return list, nil
}

// openCatalog opens the current catalog.
func openCatalog(dirs api.Dirs) (export.Catalog, func(), error) {
	root, err := seal.LoadDeployKeys(dirs)
	if err != nil {
		return nil, nil, err
	}
	blobs, err := blob.Open(blob.Config{Dir: dirs.Catalog()})
	if err != nil {
		return nil, nil, err
	}
	c, err := catalog.Open(blobs, root)
	if err != nil {
		return nil, nil, errors.Join(err, blobs.Close())
	}
	return documentCatalog{c, blobs}, func() { _ = blobs.Close() }, nil // only read
}

// documentCatalog is a catalog with the documents of its artifacts.
type documentCatalog struct {
	*catalog.Catalog
	blobs *blob.Store
}

// Artifact returns the document of an artifact.
func (c documentCatalog) Artifact(ctx context.Context, d api.Digest) ([]byte, error) {
	return c.blobs.Get(ctx, d, catalog.MaxDocument)
}
