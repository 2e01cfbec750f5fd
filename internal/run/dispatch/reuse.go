package dispatch

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/worker/capture"
)

// reuseSchema finds the finished dispatches of pure subagents by their key.
const reuseSchema = `
CREATE TABLE dispatch_reusable (
	key   TEXT NOT NULL,    -- record.ReuseKey
	ended INTEGER NOT NULL, -- nanoseconds since 1970
	id    TEXT NOT NULL,
	PRIMARY KEY (key, ended, id)
) STRICT, WITHOUT ROWID;`

// maxReusable is how many earlier dispatches are considered for one, newest first.
const maxReusable = 20

// offerReuse lets other dispatches have the result of one that has just ended, if they
// may.
func offerReuse(tx *store.Tx, d *api.Dispatch) error {
	if reusable := record.CheckReusable(d.Outcome, d.Taint) == nil; d.ReuseKey == "" || d.State != api.EventFinished || d.Attempt != 1 || !reusable {
		return nil
	}
	_, err := tx.Exec("INSERT INTO dispatch_reusable(key, ended, id) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", d.ReuseKey, d.EndedAt.UnixNano(), d.ID)
	return err
}

// maxTrees is how many trees of commits are remembered: the tasks of a run share one.
const maxTrees = 1000

// trees are those of commits of repositories, which never change.
type trees struct {
	mu sync.Mutex
	of map[[2]string]string // guarded by mu
}

// resolve returns the tree of a commit.
func (t *trees) resolve(ctx context.Context, repository, commit, scratch string) (string, error) {
	key := [2]string{repository, commit}
	t.mu.Lock()
	tree, ok := t.of[key]
	t.mu.Unlock()
	if ok {
		return tree, nil
	}
	repo, err := capture.OpenSource(ctx, repository)
	if err != nil {
		return "", err
	}
	resolved, tree, err := repo.ResolveTree(ctx, commit, scratch)
	if err != nil || resolved != commit {
		return tree, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil || len(t.of) == maxTrees {
		t.of = map[[2]string]string{}
	}
	t.of[key] = tree
	return tree, nil
}

// errNotReusable says that an earlier result is gone since it was found.
var errNotReusable = errors.New("the earlier dispatch is not reusable any more")

// reuse makes the dispatch of a task end with the result of an earlier one that had the
// same inputs, if there is one that its caller may have. It has been decided about as any
// other.
func (s *admitter) reuse(ctx context.Context, p *prepared) (api.Dispatch, bool, error) {
	if p.forTask == nil || p.pure == nil || p.forTask.Reuse != nil && p.forTask.Reuse.Never {
		return api.Dispatch{}, false, nil
	}
	m, err := p.manifest(s.cfg.Now().UTC())
	if err != nil {
		return api.Dispatch{}, false, err
	}
	key, err := record.ReuseKey(&m)
	if err != nil || key == "" {
		return api.Dispatch{}, false, err
	}
	candidates, err := s.reusable(ctx, key)
	if err != nil {
		return api.Dispatch{}, false, err
	}
	for i := range candidates {
		d := &candidates[i].record
		if !p.snapshot.Engine.MayReuse(p.principal, d.Principal, p.subagent.Name) || !p.forTask.Reuse.Allows(m.NotBefore.Sub(*d.EndedAt)) || m.Pure.CheckAgent(d.Outcome) != nil {
			continue
		}
		if err := s.claimProducts(ctx, d.Outcome); err != nil {
			if ctx.Err() != nil {
				return api.Dispatch{}, false, ctx.Err()
			}
			s.logger(d).LogAttrs(ctx, slog.LevelWarn, "its result cannot be reused", slog.Any("err", err))
			continue
		}
		made, err := s.admitReuse(ctx, p, m, key, d)
		if !errors.Is(err, errNotReusable) {
			return made, err == nil, err
		}
	}
	return api.Dispatch{}, false, nil
}

// reusable returns the dispatches with a key whose result is stored, newest first.
func (s *records) reusable(ctx context.Context, key api.Digest) (list []row, err error) {
	err = s.cfg.Store.Read(ctx, func(v *store.View) error {
		var ids []api.DispatchID
		if err := v.Each("SELECT id FROM dispatch_reusable WHERE key = ? ORDER BY ended DESC, id LIMIT ?", store.Args{key, maxReusable}, func(scan store.Scan) error {
			var id api.DispatchID
			err := scan(&id)
			ids = append(ids, id)
			return err
		}); err != nil {
			return err
		}
		for _, id := range ids {
			r, err := loadReusable(v, id, key)
			if errors.Is(err, errNotReusable) {
				continue
			}
			if err != nil {
				return err
			}
			list = append(list, r)
		}
		return nil
	})
	return list, err
}

// loadReusable returns the row of a dispatch with a key whose result may be reused.
func loadReusable(v store.Reader, id api.DispatchID, key api.Digest) (row, error) {
	r, ok, err := load(v, id)
	if err != nil {
		return r, err
	}
	k, err := loadMarks(v, id)
	if err != nil {
		return r, err
	}
	d := &r.record
	if !ok || d.State != api.EventFinished || d.ReuseKey != key || d.Reused != nil || d.EndedAt == nil || len(k.removed) > 0 || record.CheckReusable(d.Outcome, d.Taint) != nil {
		return r, errNotReusable
	}
	return r, nil
}

// claimProducts protects the products of a dispatch, and verifies that they are stored
// as it made them.
func (s *admitter) claimProducts(ctx context.Context, sum *api.ResultSummary) error {
	products := sum.Outputs
	if sum.Patch != nil {
		products = append(slices.Clip(products), *sum.Patch)
	}
	for _, a := range products {
		if _, err := s.cfg.Blobs.Claim(ctx, a.Digest); err != nil {
			return err
		}
		r, err := s.cfg.Blobs.Open(ctx, a.Digest)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, r)
		if err = errors.Join(err, r.Close()); err != nil {
			return err
		}
	}
	return nil
}

