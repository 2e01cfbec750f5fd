package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/background"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// attestSchema is the queue of attestations: a dispatch enters it in the
// transaction that ends it, and leaves it in the one that makes its attestation
// durable. Dispatches that ended before there were attestations are queued too.
const attestSchema = `
CREATE TABLE dispatch_unattested (id TEXT PRIMARY KEY) STRICT;
INSERT INTO dispatch_unattested SELECT id FROM dispatch WHERE state IN ('finished', 'failed', 'cancelled');`

const (
	attestRetry = time.Minute      // after a failure
	attestWait  = 20 * time.Second // how long a request waits for an attestation
	attestPage  = 100
)

// errAttested says that the dispatch was attested meanwhile.
var errAttested = errors.New("the dispatch is attested already")

// requireAttestation queues a dispatch that has ended.
func requireAttestation(tx *store.Tx, d *api.Dispatch) error {
	if !final(d) {
		return nil
	}
	_, err := tx.Exec("INSERT INTO dispatch_unattested(id) VALUES (?) ON CONFLICT DO NOTHING", d.ID)
	return err
}

// attestationPending reports whether a dispatch is still to be attested.
func attestationPending(v store.Reader, id api.DispatchID) (yes bool, err error) {
	err = v.Get("SELECT EXISTS (SELECT 1 FROM dispatch_unattested WHERE id = ?)", store.Args{id}, &yes)
	return yes, err
}

// attester signs a statement of every outcome. The end of a dispatch does not
// wait for it, and the next service continues where this one stops.
type attester struct {
	*records
	lifetime context.Context //nolint:containedctx // the life of the service, not of a call
}

// attestAll attests the dispatches that have ended.
func (a *attester) attestAll(ctx context.Context) time.Duration {
	if err := a.attestPending(ctx); err != nil && ctx.Err() == nil {
		a.cfg.Logger.ErrorContext(ctx, "attesting dispatches failed and is retried", slog.Any("err", err))
		return attestRetry
	}
	return background.Never
}

// attestPending attests every dispatch that is queued. One failure does not keep
// it from the others.
func (a *attester) attestPending(ctx context.Context) error {
	var failures []error
	for after := api.DispatchID(""); ; {
		var due []api.DispatchID
		if err := a.cfg.Store.Read(ctx, func(v *store.View) error {
			return v.Each("SELECT id FROM dispatch_unattested WHERE id > ? ORDER BY id LIMIT ?", store.Args{after, attestPage}, func(scan store.Scan) error {
				err := scan(&after)
				due = append(due, after)
				return err
			})
		}); err != nil {
			return errors.Join(append(failures, err)...)
		}
		for _, id := range due {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := a.attest(ctx, id); err != nil && !errors.Is(err, errAttested) {
				failures = append(failures, fmt.Errorf("dispatch %s: %w", id, err))
			}
		}
		if len(due) < attestPage {
			return errors.Join(failures...)
		}
	}
}

