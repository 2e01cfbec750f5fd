package dispatch

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/inforce"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Submit decides about a request, makes the decision durable and starts a
// worker. It returns before the worker has done anything. The same id and
// request again returns the same dispatch.
func (s *Service) Submit(ctx context.Context, caller Caller, req api.DispatchRequest) (api.Dispatch, error) {
	return s.submit(ctx, &submission{principal: caller.Principal, caller: caller, ceiling: caller.Ceiling, request: req, received: s.cfg.Now(), trace: TraceOf(ctx)})
}

func (s *Service) submit(ctx context.Context, sub *submission) (api.Dispatch, error) {
	if err := sub.normalise(); err != nil {
		return api.Dispatch{}, s.invalid(ctx, sub, err)
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
		return api.Dispatch{}, s.invalid(ctx, sub, err)
	}
	decision := s.decide(sub)
	if !decision.Allowed() {
		return api.Dispatch{}, s.deny(ctx, sub, decision)
	}
	if err := sub.refuseWrite(); err != nil {
		return api.Dispatch{}, s.invalid(ctx, sub, err)
	}
	ctx, release := s.cfg.Blobs.Protect(ctx)
	defer release() // by then the row refers to what is stored or taken over
	if err := s.complete(ctx, sub); err != nil {
		return api.Dispatch{}, s.invalid(ctx, sub, err)
	}
	d, ok, err := s.reuse(ctx, sub, decision)
	if !ok && err == nil {
		d, err = s.admit(ctx, sub, decision)
	}
	if !errors.Is(err, errDuplicate) {
		return d, s.denySpent(ctx, sub, sub.forTask != nil, s.denyOvertaken(ctx, sub, err))
	}
	// The same request may have been admitted at the same time. Only an allowed
	// caller learns that an id of another principal's is in use.
	if d, ok, err := s.repeated(ctx, sub); ok || err != nil {
		return d, err
	}
	err = api.Errorf(api.CodeConflict, "dispatch id %s is in use for another request", sub.request.DispatchID).WithHint("choose another id, or omit it")
	return api.Dispatch{}, s.invalid(ctx, sub, err)
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
func (s *Service) snapshotAt(ctx context.Context, pinned api.Digest) (snap inforce.Snapshot, err error) {
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

// deny logs a denial and returns it with a hint for the caller.
func (s *Service) deny(ctx context.Context, sub *submission, d policy.Decision) error {
	entry := sub.entry()
	entry.Attempt = sub.attempt
	return s.cfg.Ledger.Deny(ctx, d, entry, func(e *api.Error) *api.Error { return sub.withHint(e, d) })
}

// complete checks what only an allowed caller gets an answer about. It pins the
// source, or resolves the needs of a task, whose source is pinned.
func (s *Service) complete(ctx context.Context, sub *submission) error {
	schema, err := inputSchema(&sub.subagent)
	if err == nil {
		err = checkInput(schema, &sub.subagent, sub.request.Input)
	}
	if err != nil {
		return err
	}
	if _, err := sub.checkEnvs(); err != nil {
		return err
	}
	switch {
	case sub.forTask != nil:
		err = s.resolveNeeds(ctx, sub)
	default:
		if err = sub.checkTimeout(); err == nil && sub.request.Source != nil {
			sub.commit, err = s.sources.pin(ctx, sub.snapshot, *sub.request.Source)
		}
	}
	if err == nil {
		sub.pure, err = s.describePure(ctx, sub)
	}
	return err
}

// invalid logs an invalid request of a caller. The engine's requests are no caller's:
// it logs how the task ends.
func (s *Service) invalid(ctx context.Context, sub *submission, cause error) error {
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

// admit makes the decision durable together with the dispatch, and starts it.
// ctx holds the blobs that it stores.
func (s *Service) admit(ctx context.Context, sub *submission, decision policy.Decision) (api.Dispatch, error) {
	now := s.cfg.Now().UTC()
	if sub.request.DispatchID == "" {
		sub.request.DispatchID = api.NewDispatchID(now)
	}
	m, err := sub.manifest(now, decision)
	if err != nil {
		return api.Dispatch{}, err
	}
	digest, err := s.storeManifest(ctx, m)
	if err != nil {
		return api.Dispatch{}, err
	}
	if _, err := s.cfg.Blobs.Put(ctx, sub.request.Input); err != nil {
		return api.Dispatch{}, storeError(err)
	}
	r := row{request: sub.digest, record: api.Dispatch{
		ID: m.ID, State: api.EventAccepted, Attempt: m.Attempt, Principal: m.Principal, Run: m.Run, Task: m.Task, Subagent: m.Subagent, Role: m.Role, Tier: m.Tier,
		Target: m.Target, Source: m.Source, Revision: m.Revision, Manifest: digest, Input: m.Input, AcceptedAt: now, Mode: s.cfg.Mode, Trace: sub.trace, Taint: m.Taint,
	}}
	if r.record.ReuseKey, err = record.ReuseKey(&m); err != nil {
		return api.Dispatch{}, err
	}
	entry := sub.entry()
	entry.Dispatch, entry.Attempt = m.ID, m.Attempt
	entry.Refs = map[string]api.Digest{record.RefManifest: digest, record.RefInput: m.Input}
	failpoint.Hit(failpoint.AcceptCommit, string(m.ID))
	spending, err := s.spending(ctx, sub, &m, now)
	if err != nil {
		return api.Dispatch{}, err
	}
	if sub.forTask != nil {
		spending.behind = sub.forTask.Behind
	}
	admission, err := s.commit(ctx, decision, entry, spending, func(tx *store.Tx) error {
		switch _, ok, err := load(tx, m.ID); {
		case err != nil:
			return err
		case ok:
			return errDuplicate
		}
		if err := sub.caller.CheckToken(); err != nil {
			return err
		}
		if err := s.checkOvertaken(tx, m); err != nil {
			return err
		}
		if err := s.useApproval(tx, sub, &m); err != nil {
			return err
		}
		return insert(tx, r)
	})
	if err != nil {
		return api.Dispatch{}, err
	}
	failpoint.Hit(failpoint.AcceptCommitted, string(m.ID))
	s.observeAccepted(s.life, r.record, sub.received)
	s.launch(admission, r, m)
	return r.record, nil
}

// storeManifest signs and stores a manifest.
func (s *Service) storeManifest(ctx context.Context, m record.Manifest) (api.Digest, error) {
	doc, err := canon.Marshal(m)
	if err != nil {
		return "", err
	}
	envelope, err := seal.Sign(ctx, seal.Manifest, doc, s.cfg.Key)
	if err != nil {
		return "", err
	}
	digest, err := s.cfg.Blobs.Put(ctx, envelope)
	return digest, storeError(err)
}

// storeError is the error of a request whose content could not be stored. That
// happens before the decision, so nothing was decided.
func storeError(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return api.Errorf(api.CodeAuditUnavailable, "storing the request failed, so nothing is allowed: %w", err).
		WithHint("%s", store.Advice(err))
}

func nonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read never fails
	return hex.EncodeToString(b[:])
}
