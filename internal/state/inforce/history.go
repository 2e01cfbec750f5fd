package inforce

import (
	"context"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
)

// History returns at most limit revisions of the catalog, newest first, older than the
// number before if that is not 0. They are the history of the revision in force, whose
// signatures prove them; while the catalog is refused the error is that of Current.
func (r *Reader) History(ctx context.Context, before uint64, limit int) (list []api.CatalogRevision, err error) {
	err = r.past(ctx, func(c *catalog.Catalog, head *catalog.Revision) error {
		if head == nil {
			list = []api.CatalogRevision{}
			return nil
		}
		list, err = c.HistoryOf(ctx, head, before, limit)
		return err
	})
	return list, err
}

// Step is a revision of the catalog, the one before it, and the one in force, each
// verified with its own signatures.
type Step struct {
	Before   *catalog.Revision // nil for the first
	Revision *catalog.Revision
	Current  *catalog.Revision
}

// Step returns the revision with a number, as History proves it, with the one before
// it. read is called with what reads files of both, while that is possible.
func (r *Reader) Step(ctx context.Context, number uint64, read func(s Step, file func(f api.File, limit int64) ([]byte, error))) (s Step, err error) {
	err = r.past(ctx, func(c *catalog.Catalog, head *catalog.Revision) error {
		if head == nil {
			return api.Errorf(api.CodeNotFound, "the catalog has no revision yet").WithHint("make the first one with: bailiwick catalog apply")
		}
		s.Current = head
		if s.Revision, s.Before, err = c.WithPrevious(ctx, head, number); err == nil {
			read(s, func(f api.File, limit int64) ([]byte, error) { return c.File(ctx, f, limit) })
		}
		return err
	})
	return s, err
}

// past calls fn with the catalog and the revision in force; both are nil before the
// first revision. One caller at a time reads the past, and that delays no decision.
func (r *Reader) past(ctx context.Context, fn func(*catalog.Catalog, *catalog.Revision) error) error {
	select {
	case r.pasts <- struct{}{}:
		defer func() { <-r.pasts }()
	case <-ctx.Done():
		return ctx.Err()
	}
	s, err := r.Current(ctx)
	if err != nil {
		return err
	}
	if s.Revision == nil {
		return fn(nil, nil)
	}
	opened, err := r.openStore(ctx)
	defer opened.close()
	if err == nil {
		err = fn(opened.catalog, s.Revision)
	}
	switch {
	case err == nil || api.CodeOf(err) == api.CodeNotFound:
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return api.Errorf(api.CodeIntegrity, "the history of the catalog does not verify: %w", err).WithHint("see: bailiwick catalog verify")
}
