package dispatch

import (
	"context"
	"errors"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/inforce"
)

// Submit decides about a request, makes the decision durable and starts a
// worker. It returns before the worker has done anything. The same id and
// request again returns the same dispatch.
func (s *Service) Submit(ctx context.Context, caller Caller, req api.DispatchRequest) (api.Dispatch, error) {
	return s.submit(ctx, &submission{principal: caller.Principal, caller: caller, ceiling: caller.Ceiling, request: req, received: s.cfg.Now(), trace: TraceOf(ctx)})
}

func (s *Service) submit(ctx context.Context, sub *submission) (api.Dispatch, error) {
	if err := sub.normalise(); err != nil {
		return api.Dispatch{}, s.admitter.invalid(ctx, sub, err)
	}
	if d, ok, err := s.repeated(ctx, sub); ok || err != nil {
		return d, err
	}
	var err error
	var pinned api.Digest
	if sub.forTask != nil {
		pinned = sub.forTask.Revision
	}
	if sub.snapshot, err = s.snapshotAt(ctx, pinned); err != nil {
		return api.Dispatch{}, s.admitter.invalid(ctx, sub, err)
	}
	decision := s.decide(sub)
	if !decision.Allowed() {
		return api.Dispatch{}, s.admitter.deny(ctx, sub, decision)
	}
	if err := sub.refuseWrite(); err != nil {
		return api.Dispatch{}, s.admitter.invalid(ctx, sub, err)
	}
	ctx, release := s.cfg.Blobs.Protect(ctx)
	defer release() // by then the row refers to what is stored or taken over
	if err := s.preparer.complete(ctx, sub); err != nil {
		return api.Dispatch{}, s.admitter.invalid(ctx, sub, err)
	}
	d, ok, err := s.admitter.reuse(ctx, sub, decision)
	if !ok && err == nil {
		d, err = s.admitter.admit(ctx, sub, decision)
	}
	if !errors.Is(err, errDuplicate) {
		return d, s.admitter.denySpent(ctx, sub, s.admitter.denyOvertaken(ctx, sub, err))
	}
	// The same request may have been admitted at the same time. Only an allowed
	// caller learns that an id of another principal's is in use.
	if d, ok, err := s.repeated(ctx, sub); ok || err != nil {
		return d, err
	}
	err = api.Errorf(api.CodeConflict, "dispatch id %s is in use for another request", sub.request.DispatchID).WithHint("choose another id, or omit it")
	return api.Dispatch{}, s.admitter.invalid(ctx, sub, err)
}

var errDuplicate = errors.New("the dispatch id is in use")

// repeated returns the dispatch of a request that the same caller has made
// before.
func (s *Service) repeated(ctx context.Context, sub *submission) (api.Dispatch, bool, error) {
	if sub.request.DispatchID == "" {
		return api.Dispatch{}, false, nil
	}
	r, ok, err := s.row(ctx, sub.request.DispatchID)
	if !ok || err != nil || r.request != sub.digest {
		return api.Dispatch{}, false, err
	}
	return r.record, true, nil
}

// snapshotAt returns the snapshot that a request is decided by: with the names of a
// pinned revision, or of the one in force.
func (s *records) snapshotAt(ctx context.Context, pinned api.Digest) (snap inforce.Snapshot, err error) {
	if pinned != "" {
		snap, err = s.cfg.InForce.At(ctx, pinned)
	} else {
		snap, err = s.cfg.InForce.Current(ctx)
	}
	if err == nil && snap.Revision == nil {
		err = api.Errorf(api.CodeNotFound, "no catalog has been applied yet").WithHint("run: bailiwick init, then bailiwick catalog apply")
	}
	return snap, err
}

// decide decides about sub by its snapshot.
func (s *Service) decide(sub *submission) policy.Decision {
	sub.resolve()
	sub.consent = s.cfg.Registry.Consent(sub.principal)
	sub.stops = s.cfg.Registry.StopsFor(api.StopSubject{Principal: sub.principal, Target: sub.target, Run: sub.run, Dispatch: sub.request.DispatchID})
	return sub.snapshot.Engine.Decide(sub.policyRequest())
}

// invalid logs an invalid request of a caller. The engine's requests are no caller's:
// it logs how the task ends.
func (s *admitter) invalid(ctx context.Context, sub *submission, cause error) error {
	if sub.forTask != nil {
		return cause
	}
	return LogInvalid(ctx, s.cfg.Ledger, sub.principal, "dispatch", cause)
}

// LogInvalid logs a request that is malformed or contradicts what is stored, and
// returns the error for its caller. It leaves an error alone whose refusal is
// logged already.
func LogInvalid(ctx context.Context, ledger *audit.Ledger, principal api.Principal, operation string, cause error) error {
	var e *api.Error
	if !errors.As(cause, &e) || e.AuditEntry != nil {
		return cause
	}
	seq, err := ledger.Record(ctx, record.Entry{
		Kind: record.KindRequestInvalid, Principal: principal,
		Detail: record.InvalidRequest{Code: string(e.Code), Message: e.Message, Operation: operation},
	}, nil)
	if err != nil {
		return err
	}
	logged := *e
	logged.AuditEntry = &seq
	return &logged
}
