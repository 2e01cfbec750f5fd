package dispatch

import (
	"context"
	"io"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/audit"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/policy"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/seal"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// row returns what is stored of a dispatch, and whether there is one.
func (s *Service) row(ctx context.Context, id api.DispatchID) (r row, ok bool, err error) {
	err = s.cfg.Store.Read(ctx, func(v *store.View) error {
		r, ok, err = load(v, id)
		return err
	})
	return r, ok, err
}

// Bounds of the blobs that are read whole.
const (
	maxManifest = 1 << 20
	maxInput    = 2 << 20
)

// manifest returns a dispatch manifest that this service signed, with the key
// that was in force then.
func (s *Service) manifest(ctx context.Context, d api.Digest) (record.Manifest, error) {
	var m record.Manifest
	envelope, err := s.cfg.Blobs.Get(ctx, d, maxManifest)
	if err != nil {
		return m, err
	}
	payload, _, err := s.cfg.Keys.Verify(envelope, seal.Manifest)
	if err != nil {
		return m, err
	}
	return m, canon.DecodeExact(payload, &m)
}

// Engine returns the policy in force; see snapshot.Reader.
func (s *Service) Engine(ctx context.Context) (*policy.Engine, error) { return s.snapshots.Engine(ctx) }

// Listing returns the artifacts of a kind that the caller may use, after a
// name: metadata of the revision in force (R-B6).
func (s *Service) Listing(ctx context.Context, caller Caller, kind api.Kind, after api.Name) (api.ListingPage, error) {
	p, err := s.snapshots.Current(ctx)
	if err != nil {
		return api.ListingPage{}, err
	}
	d := p.Engine.Decide(policy.Request{Principal: caller.Principal, Action: policy.ActionCatalogRead, Resource: string(caller.Principal)})
	if !d.Allowed() {
		return api.ListingPage{}, s.cfg.Ledger.Deny(ctx, d, audit.AccessEntry("", string(policy.ActionCatalogRead)), nil)
	}
	if p.Revision == nil {
		return api.ListingPage{Items: []api.Listing{}}, nil
	}
	origins, err := s.snapshots.Origins(ctx, p.Revision)
	if err != nil {
		return api.ListingPage{}, err
	}
	return p.List(caller.Principal, min(s.cfg.Registry.Consent(caller.Principal), caller.Ceiling), kind, after, origins)
}

// access returns the row of a dispatch that principal may act on. A dispatch
// that is not there and one of somebody else's give the same answer.
func (s *Service) access(ctx context.Context, principal api.Principal, action policy.Action, id api.DispatchID) (row, policy.Decision, error) {
	engine, err := s.Engine(ctx)
	if err != nil {
		return row{}, policy.Decision{}, err
	}
	r, ok, err := s.row(ctx, id)
	if err != nil {
		return row{}, policy.Decision{}, err
	}
	d := engine.Decide(policy.Request{Principal: principal, Action: action, Resource: string(id), Owner: r.record.Principal})
	missing := api.Errorf(api.CodeNotFound, "no dispatch %s that %s may see", id, principal).WithHint("see: bailiwick dispatch list")
	if !d.Allowed() {
		return row{}, d, s.cfg.Ledger.Deny(ctx, d, audit.AccessEntry(id, string(action)), func(e *api.Error) *api.Error {
			missing.AuditEntry = e.AuditEntry
			return missing
		})
	}
	if !ok {
		return row{}, d, missing
	}
	return r, d, nil
}

// Describe returns the record of a dispatch with its question and its earlier
// attempts. With wait it returns when the current attempt has ended or the
// time is over.
func (s *Service) Describe(ctx context.Context, principal api.Principal, id api.DispatchID, wait time.Duration) (api.Dispatch, error) {
	r, _, err := s.access(ctx, principal, policy.ActionDispatchRead, id)
	if err != nil {
		return r.record, err
	}
	d := r.record
	if wait > 0 {
		if d, err = s.await(ctx, id, wait); err != nil {
			return d, err
		}
	}
	return s.told(ctx, d)
}

// Attempt returns one attempt of a dispatch; 0 is the current one.
func (s *Service) Attempt(ctx context.Context, principal api.Principal, id api.DispatchID, attempt int) (api.Dispatch, error) {
	r, _, err := s.access(ctx, principal, policy.ActionDispatchRead, id)
	if err != nil {
		return r.record, err
	}
	d, err := s.at(ctx, r.record, attempt)
	if err != nil {
		return d, err
	}
	return s.told(ctx, d)
}

// ending reports whether a dispatch asks something of nobody: it was cancelled
// before it asked, and its end is about to be stored.
func ending(d *api.Dispatch) bool { return d.State == api.EventNeedsInput && d.CancelBy != "" }

func (s *Service) await(ctx context.Context, id api.DispatchID, wait time.Duration) (api.Dispatch, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		// Every end is a commit, so what is read after this channel is there
		// misses none.
		changed := s.cfg.Store.Committed()
		r, _, err := s.row(ctx, id)
		if err != nil || r.record.State.Ended() && !ending(&r.record) {
			return r.record, err
		}
		s.mu.Lock()
		if a := s.active[id]; a != nil {
			changed = a.ended
		}
		s.mu.Unlock()
		select {
		case <-changed:
		case <-timer.C:
			return r.record, nil
		case <-ctx.Done():
			return api.Dispatch{}, ctx.Err()
		case <-s.life.Done():
			return r.record, nil
		}
	}
}

