package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/policy"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/seal"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// attestSchema is what is to be done: a dispatch enters it in the transaction
// that ends it, and leaves it in the one that makes its statement durable. Those
// that ended before there were statements get theirs, too.
const attestSchema = `
CREATE TABLE dispatch_unattested (id TEXT PRIMARY KEY) STRICT;
INSERT INTO dispatch_unattested SELECT id FROM dispatch WHERE state IN ('finished', 'failed', 'cancelled');`

const (
	// attestAgain is how long what went wrong waits.
	attestAgain = time.Minute
	// attestWait is how long whoever asks for a statement waits for it to be
	// made.
	attestWait = 20 * time.Second
	attestPage = 100
)

// errAttested says that a statement was made meanwhile.
var errAttested = errors.New("the dispatch has its statement")

// owe notes that a dispatch which has ended is to be attested.
func owe(tx *store.Tx, d *api.Dispatch) error {
	if !final(d) {
		return nil
	}
	_, err := tx.Exec("INSERT INTO dispatch_unattested(id) VALUES (?) ON CONFLICT DO NOTHING", d.ID)
	return err
}

// owed reports whether a dispatch is still to be attested.
func owed(v store.Reader, id api.DispatchID) (yes bool, err error) {
	err = v.Get("SELECT EXISTS (SELECT 1 FROM dispatch_unattested WHERE id = ?)", store.Args{id}, &yes)
	return yes, err
}

// attestAlways states what dispatches came to, until the service ends. Nobody's
// end waits for it, and what it has not done the next service does.
func (s *Service) attestAlways() {
	for {
		again := time.NewTimer(attestAgain)
		if err := s.attestDue(s.life); err != nil && s.life.Err() == nil {
			s.cfg.Logger.ErrorContext(s.life, "what a dispatch came to cannot be stated yet", slog.Any("err", err))
		} else {
			again.Stop()
		}
		select {
		case <-s.overs:
		case <-again.C:
		case <-s.life.Done():
			again.Stop()
			return
		}
		again.Stop()
	}
}

// attestDue states what all did that have ended. One that cannot be stated is
// not in the way of another.
func (s *Service) attestDue(ctx context.Context) error {
	var wrong []error
	for after := api.DispatchID(""); ; {
		var due []api.DispatchID
		if err := s.cfg.Store.Read(ctx, func(v *store.View) error {
			return v.Each("SELECT id FROM dispatch_unattested WHERE id > ? ORDER BY id LIMIT ?", store.Args{after, attestPage}, func(scan store.Scan) error {
				var id api.DispatchID
				err := scan(&id)
				due = append(due, id)
				return err
			})
		}); err != nil {
			return errors.Join(append(wrong, err)...)
		}
		for _, id := range due {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := s.attest(ctx, id); err != nil && !errors.Is(err, errAttested) {
				wrong = append(wrong, fmt.Errorf("dispatch %s: %w", id, err))
			}
			after = id
		}
		if len(due) < attestPage {
			return errors.Join(wrong...)
		}
	}
}

// attest makes the statement of a dispatch, once.
func (s *Service) attest(ctx context.Context, id api.DispatchID) error {
	r, ok, err := s.row(ctx, id)
	if err != nil || !ok {
		return errors.Join(err, errors.New("no record"))
	}
	kept, err := s.keeping(ctx, id)
	if err != nil {
		return err
	}
	if kept.lacks(api.ClassEvidence) != nil { // it ended before there were statements
		return s.cfg.Store.Update(ctx, func(tx *store.Tx) error { return paid(tx, id) })
	}
	st, err := s.state(ctx, r)
	if err != nil {
		return err
	}
	doc, err := st.Encode()
	if err != nil {
		return err
	}
	envelope, err := seal.Sign(ctx, seal.Statement, doc, s.cfg.Statements)
	if err != nil {
		return err
	}
	ctx, release := s.cfg.Blobs.Protect(ctx)
	defer release() // the row refers to it by then
	digest, err := s.cfg.Blobs.Put(ctx, envelope)
	if err != nil {
		return err
	}
	// Of its run it says nothing, which may be settled: nothing follows that.
	entry := about(record.KindDispatchAttested, r, record.DispatchAttested{Key: string(s.cfg.Statements.KeyID()), Subjects: int64(len(st.Subject))})
	entry.Refs = map[string]api.Digest{record.RefStatement: digest, record.RefManifest: r.record.Manifest}
	if r.record.Result != "" {
		entry.Refs[record.RefResult] = r.record.Result
	}
	failpoint.Hit(failpoint.AttestCommit, string(id))
	_, err = s.cfg.Ledger.Record(ctx, entry, func(tx *store.Tx) error {
		if err := paid(tx, id); err != nil {
			return err
		}
		return attach(tx, id, digest)
	})
	failpoint.Hit(failpoint.AttestCommitted, string(id))
	if err == nil {
		s.logOf(&r.record).InfoContext(ctx, "attested", slog.String("statement", string(digest)))
	}
	return err
}

