package dispatch

import (
	"context"
	"errors"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/inforce"
)

// Submit decides about a request, makes the decision durable and starts a
// worker. It returns before the worker has done anything. The same id and
// request again returns the same dispatch.
func (s *Service) Submit(ctx context.Context, caller Caller, req api.DispatchRequest) (api.Dispatch, error) {
	return s.submit(ctx, caller, req, nil)
}

// submit takes a request through its stages: a submission becomes the subject of a
// decision, and an allowed one is prepared and admitted.
func (s *Service) submit(ctx context.Context, caller Caller, req api.DispatchRequest, task *TaskRequest) (api.Dispatch, error) {
	received := s.cfg.Now()
	sub, err := newSubmission(caller, req, task)
	if err != nil {
		return api.Dispatch{}, s.invalid(ctx, &sub, err)
	}
	if d, ok, err := s.repeated(ctx, &sub); ok || err != nil {
		return d, err
	}
	x, err := s.subject(ctx, &sub)
	if err != nil {
		return api.Dispatch{}, s.invalid(ctx, &sub, err)
	}
	decision := x.decide()
	if !decision.Allowed() {
		return api.Dispatch{}, s.admitter.deny(ctx, x, decision)
	}
	if err := x.refuseWrite(); err != nil {
		return api.Dispatch{}, s.invalid(ctx, &sub, err)
	}
	ctx, release := s.cfg.Blobs.Protect(ctx)
	defer release() // by then the row refers to what is stored or taken over
	p, err := s.preparer.prepare(ctx, &sub, x, decision)
	if err != nil {
		return api.Dispatch{}, s.invalid(ctx, &sub, err)
	}
	p.received, p.trace = received, TraceOf(ctx)
	d, ok, err := s.admitter.reuse(ctx, &p)
	if !ok && err == nil {
		d, err = s.admitter.admit(ctx, &p)
	}
	if !errors.Is(err, errDuplicate) {
		return d, s.admitter.denySpent(ctx, p.subject, s.admitter.denyOvertaken(ctx, p.subject, err))
	}
	// The same request may have been admitted at the same time. Only an allowed
	// caller learns that an id of another principal's is in use.
	if d, ok, err := s.repeated(ctx, &sub); ok || err != nil {
		return d, err
	}
	err = api.Errorf(api.CodeConflict, "dispatch id %s is in use for another request", sub.request.DispatchID).WithHint("choose another id, or omit it")
	return api.Dispatch{}, s.invalid(ctx, &sub, err)
}

// subject returns what is decided about sub, with what bounds it now. A task has the names
// of the revision that its run is pinned to.
func (s *records) subject(ctx context.Context, sub *submission) (subject, error) {
	task := TaskRequest{}
	if sub.task != nil {
		task = *sub.task
	}
	p, err := s.snapshotAt(ctx, task.Revision)
	if err != nil {
		return subject{}, err
	}
	x := newSubject(p, sub.caller.Principal, sub.caller.Ceiling, sub.request)
	x.run, x.task = task.Run, task.Task
	return s.bounded(x), nil
}

var errDuplicate = errors.New("the dispatch id is in use")

// repeated returns the dispatch of a request that the same caller has made
// before.
func (s *Service) repeated(ctx context.Context, sub *submission) (api.Dispatch, bool, error) {
	if sub.request.DispatchID == "" {
		return api.Dispatch{}, false, nil
	}
	r, ok, err := s.row(ctx, sub.request.DispatchID)
	if !ok || err != nil {
		return api.Dispatch{}, false, err
	}
	earlier, err := sub.digestWith("order") // of rows that were stored before 0.1.0
	if err != nil || r.request != sub.digest && r.request != earlier {
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

// invalid logs an invalid request of a caller. The engine's requests are no caller's:
// it logs how the task ends.
func (s *records) invalid(ctx context.Context, sub *submission, cause error) error {
	if sub.task != nil {
		return cause
	}
	return LogInvalid(ctx, s.cfg.Ledger, sub.caller.Principal, "dispatch", cause)
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
