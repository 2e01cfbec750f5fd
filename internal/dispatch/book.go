package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/blob"
	"github.com/bailiwick-dev/bailiwick/internal/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/policy"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/seal"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// book is the catalog as the service goes by it: the current revision,
// verified, and the policy that it compiles to. It looks at the store before
// every decision and verifies when something changed. While the store holds
// something that does not verify there is no revision to go by, and nothing
// is allowed.
type book struct {
	cfg      Config
	registry registry

	mu    sync.Mutex
	token string       // what the page was made of; guarded by mu
	page  page         // guarded by mu
	old   pinned       // guarded by mu
	seen  catalog.Mark // highest revision ever taken; guarded by mu
}

// page is one state of the book.
type page struct {
	revision *catalog.Revision // nil: no catalog has been applied yet
	engine   *policy.Engine
	root     seal.TrustRoot
	err      error // why there is none to go by
}

func (b *book) open(ctx context.Context) error {
	if err := b.cfg.Store.Read(ctx, func(v *store.View) error {
		err := v.Get("SELECT number, digest FROM catalog_seen", nil, &b.seen.Number, &b.seen.Digest)
		if errors.Is(err, store.ErrNoRow) {
			return nil
		}
		return err
	}); err != nil {
		return err
	}
	// A catalog that cannot be used does not keep the service from starting:
	// it has records to show and a refusal to log.
	_, err := b.current(ctx)
	if api.CodeOf(err) == api.CodeAuditUnavailable {
		return err
	}
	return nil
}

// current returns the page to go by now.
func (b *book) current(ctx context.Context) (page, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.turn(ctx)
}

// turn is current, with mu held.
func (b *book) turn(ctx context.Context) (page, error) {
	seen, err := b.look(ctx)
	defer seen.close()
	// A store that was refused is looked at in full each time: mending a file
	// in it does not change the token.
	if seen.token == b.token && (b.page.err == nil || err != nil) {
		return b.page, b.page.err
	}
	next := page{root: seen.root}
	switch {
	case err == nil:
		next.revision, err = b.take(ctx, seen.catalog)
	case errors.Is(err, fs.ErrNotExist) && b.seen.Number == 0:
		err = nil // nobody has run init yet
	}
	if err == nil {
		next.engine, err = compile(next.revision, b.cfg.Operator)
	}
	if api.CodeOf(err) == api.CodeAuditUnavailable {
		return page{}, err // not remembered: it is not the catalog's fault
	}
	if err != nil {
		next, err = b.refuse(ctx, seen.root, err)
		if err != nil {
			return page{}, err
		}
	}
	b.token, b.page = seen.token, next
	return next, next.err
}

// sight is what a look at the store found.
type sight struct {
	token   string // equal tokens: nothing changed
	root    seal.TrustRoot
	catalog *catalog.Catalog
	blobs   *blob.Store // nil when it could not be opened
}

func (s sight) close() {
	if s.blobs != nil {
		_ = s.blobs.Close() // only read
	}
}

// look finds out cheaply whether anything changed.
func (b *book) look(ctx context.Context) (sight, error) {
	s, err := b.openStore(ctx)
	if err != nil {
		s.token = "error: " + err.Error()
	}
	return s, err
}

func (b *book) openStore(ctx context.Context) (s sight, err error) {
	if s.root, err = seal.LoadTrustRoot(b.cfg.Dirs.TrustRoot()); err != nil {
		return s, err
	}
	if s.blobs, err = blob.Open(blob.Config{Dir: b.cfg.Dirs.Catalog()}); err != nil {
		return s, fmt.Errorf("catalog: %w", err)
	}
	if s.catalog, err = catalog.Open(s.blobs, s.root); err != nil {
		return s, err
	}
	version, err := s.catalog.Version(ctx)
	if err != nil {
		return s, err
	}
	encoded, err := s.root.Encode()
	s.token = string(version) + " " + string(api.DigestOf(encoded))
	return s, err
}

// take verifies the current revision and remembers it as seen, durably, before
// anything is decided by it.
func (b *book) take(ctx context.Context, cat *catalog.Catalog) (*catalog.Revision, error) {
	rev, err := cat.Current(ctx)
	if catalog.FaultOf(err) == catalog.FaultEmpty && b.seen.Number == 0 {
		return nil, nil //nolint:nilnil // no catalog yet is a state, not a failure
	}
	if err != nil {
		return nil, err
	}
	if err := cat.CheckHighWater(ctx, b.seen, rev); err != nil {
		return nil, err
	}
	if rev.Mark() == b.seen {
		return rev, nil
	}
	var keys []string
	for _, k := range rev.Signers() {
		keys = append(keys, string(k))
	}
	_, err = b.cfg.Ledger.Record(ctx, record.Entry{
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
	b.seen = rev.Mark()
	return rev, nil
}

// refuse logs that the catalog cannot be used, and why, once for each cause.
func (b *book) refuse(ctx context.Context, root seal.TrustRoot, cause error) (page, error) {
	e := api.Errorf(api.CodeIntegrity, "the catalog is refused: %w", cause).
		WithHint("nothing is dispatched until it verifies; see: bailiwick catalog verify, bailiwick audit list --kind %s", record.KindCatalogRefused)
	if b.page.err != nil && b.page.err.Error() == e.Error() {
		return page{root: root, err: e}, nil
	}
	b.cfg.Logger.ErrorContext(ctx, "the catalog is refused", slog.Any("err", cause))
	word := string(catalog.FaultOf(cause))
	if word == "" {
		word = "unreadable"
	}
	_, err := b.cfg.Ledger.Record(ctx, record.Entry{
		Kind:   record.KindCatalogRefused,
		Detail: record.RevisionRefused{Cause: word, Current: int64(b.seen.Number), Message: cause.Error()}, //nolint:gosec // G115: numbers count up from 1
	}, nil)
	if err != nil {
		return page{}, err
	}
	return page{root: root, err: e}, nil
}

func compile(rev *catalog.Revision, operator api.Principal) (*policy.Engine, error) {
	var rules policy.Rules
	if rev != nil {
		rules = policy.RulesOf(rev.Set().Grants, rev.Set().Targets)
	}
	rules.Operator = operator
	return policy.New(rules)
}
