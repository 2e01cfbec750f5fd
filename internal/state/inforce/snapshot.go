// Package inforce gives the service the catalog revision in force, verified,
// together with the policy that it compiles to.
//
// Reader looks at the catalog store before every decision and verifies it when
// something changed. It never writes the catalog and never allows anything: a
// store that does not verify yields no snapshot, so nothing is decided.
//
// Carries R-B5 (the service's half), R-B6 (what a caller is shown) and R-C4.
package inforce

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Snapshot is the catalog and the policy at one revision.
type Snapshot struct {
	Revision *catalog.Revision // nil: no catalog has been applied yet
	Engine   *policy.Engine    // nil while the catalog is refused
	Root     seal.TrustRoot

	err error // why the catalog is refused
}

// Number returns the number of the revision; 0: no catalog has been applied yet.
func (s Snapshot) Number() uint64 {
	if s.Revision == nil {
		return 0
	}
	return s.Revision.Number()
}

// Config is what a Reader needs.
type Config struct {
	Dirs     api.Dirs
	Store    *store.Store // has the table catalog_seen; see dispatch.Migration
	Ledger   *audit.Ledger
	Operator api.Principal // see policy.Rules
	// Operators is for policy.Rules; it does not apply to a caller by token.
	Operators func(api.Principal) bool
	Logger    *slog.Logger
}

// Reader returns snapshots. It is safe for concurrent use.
type Reader struct {
	cfg  Config
	root seal.TrustRootReader

	mu      sync.Mutex
	token   string         // of the store that current was read from; guarded by mu
	current Snapshot       // guarded by mu
	pinned  revisions      // guarded by mu
	highest catalog.Mark   // the highest revision ever accepted; guarded by mu
	keys    seal.TrustMark // the newest set of deploy keys; guarded by mu

	pasts chan struct{} // has an element while somebody reads the past

	originsMu sync.Mutex
	origins   catalog.Origins // guarded by originsMu
}

// Open returns a Reader that accepts no revision below the highest one accepted
// before. A catalog that is refused is not an error: the service still has
// records to show and a refusal to log.
func Open(ctx context.Context, cfg Config) (*Reader, error) {
	r := &Reader{cfg: cfg, pasts: make(chan struct{}, 1)}
	if err := cfg.Store.Read(ctx, func(v *store.View) error {
		err := v.Get("SELECT number, digest FROM catalog_seen", nil, &r.highest.Number, &r.highest.Digest)
		if err != nil && !errors.Is(err, store.ErrNoRow) {
			return err
		}
		r.keys, err = keysSeen(v)
		return err
	}); err != nil {
		return nil, err
	}
	if _, err := r.Current(ctx); api.CodeOf(err) == api.CodeAuditUnavailable {
		return nil, err
	}
	return r, nil
}

// CheckSeen compares the highest revision ever accepted with the log, which has
// an entry for each. A difference is of CodeIntegrity: a service that forgot one
// would accept an older catalog.
func CheckSeen(v store.Reader) error {
	var seen, logged catalog.Mark
	if err := v.Get("SELECT number, digest FROM catalog_seen", nil, &seen.Number, &seen.Digest); err != nil && !errors.Is(err, store.ErrNoRow) {
		return err
	}
	last, err := audit.Last(v, record.KindCatalogRevision)
	if err != nil {
		return err
	}
	if last != nil {
		d, _ := last.Entry.Detail.(record.RevisionSeen)
		logged = catalog.Mark{Number: uint64(d.Number), Digest: last.Entry.Refs[record.RefRevision]} //nolint:gosec // G115: numbers count up from 1
	}
	if seen != logged {
		return api.Errorf(api.CodeIntegrity, api.StateDiffers+"the highest catalog revision accepted is %d (%s) in the log, %d (%s) in the state", logged.Number, logged.Digest.Short(), seen.Number, seen.Digest.Short()).
			WithHint("the state database was changed or put back in part; restore all of the state directory from one backup; see: bailiwick audit list --kind %s", record.KindCatalogRevision)
	}
	return nil
}

// Highest returns the highest revision ever accepted; zero when none was.
func (r *Reader) Highest() catalog.Mark {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.highest
}

// Current returns the snapshot in force. While the catalog is refused the error
// is of CodeIntegrity, and the snapshot has only the trust root.
func (r *Reader) Current(ctx context.Context) (Snapshot, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, err := r.refresh(ctx)
	if record.TokenOf(ctx) != "" {
		s.Engine = s.Engine.WithoutOperators()
	}
	return s, err
}

// Engine returns the policy in force. While the catalog is refused it is one
// without grants, so that the operator can still look at a service in trouble.
func (r *Reader) Engine(ctx context.Context) (*policy.Engine, error) {
	s, err := r.Current(ctx)
	switch {
	case err == nil:
		return s.Engine, nil
	case api.CodeOf(err) == api.CodeAuditUnavailable:
		return nil, err
	}
	e, err := policy.New(policy.Rules{Operator: r.cfg.Operator, Operators: r.cfg.Operators})
	if record.TokenOf(ctx) != "" {
		e = e.WithoutOperators()
	}
	return e, err
}