// List returns the newest dispatches that principal may see, newest first.
func (s *Service) List(ctx context.Context, principal api.Principal, limit int) ([]api.Dispatch, error) {
	engine, err := s.Engine(ctx)
	if err != nil {
		return nil, err
	}
	query, args := columns+"WHERE principal = ? ORDER BY accepted DESC LIMIT ?", store.Args{principal, limit}
	if engine.Decide(policy.Request{Principal: principal, Action: policy.ActionDispatchRead, Resource: "all"}).Allowed() {
		query, args = columns+"ORDER BY accepted DESC LIMIT ?", store.Args{limit}
	}
	list := []api.Dispatch{}
	err = s.cfg.Store.Read(ctx, func(v *store.View) error {
		return v.Each(query, args, func(scan store.Scan) error {
			var r row
			err := scan(scanInto(&r)...)
			list = append(list, r.record)
			return err
		})
	})
	return list, err
}

// Counts returns how many dispatches there are in each state.
func (s *Service) Counts(ctx context.Context) (map[string]int, error) {
	counts := map[string]int{}
	err := s.cfg.Store.Read(ctx, func(v *store.View) error {
		return v.Each("SELECT state, count(*) FROM dispatch GROUP BY state", nil, func(scan store.Scan) error {
			var state string
			var n int
			err := scan(&state, &n)
			counts[state] = n
			return err
		})
	})
	return counts, err
}

// Patch returns the patch of an attempt. The caller closes it.
func (s *Service) Patch(ctx context.Context, principal api.Principal, id api.DispatchID, attempt int) (io.ReadCloser, int64, error) {
	d, err := s.Attempt(ctx, principal, id, attempt)
	if err != nil {
		return nil, 0, err
	}
	if d.Outcome == nil || d.Outcome.Patch == nil {
		return nil, 0, api.Errorf(api.CodeNotFound, "dispatch %s is %s and has no patch", id, d.State)
	}
	return s.blob(ctx, &d, "patch", *d.Outcome.Patch)
}

// Output returns one output of an attempt. The caller closes it.
func (s *Service) Output(ctx context.Context, principal api.Principal, id api.DispatchID, attempt int, path string) (io.ReadCloser, int64, error) {
	d, err := s.Attempt(ctx, principal, id, attempt)
	if err != nil {
		return nil, 0, err
	}
	if d.Outcome != nil {
		for _, o := range d.Outcome.Outputs {
			if o.Path == path {
				return s.blob(ctx, &d, "output", o)
			}
		}
	}
	return nil, 0, api.Errorf(api.CodeNotFound, "dispatch %s is %s and has no output %q", id, d.State, path)
}

func (s *Service) blob(ctx context.Context, d *api.Dispatch, what string, a api.Artifact) (io.ReadCloser, int64, error) {
	if r := removed(d, api.ClassContent); r != nil {
		return nil, 0, removedError(d.ID, what, r)
	}
	r, err := s.cfg.Blobs.Open(ctx, a.Digest)
	if err != nil {
		return nil, 0, s.missing(ctx, d.ID, what, err)
	}
	return r, a.Size, nil
}