// admitReuse makes the decision durable together with the dispatch, which ends with it.
func (s *admitter) admitReuse(ctx context.Context, p *prepared, m record.Manifest, key api.Digest, of *api.Dispatch) (api.Dispatch, error) {
	digest, err := s.storeManifest(ctx, m)
	if err != nil {
		return api.Dispatch{}, err
	}
	if _, err := s.cfg.Blobs.Put(ctx, p.request.Input); err != nil {
		return api.Dispatch{}, storeError(err)
	}
	now := m.NotBefore
	d := api.Dispatch{
		ID: m.ID, State: api.EventFinished, Attempt: m.Attempt, Principal: m.Principal, Run: m.Run, Task: m.Task, Subagent: m.Subagent, Role: m.Role, Tier: m.Tier,
		Target: m.Target, Source: m.Source, Revision: m.Revision, Manifest: digest, Input: m.Input, AcceptedAt: now, EndedAt: &now, Mode: s.cfg.Mode, Trace: p.trace,
		ReuseKey: key, Reused: &api.Reuse{DispatchID: of.ID, Key: key, EndedAt: *of.EndedAt}, Outcome: record.ReusedSummary(of.Outcome),
	}
	if of.Principal != d.Principal {
		d.Reused.Principal = of.Principal
	}
	failpoint.Hit(failpoint.ReuseCommit, string(m.ID))
	_, err = s.cfg.Ledger.Commit(ctx, p.decision, record.Reused(&m, digest, key, of.ID), func(tx *store.Tx) error {
		switch _, ok, err := load(tx, m.ID); {
		case err != nil:
			return err
		case ok:
			return errDuplicate
		}
		if _, err := loadReusable(tx, of.ID, key); err != nil {
			return err
		}
		if err := errors.Join(p.caller.CheckToken(), s.checkOvertaken(tx, m)); err != nil {
			return err
		}
		if err := Reserve(tx, m.Run, of.ID); err != nil {
			return err
		}
		return insert(tx, row{request: p.digest, record: d})
	})
	if err != nil {
		return api.Dispatch{}, err
	}
	failpoint.Hit(failpoint.ReuseCommitted, string(m.ID))
	s.logger(&d).LogAttrs(ctx, slog.LevelInfo, "reused an earlier result", slog.String("of", string(of.ID)), slog.Duration("age", now.Sub(*of.EndedAt).Truncate(time.Second)))
	return d, nil
}

// disagreesReused is disagrees for a dispatch that has the result of another one.
func (r *row) disagreesReused(v store.Reader, s *record.DispatchStanding) (string, error) {
	d := &r.record
	if d.Reused == nil {
		return "earlier dispatch", nil
	}
	want := record.Reused(admitted(d), d.Manifest, d.Reused.Key, d.Reused.DispatchID)
	if what := record.Difference(&want, &s.Admitted, "detail.of", "detail.key", "run", "task", "resource", "role", "tier", "refs"); what != "" {
		return fieldWord(what), nil
	}
	of, ok, err := load(v, d.Reused.DispatchID)
	if err == nil && (!ok || of.record.Outcome == nil || !reflect.DeepEqual(d.Outcome, record.ReusedSummary(of.record.Outcome))) {
		return "outcome", nil
	}
	return "", err
}