// state is the statement of what a dispatch came to.
func (s *Service) state(ctx context.Context, r row) (record.Statement, error) {
	if !final(&r.record) {
		return record.Statement{}, fmt.Errorf("it is %s", r.record.State)
	}
	m, err := s.manifest(ctx, r.record.Manifest)
	if err != nil {
		return record.Statement{}, err
	}
	earlier, err := s.earlier(ctx, r.record.ID)
	if err != nil {
		return record.Statement{}, err
	}
	return record.NewStatement(record.ServiceIdentity{ID: string(s.cfg.Keys.First().ID), Version: api.Version()}, &r.record, earlier, &m)
}

// paid notes that a dispatch is not to be attested any more.
func paid(tx *store.Tx, id api.DispatchID) error {
	n, err := tx.Exec("DELETE FROM dispatch_unattested WHERE id = ?", id)
	if err == nil && n != 1 {
		err = errAttested
	}
	return err
}

// attach puts the statement of a dispatch into its record.
func attach(tx *store.Tx, id api.DispatchID, digest api.Digest) error {
	r, ok, err := load(tx, id)
	if err != nil || !ok || !final(&r.record) {
		return errors.Join(err, errors.New("no record of an end"))
	}
	r.record.Statement = digest
	text, err := r.text()
	if err != nil {
		return err
	}
	_, err = tx.Exec("UPDATE dispatch SET record = ? WHERE id = ?", text, id)
	return err
}

// Statement returns what was signed of a dispatch that has ended: the exact
// bytes. Where it has just ended, it waits until they are made.
func (s *Service) Statement(ctx context.Context, principal api.Principal, id api.DispatchID) ([]byte, error) {
	r, _, err := s.access(ctx, principal, policy.ActionDispatchRead, id)
	if err != nil {
		return nil, err
	}
	if !final(&r.record) {
		return nil, api.Errorf(api.CodeNotFound, "dispatch %s is %s, and a statement is made when it has ended", id, r.record.State).
			WithHint("see: bailiwick dispatch show %s", id)
	}
	d, err := s.awaitStatement(ctx, id)
	if err == nil {
		err = s.kept(ctx, &d)
	}
	switch gone := removed(&d, api.ClassEvidence); {
	case err != nil:
		return nil, err
	case gone != nil:
		return nil, removedError(id, "statement", gone)
	case d.Statement == "":
		return nil, api.Errorf(api.CodeNotFinished, "dispatch %s has ended, and its statement is not made yet", id).
			WithHint("ask again; if it stays so, the messages of the service say why")
	}
	return s.cfg.Blobs.Get(ctx, d.Statement, seal.MaxEnvelope)
}

// awaitStatement returns the record of a dispatch that has ended, with its
// statement if it is made in time.
func (s *Service) awaitStatement(ctx context.Context, id api.DispatchID) (api.Dispatch, error) {
	timer := time.NewTimer(attestWait)
	defer timer.Stop()
	for {
		changed := s.cfg.Store.Committed()
		r, _, err := s.row(ctx, id)
		if err != nil || r.record.Statement != "" {
			return r.record, err
		}
		var due bool
		if err := s.cfg.Store.Read(ctx, func(v *store.View) (err error) {
			due, err = owed(v, id)
			return err
		}); err != nil || !due {
			return r.record, err
		}
		select {
		case <-changed:
		case <-timer.C:
			return r.record, nil
		case <-ctx.Done():
			return r.record, ctx.Err()
		case <-s.life.Done():
			return r.record, nil
		}
	}
}
