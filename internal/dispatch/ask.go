package dispatch

import (
	"context"
	"log/slog"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/audit"
	"github.com/bailiwick-dev/bailiwick/internal/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/policy"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// Can answers what policy would say to a dispatch, and does nothing.
func (s *Service) Can(ctx context.Context, caller Caller, req api.CanRequest) (api.CanAnswer, error) {
	p, err := s.snapshots.Current(ctx)
	if err != nil {
		return api.CanAnswer{}, err
	}
	asking := p.Engine.Decide(policy.Request{Principal: caller.Principal, Action: policy.ActionCan, Resource: string(req.Principal)})
	if !asking.Allowed() {
		return api.CanAnswer{}, s.cfg.Ledger.Deny(ctx, asking, audit.AccessEntry("", "can"), nil)
	}
	if p.Revision == nil {
		return api.CanAnswer{Reasons: []string{"no catalog has been applied yet"}}, nil
	}
	a := &ask{principal: req.Principal, consent: s.cfg.Registry.Consent(req.Principal), ceiling: api.Irreversible, snapshot: p, request: api.DispatchRequest{
		Subagent: req.Subagent, Target: req.Target, Envs: req.Envs, Capabilities: req.Capabilities,
	}}
	if req.Source != "" {
		a.request.Source = &api.SourceRequest{Name: req.Source}
	}
	if req.Principal == caller.Principal {
		a.ceiling = caller.Ceiling
	}
	a.resolve()
	a.stops = s.cfg.Registry.StopsFor(api.StopSubject{Principal: a.principal, Target: a.target})
	d := p.Engine.Decide(a.policyRequest())
	return api.CanAnswer{Allowed: d.Allowed(), Policies: d.Policies(), Reasons: d.Reasons(), Revision: p.Revision.Number()}, nil
}

// Cancel asks for the end of a dispatch and returns its record after the
// request. The end of one that has ended is what it was.
func (s *Service) Cancel(ctx context.Context, principal api.Principal, id api.DispatchID, reason string) (api.Dispatch, error) {
	if len(reason) > maxWhy {
		return api.Dispatch{}, LogInvalid(ctx, s.cfg.Ledger, principal, "cancel", api.Errorf(api.CodeInvalid, "cancel: a reason of %d bytes, more than %d", len(reason), maxWhy))
	}
	r, decision, err := s.access(ctx, principal, policy.ActionDispatchCancel, id)
	waits := r.record.State == api.EventNeedsInput
	if err != nil || r.record.State.Ended() && !waits {
		return r.record, err
	}
	open := true
	entry := about(record.KindCancelRequested, r, record.CancelRequest{State: string(r.record.State), Why: reason})
	failpoint.Hit(failpoint.CancelCommit, string(id))
	_, err = s.cfg.Ledger.Commit(ctx, decision, entry, func(tx *store.Tx) error {
		now, ok, err := load(tx, id)
		waits = now.record.State == api.EventNeedsInput
		if err != nil || !ok || now.record.State.Ended() && !waits {
			open = false
			return err
		}
		r = now
		if now.record.CancelBy != "" {
			return nil
		}
		now.record.CancelBy, now.record.CancelReason = principal, reason
		r = now
		if waits {
			return updateWaiting(tx, now, now.record.Attempt)
		}
		return update(tx, now)
	})
	if err != nil || !open {
		d, _, rowErr := s.row(ctx, id)
		if err == nil {
			err = rowErr
		}
		return d.record, err
	}
	failpoint.Hit(failpoint.CancelCommitted, string(id))
	if waits {
		if err := s.endWaiting(ctx, r, cancelled(r.record)); err != nil {
			return r.record, err
		}
		d, _, err := s.row(ctx, id)
		return d.record, err
	}
	if s.deliver(ctx, r) {
		failpoint.Hit(failpoint.CancelDelivered, string(id))
	}
	return r.record, nil
}

// deliver tells the worker of a dispatch that this was cancelled. One whose key
// is not bound yet hears of it when that is done: what it sealed before could
// not be told from a stranger's.
func (s *Service) deliver(ctx context.Context, r row) bool {
	s.mu.Lock()
	a := s.active[r.record.ID]
	s.mu.Unlock()
	if a == nil {
		return false
	}
	select {
	case a.cancelled <- struct{}{}:
	default:
	}
	if r.key == "" {
		return false
	}
	if err := a.worker.Cancel(cancelWords(r.record)); err != nil {
		s.logOf(&r.record).WarnContext(ctx, "a worker did not take its cancel", slog.Any("err", err))
	}
	return true
}

// maxWhy bounds why somebody cancels: it is for people, and in the record.
const maxWhy = 4 << 10

// cancelWords is what a worker is told of who cancelled, and why.
func cancelWords(d api.Dispatch) string {
	words := "by " + string(d.CancelBy)
	if d.CancelReason != "" {
		words += ": " + d.CancelReason
	}
	return words
}

// cancelled is the end of a dispatch that no worker is there to end, as a
// worker words it.
func cancelled(d api.Dispatch) outcome {
	return outcome{event: api.EventCancelled, cancelBy: d.CancelBy, message: "cancelled: " + cancelWords(d)}
}

// Status fills in what this package knows.
func (s *Service) Status(ctx context.Context, to *api.ServiceStatus) error {
	var err error
	if to.Dispatches, err = s.Counts(ctx); err != nil {
		return err
	}
	if to.LogEntries, err = s.cfg.Ledger.Len(ctx); err != nil {
		return err
	}
	p, err := s.snapshots.Current(ctx)
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
