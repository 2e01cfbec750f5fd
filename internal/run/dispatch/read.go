package dispatch

import (
	"context"
	"io"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// reader answers questions about dispatches, where policy lets the caller
// ask.
type reader struct {
	*records
	*lifecycle
}

// Engine returns the policy in force; see inforce.Reader.
func (s *reader) Engine(ctx context.Context) (*policy.Engine, error) {
	return s.cfg.InForce.Engine(ctx)
}

// Status fills in what this package knows.
func (s *reader) Status(ctx context.Context, to *api.ServiceStatus) error {
	var err error
	if to.Dispatches, err = s.counts(ctx); err != nil {
		return err
	}
	if to.LogEntries, err = s.cfg.Ledger.Len(ctx); err != nil {
		return err
	}
	p, err := s.cfg.InForce.Current(ctx)
	if err != nil {
		to.CatalogError = err.Error()
	}
	if p.Revision != nil {
		to.Revision, to.RevisionID = p.Revision.Number(), p.Revision.Digest()
	}
	to.SignThreshold = p.Root.Threshold
	for _, k := range p.Root.Keys {
		to.DeployKeys = append(to.DeployKeys, string(k.ID))
	}
	return nil
}

// counts returns how many dispatches there are in each state.
func (s *reader) counts(ctx context.Context) (map[string]int, error) {
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

// access returns the row of a dispatch that principal may act on. A dispatch
// that does not exist and one of another principal give the same answer.
func (s *reader) access(ctx context.Context, principal api.Principal, action policy.Action, id api.DispatchID) (row, policy.Decision, error) {
	engine, err := s.Engine(ctx)
	if err != nil {
		return row{}, policy.Decision{}, err
	}
	r, ok, err := s.row(ctx, id)
	if err != nil {
		return row{}, policy.Decision{}, err
	}
	q := policy.Request{Principal: principal, Action: action, Resource: string(id), Owner: r.record.Principal}
	if ok && r.record.Run != "" && action == policy.ActionDispatchRead && principal != q.Owner {
		if q.Shown, err = s.cfg.People.Shows(ctx, principal, r.record.Run, id); err != nil {
			return row{}, policy.Decision{}, err
		}
	}
	d := engine.Decide(q)
	missing := api.Errorf(api.CodeNotFound, "dispatch %q not found", id).WithHint("see: bailiwick dispatch list")
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

// Get returns the record of a dispatch, and whether it exists. It checks no
// permissions.
func (s *reader) Get(ctx context.Context, id api.DispatchID) (api.Dispatch, bool, error) {
	r, ok, err := s.row(ctx, id)
	return r.record, ok, err
}

// Owners returns the owners of the dispatches whose id begins with prefix and has
// length characters, by id. It checks no permissions.
func (s *reader) Owners(ctx context.Context, prefix string, length int) (map[string]api.Principal, error) {
	return OwnersIn(ctx, s.cfg.Store, "dispatch", prefix, length)
}

// OwnersIn is Owners for a table with an id and a principal.
func OwnersIn(ctx context.Context, st *store.Store, table, prefix string, length int) (map[string]api.Principal, error) {
	end := prefix
	if length > len(prefix) {
		end += "\x7f" // behind all characters of an id
	}
	found := map[string]api.Principal{}
	return found, st.Read(ctx, func(v *store.View) error {
		return v.Each("SELECT id, principal FROM "+table+" WHERE id >= ? AND id <= ? AND length(id) = ?", store.Args{prefix, end, length}, func(scan store.Scan) error {
			var id string
			var p api.Principal
			err := scan(&id, &p)
			found[id] = p
			return err
		})
	})
}

// Describe returns the record of a dispatch with its question and its earlier
// attempts. With wait it returns once the current attempt has ended, and after
// wait at the latest.
func (s *reader) Describe(ctx context.Context, principal api.Principal, id api.DispatchID, wait time.Duration) (api.Dispatch, error) {
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
	return s.withLive(ctx, d)
}

// Attempt returns one attempt of a dispatch; 0 is the current one.
func (s *reader) Attempt(ctx context.Context, principal api.Principal, id api.DispatchID, attempt int) (api.Dispatch, error) {
	r, _, err := s.access(ctx, principal, policy.ActionDispatchRead, id)
	if err != nil {
		return r.record, err
	}
	d, err := s.attempt(ctx, r.record, attempt)
	if err != nil {
		return d, err
	}
	return s.withLive(ctx, d)
}

// withLive adds to a record what its row does not have, and of an attempt that runs what
// its worker says.
func (s *reader) withLive(ctx context.Context, d api.Dispatch) (api.Dispatch, error) {
	if !d.State.Ended() {
		d.Unreachable = s.unreachableOf(d.ID, d.Attempt)
	}
	return s.withDetails(ctx, d)
}

// ending reports whether a dispatch was cancelled before it asked its question:
// its end is about to be stored.
func ending(d *api.Dispatch) bool { return d.State == api.EventNeedsInput && d.CancelBy != "" }

func (s *reader) await(ctx context.Context, id api.DispatchID, wait time.Duration) (api.Dispatch, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		// Every end is a commit, so a read after this call misses none.
		changed := s.cfg.Store.Committed()
		r, _, err := s.row(ctx, id)
		if err != nil || r.record.State.Ended() && !ending(&r.record) {
			return r.record, err
		}
		if a := s.activeOf(id); a != nil {
			changed = a.ended
		}
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

// List returns the newest dispatches that f selects and principal may see, newest
// first.
func (s *reader) List(ctx context.Context, principal api.Principal, f api.DispatchFilter) ([]api.Dispatch, error) {
	engine, err := s.Engine(ctx)
	if err != nil {
		return nil, err
	}
	where, args := "WHERE TRUE", store.Args{}
	also := func(condition string, values ...any) { where, args = where+" AND "+condition, append(args, values...) }
	if !engine.Decide(policy.Request{Principal: principal, Action: policy.ActionDispatchRead, Resource: "all"}).Allowed() {
		also("principal = ?", principal)
	}
	if len(f.States) > 0 {
		also(inStates(f.States...))
	}
	if f.Principal != "" {
		also("principal = ?", f.Principal)
	}
	if f.Subagent != "" {
		also("record ->> '$.subagent' = ?", f.Subagent)
	}
	if f.Run != "" {
		also("record ->> '$.run' = ?", f.Run)
	}
	if !f.Since.IsZero() {
		also("accepted >= ?", f.Since.UnixNano())
	}
	if f.After != "" {
		last, _, err := s.access(ctx, principal, policy.ActionDispatchRead, f.After)
		if err != nil {
			return nil, err
		}
		also("(accepted, id) < (?, ?)", last.record.AcceptedAt.UnixNano(), f.After)
	}
	found, err := s.list(ctx, func(v store.Reader) ([]row, error) {
		return rows(v, where+" ORDER BY accepted DESC, id DESC LIMIT ?", append(args, f.Limit)...)
	})
	list := []api.Dispatch{}
	for _, r := range found {
		list = append(list, r.record)
	}
	return list, err
}

// Asking returns the dispatches that wait for an answer and that principal may
// see, the one that expires first at the front.
func (s *reader) Asking(ctx context.Context, principal api.Principal) ([]api.Dispatch, error) {
	engine, err := s.Engine(ctx)
	if err != nil {
		return nil, err
	}
	all := engine.Decide(policy.Request{Principal: principal, Action: policy.ActionDispatchRead, Resource: "all"}).Allowed()
	found, err := s.list(ctx, waiting)
	list := []api.Dispatch{}
	for _, r := range found {
		if (all || r.record.Principal == principal) && !ending(&r.record) {
			list = append(list, r.record)
		}
	}
	return list, err
}

// Patch returns the patch of an attempt and its size. The caller closes it.
func (s *reader) Patch(ctx context.Context, principal api.Principal, id api.DispatchID, attempt int) (io.ReadCloser, int64, error) {
	d, err := s.Attempt(ctx, principal, id, attempt)
	if err != nil {
		return nil, 0, err
	}
	if d.Outcome == nil || d.Outcome.Patch == nil {
		return nil, 0, api.Errorf(api.CodeNotFound, "dispatch %s is %s and has no patch", id, d.State)
	}
	return s.open(ctx, &d, "patch", *d.Outcome.Patch)
}

// Output returns an output of an attempt and its size. The caller closes it.
func (s *reader) Output(ctx context.Context, principal api.Principal, id api.DispatchID, attempt int, path string) (io.ReadCloser, int64, error) {
	d, err := s.Attempt(ctx, principal, id, attempt)
	if err != nil {
		return nil, 0, err
	}
	if d.Outcome != nil {
		for _, o := range d.Outcome.Outputs {
			if o.Path == path {
				return s.open(ctx, &d, "output", o)
			}
		}
	}
	return nil, 0, api.Errorf(api.CodeNotFound, "dispatch %s is %s and has no output %q", id, d.State, path)
}

// Transcript returns the event stream of the agent of an attempt and its size. The
// caller closes it.
func (s *reader) Transcript(ctx context.Context, principal api.Principal, id api.DispatchID, attempt int) (io.ReadCloser, int64, error) {
	d, err := s.Attempt(ctx, principal, id, attempt)
	if err != nil {
		return nil, 0, err
	}
	if d.Outcome == nil || d.Outcome.Transcript == nil {
		return nil, 0, api.Errorf(api.CodeNotFound, "dispatch %s is %s and has no transcript: an agent with an adapter leaves one at its end", id, d.State).
			WithHint("what the agent wrote: bailiwick dispatch logs %s", id)
	}
	return s.open(ctx, &d, "transcript", *d.Outcome.Transcript)
}

// Statement returns the signed statement of a dispatch that has ended, byte for
// byte. Where it has just ended, Statement waits for it.
func (s *Service) Statement(ctx context.Context, principal api.Principal, id api.DispatchID) ([]byte, error) {
	r, _, err := s.access(ctx, principal, policy.ActionDispatchRead, id)
	if err != nil {
		return nil, err
	}
	if !final(&r.record) {
		return nil, api.Errorf(api.CodeNotFound, "dispatch %s is %s: its statement is made when it has ended", id, r.record.State).
			WithHint("see: bailiwick dispatch show %s", id)
	}
	d, err := s.awaitStatement(ctx, id)
	if err == nil {
		err = s.addRetention(ctx, &d)
	}
	switch removed := removal(d.Removed, api.ClassEvidence); {
	case err != nil:
		return nil, err
	case removed != nil:
		return nil, removedError(id, "statement", removed)
	case d.Statement == "":
		return nil, api.Errorf(api.CodeNotFinished, "dispatch %s has ended and is not attested yet", id).
			WithHint("retry; if this persists, see the log of the service")
	}
	return s.cfg.Blobs.Get(ctx, d.Statement, seal.MaxEnvelope)
}
