package daemoncli

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/anchor"
	"github.com/bailiwick-dev/bailiwick/internal/blob"
	"github.com/bailiwick-dev/bailiwick/internal/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/evidence"
	"github.com/bailiwick-dev/bailiwick/internal/evidence/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/evidence/receipt"
	"github.com/bailiwick-dev/bailiwick/internal/export"
	"github.com/bailiwick-dev/bailiwick/internal/seal"
)

// attestWait is how long evidence about what has just ended waits for the
// statement about it.
const attestWait = 10 * time.Second

// evidenceDesk makes evidence, and checks it behind everything else.
type evidenceDesk struct {
	exporter *export.Exporter
	checker  *export.Checker
	end      context.CancelFunc
	work     sync.WaitGroup
}

// openEvidence begins to check what comes to its end after the log had from
// entries.
func (s *service) openEvidence(ctx context.Context, me api.Principal, from uint64) {
	cfg := export.Config{
		Ledger: s.ledger, Tree: s.log.Load(), Blobs: s.blobs, Catalog: s.openCatalog, Records: s.registry.Envelopes, Attest: attestWait,
	}
	cfg.Anchored = s.anchored
	if s.runs != nil {
		cfg.Plan = func(ctx context.Context, id api.RunID) (json.RawMessage, error) { return s.runs.Plan(ctx, me, id) }
	}
	for _, envelope := range s.keys.history.Rotations {
		cfg.Rotations = append(cfg.Rotations, envelope)
	}
	d := &evidenceDesk{exporter: export.New(cfg)}
	d.checker = export.NewChecker(d.exporter, s.auditorTrust, evidence.AnchorReceipts{}, s.logger)
	ctx, d.end = context.WithCancel(context.WithoutCancel(ctx))
	d.work.Go(func() { d.checker.Run(ctx, from) })
	s.evidence = d
}

func (d *evidenceDesk) close() {
	d.end()
	d.work.Wait()
}

// auditorTrust is what audit trust prints.
func (s *service) auditorTrust(ctx context.Context) (evidence.Trust, error) {
	b, err := s.trust(ctx)
	if err != nil {
		return evidence.Trust{}, err
	}
	return evidence.ParseTrust(b)
}

// anchored are of each anchor the first checkpoint that covers the first size
// entries, which proves the most of when they were there, and the newest.
func (s *service) anchored(ctx context.Context, size uint64) ([]bundle.Anchored, error) {
	covering, err := anchor.Covering(ctx, s.store, size)
	if err != nil {
		return nil, err
	}
	newest, err := anchor.Newest(ctx, s.store)
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
		list = append(list, bundle.Anchored{Checkpoint: r.Signed, Name: r.Name, Kind: bundle.AnchorKind(r.Kind), Receipt: b})
	}
	return list, nil
}

// openCatalog opens the catalog as it is now.
func (s *service) openCatalog(context.Context) (export.Catalog, func(), error) {
	dirs := s.t.Dirs
	root, err := seal.LoadTrustRoot(dirs.TrustRoot())
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
	return shelf{c, blobs}, func() { _ = blobs.Close() }, nil // only read
}

// shelf is a catalog with its documents.
type shelf struct {
	*catalog.Catalog
	blobs *blob.Store
}

// Artifact returns the document of an artifact.
func (s shelf) Artifact(ctx context.Context, d api.Digest) ([]byte, error) {
	return s.blobs.Get(ctx, d, catalog.MaxDocument)
}