// attest signs and stores the statement of a dispatch, once.
func (a *attester) attest(ctx context.Context, id api.DispatchID) error {
	r, ok, err := a.row(ctx, id)
	if err != nil || !ok {
		return errors.Join(err, errNoRecord)
	}
	k, err := a.marks(ctx, id)
	if err != nil {
		return err
	}
	if removal(k.removed, api.ClassEvidence) != nil { // it ended before there were attestations
		return a.cfg.Store.Update(ctx, func(tx *store.Tx) error { return dequeue(tx, id) })
	}
	st, err := a.statement(ctx, r)
	if err != nil {
		return err
	}
	doc, err := st.Encode()
	if err != nil {
		return err
	}
	envelope, err := seal.Sign(ctx, seal.Statement, doc, a.cfg.Statements)
	if err != nil {
		return err
	}
	ctx, release := a.cfg.Blobs.Protect(ctx)
	defer release() // by then the row refers to it
	digest, err := a.cfg.Blobs.Put(ctx, envelope)
	if err != nil {
		return err
	}
	// The entry does not name the run: nothing may follow the end of a settled
	// one.
	entry := entryAbout(record.KindDispatchAttested, r, record.DispatchAttested{Key: string(a.cfg.Statements.KeyID()), Subjects: int64(len(st.Subject))})
	entry.Refs = map[string]api.Digest{record.RefStatement: digest, record.RefManifest: r.record.Manifest}
	if r.record.Result != "" {
		entry.Refs[record.RefResult] = r.record.Result
	}
	failpoint.Hit(failpoint.AttestCommit, string(id))
	_, err = a.cfg.Ledger.Record(ctx, entry, func(tx *store.Tx) error {
		if err := dequeue(tx, id); err != nil {
			return err
		}
		now, ok, err := load(tx, id)
		if err != nil || !ok {
			return errors.Join(err, errNoRecord)
		}
		now.record.Statement = digest
		return updateIn(tx, now, now.record.Attempt, now.record.State)
	})
	failpoint.Hit(failpoint.AttestCommitted, string(id))
	if err == nil {
		a.logger(&r.record).InfoContext(ctx, "attested", slog.String("statement", string(digest)))
	}
	return err
}

// statement returns what is attested of a dispatch.
func (a *attester) statement(ctx context.Context, r row) (record.Statement, error) {
	if !final(&r.record) {
		return record.Statement{}, fmt.Errorf("it is %s", r.record.State)
	}
	m, err := a.manifest(ctx, r.record.Manifest)
	if err != nil {
		return record.Statement{}, err
	}
	earlier, err := a.earlier(ctx, r.record.ID)
	if err != nil {
		return record.Statement{}, err
	}
	return record.NewStatement(record.ServiceIdentity{ID: string(a.cfg.Keys.First().ID), Version: api.Version()}, &r.record, earlier, &m)
}

// dequeue records that a dispatch is not to be attested any more.
func dequeue(tx *store.Tx, id api.DispatchID) error {
	n, err := tx.Exec("DELETE FROM dispatch_unattested WHERE id = ?", id)
	if err == nil && n != 1 {
		err = errAttested
	}
	return err
}

// awaitStatement returns the record of a dispatch that has ended, with its
// statement if it is made within attestWait.
func (a *attester) awaitStatement(ctx context.Context, id api.DispatchID) (api.Dispatch, error) {
	timer := time.NewTimer(attestWait)
	defer timer.Stop()
	for {
		changed := a.cfg.Store.Committed()
		var r row
		var pending bool
		if err := a.cfg.Store.Read(ctx, func(v *store.View) (err error) {
			if r, _, err = load(v, id); err == nil {
				pending, err = attestationPending(v, id)
			}
			return err
		}); err != nil || r.record.Statement != "" || !pending {
			return r.record, err
		}
		select {
		case <-changed:
		case <-timer.C:
			return r.record, nil
		case <-ctx.Done():
			return r.record, ctx.Err()
		case <-a.lifetime.Done():
			return r.record, nil
		}
	}
}

// AwaitAttestations waits until every dispatch that has ended by now is attested,
// or ctx is done. Evidence about them has no entry after that.
func (s *Service) AwaitAttestations(ctx context.Context) error {
	var due []api.DispatchID
	if err := s.cfg.Store.Read(ctx, func(v *store.View) error {
		return v.Each("SELECT id FROM dispatch_unattested", nil, func(scan store.Scan) error {
			var id api.DispatchID
			err := scan(&id)
			due = append(due, id)
			return err
		})
	}); err != nil {
		return err
	}
	for len(due) > 0 {
		changed := s.cfg.Store.Committed()
		var pending bool
		if err := s.cfg.Store.Read(ctx, func(v *store.View) (err error) {
			pending, err = attestationPending(v, due[0])
			return err
		}); err != nil {
			return err
		}
		if !pending {
			due = due[1:]
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d ended dispatches are not attested yet, such as %s: %w", len(due), due[0], ctx.Err())
		}
	}
	return nil
}