// refresh is Current, with mu held.
func (r *Reader) refresh(ctx context.Context) (Snapshot, error) {
	opened, err := r.openStore(ctx)
	defer opened.close()
	// A store that was refused is verified again each time: repairing a file in
	// it does not change the token.
	if opened.token == r.token && (r.current.err == nil || err != nil) {
		return r.current, r.current.err
	}
	next := Snapshot{Root: opened.root}
	switch {
	case err == nil:
		if err = r.followKeys(ctx, opened.root); err == nil {
			next.Revision, err = r.accept(ctx, opened.catalog)
		}
	case errors.Is(err, fs.ErrNotExist) && r.highest.Number == 0:
		err = nil // init has not been run yet
	}
	if err == nil {
		next.Engine, err = r.compile(next.Revision)
	}
	if api.CodeOf(err) == api.CodeAuditUnavailable {
		return Snapshot{}, err // not remembered: the catalog is not at fault
	}
	if err != nil {
		next, err = r.refuse(ctx, opened.root, err)
		if err != nil {
			return Snapshot{}, err
		}
	}
	r.token, r.current = opened.token, next
	return next, next.err
}

// accept verifies the current revision and records it as the highest one,
// durably, before anything is decided by it.
func (r *Reader) accept(ctx context.Context, cat *catalog.Catalog) (*catalog.Revision, error) {
	rev, err := cat.Current(ctx)
	if catalog.FaultOf(err) == catalog.FaultEmpty && r.highest.Number == 0 {
		return nil, nil //nolint:nilnil // no catalog yet is a state, not a failure
	}
	if err != nil {
		return nil, err
	}
	if err := cat.CheckHighWater(ctx, r.highest, rev); err != nil {
		return nil, err
	}
	if rev.Mark() == r.highest {
		return rev, nil
	}
	var keys []string
	for _, k := range rev.Signers() {
		keys = append(keys, string(k))
	}
	_, err = r.cfg.Ledger.Record(ctx, record.Entry{
		Kind: record.KindCatalogRevision,
		Refs: map[string]api.Digest{record.RefRevision: rev.Digest()},
		Detail: record.RevisionSeen{
			Author: rev.Author(), Keys: keys, Number: int64(rev.Number()), Reason: rev.Reason(), Threshold: int64(cat.TrustRoot().Threshold), //nolint:gosec // G115: numbers count up from 1
		},
	}, func(tx *store.Tx) error {
		_, err := tx.Exec("INSERT INTO catalog_seen(one, number, digest) VALUES (1, ?, ?) ON CONFLICT DO UPDATE SET number = excluded.number, digest = excluded.digest",
			rev.Number(), rev.Digest())
		return err
	})
	if err != nil {
		return nil, err
	}
	r.highest = rev.Mark()
	return rev, nil
}

// refuse logs why the catalog is refused, once for each cause.
func (r *Reader) refuse(ctx context.Context, root seal.TrustRoot, cause error) (Snapshot, error) {
	e := api.Errorf(api.CodeIntegrity, "the catalog is refused: %w", cause).
		WithHint("nothing is dispatched until it verifies; see: bailiwick catalog verify, bailiwick audit list --kind %s", record.KindCatalogRefused)
	if errors.Is(cause, blob.ErrNoStore) || errors.Is(cause, fs.ErrNotExist) {
		e = e.WithHint("it is missing: nothing is dispatched until it is there again; bring back the directory %s from a backup", r.cfg.Dirs.Data)
	}
	if r.current.err != nil && r.current.err.Error() == e.Error() {
		return Snapshot{Root: root, err: e}, nil
	}
	r.cfg.Logger.ErrorContext(ctx, "the catalog is refused", slog.Any("err", cause))
	fault := string(catalog.FaultOf(cause))
	switch {
	case errors.Is(cause, seal.ErrReplacedKeys):
		fault = string(catalog.FaultRollback)
	case fault == "":
		fault = "unreadable"
	}
	_, err := r.cfg.Ledger.Record(ctx, record.Entry{
		Kind:   record.KindCatalogRefused,
		Detail: record.RevisionRefused{Cause: fault, Current: int64(r.highest.Number), Message: cause.Error()}, //nolint:gosec // G115: numbers count up from 1
	}, nil)
	if err != nil {
		return Snapshot{}, err
	}
	return Snapshot{Root: root, err: e}, nil
}

func (r *Reader) compile(rev *catalog.Revision) (*policy.Engine, error) {
	var rules policy.Rules
	if rev != nil {
		rules = policy.RulesOf(rev.Set().Grants, rev.Set().Targets)
	}
	rules.Operator, rules.Operators = r.cfg.Operator, r.cfg.Operators
	return policy.New(rules)
}
