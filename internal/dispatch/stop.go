package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/audit"
	"github.com/bailiwick-dev/bailiwick/internal/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/policy"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// Stop engages an emergency stop (R-T10). The stop, and a mark on everything in
// flight that it holds, are durable in one transaction: what is admitted before
// is marked, and what comes later finds the stop. So nothing has to be looked
// for again after a crash: what is marked ends as any dispatch does that was
// cancelled.
func (s *Service) Stop(ctx context.Context, by api.Principal, req api.StopRequest) (api.Stop, error) {
	ctx = context.WithoutCancel(ctx) // whoever asked may go; the stop stays
	err := req.Check()
	if err != nil {
		err = api.Errorf(api.CodeInvalid, "%w", err)
	} else {
		err = s.stoppable(ctx, req)
	}
	if err != nil {
		return api.Stop{}, LogInvalid(ctx, s.cfg.Ledger, by, "stop", err)
	}
	var held []row
	failpoint.Hit(failpoint.StopCommit, "")
	stop, err := s.cfg.Registry.Engage(ctx, by, req, func(tx *store.Tx, stop api.Stop) (n int, err error) {
		held, err = hold(tx, stop)
		return len(held), err
	})
	if err != nil {
		return stop, err
	}
	failpoint.Hit(failpoint.StopCommitted, stop.ID)
	s.cfg.Logger.WarnContext(ctx, "an emergency stop was engaged", slog.String("stop", stop.ID), slog.String("scope", string(stop.Scope)), slog.Int("cancelled", stop.Cancelled))
	s.tell(ctx, held)
	return stop, nil
}

// stoppable refuses a name that stands for nothing here: a stop with a slip in
// it would hold nothing, and whoever engaged it would think otherwise.
func (s *Service) stoppable(ctx context.Context, req api.StopRequest) error {
	used := func(column string) (n int, err error) {
		err = s.cfg.Store.Read(ctx, func(v *store.View) error {
			return v.Get("SELECT count(*) FROM (SELECT 1 FROM dispatch WHERE "+column+" = ? LIMIT 1)", store.Args{req.Name}, &n)
		})
		return n, err
	}
	var n int
	var err error
	p, catalogErr := s.snapshots.Current(ctx)
	switch req.Scope {
	case api.StopAll:
		return nil
	case api.StopDispatch:
		n, err = used("id")
	case api.StopRun: // the log knows those of which nothing was dispatched, too
		var entries []audit.Committed
		entries, err = s.cfg.Ledger.List(ctx, audit.Query{Run: api.RunID(req.Name), Limit: 1})
		n = len(entries)
	case api.StopPrincipal:
		if catalogErr != nil || strings.HasPrefix(req.Name, "local:") || s.cfg.Registry.Known(api.Principal(req.Name)) || len(p.Engine.Grants(api.Principal(req.Name))) > 0 {
			return nil //nolint:nilerr // a catalog that cannot be read must not be in the way of a stop
		}
		n, err = used("principal")
	case api.StopTarget:
		if catalogErr != nil || p.Revision != nil && slices.Contains(p.Revision.Names(api.KindTarget), api.Name(req.Name)) {
			return nil //nolint:nilerr // likewise
		}
		n, err = used("json_extract(record, '$.target')")
	}
	if err == nil && n == 0 {
		err = api.Errorf(api.CodeNotFound, "stop: there is no %s %s, so this would hold nothing", req.Scope, req.Name).
			WithHint("see to the name; to hold everything: bailiwick stop --all")
	}
	return err
}

// hold marks what of the dispatches that have not ended a stop is about, and
// returns it.
func hold(tx *store.Tx, stop api.Stop) (held []row, err error) {
	running, err := unfinished(tx)
	if err != nil {
		return nil, err
	}
	asking, err := waiting(tx)
	if err != nil {
		return nil, err
	}
	for _, r := range slices.Concat(running, asking) {
		d := &r.record
		if !stop.Covers(api.StopSubject{Principal: d.Principal, Target: d.Target, Run: d.Run, Dispatch: d.ID}) {
			continue
		}
		if d.CancelBy == "" { // else it is ending already
			d.CancelBy, d.CancelReason = stop.By, stopWords(stop)
			save := update
			if d.State == api.EventNeedsInput {
				save = func(tx *store.Tx, r row) error { return updateWaiting(tx, r, r.record.Attempt) }
			}
			if err := save(tx, r); err != nil {
				return nil, err
			}
		}
		held = append(held, r)
	}
	return held, nil
}

func stopWords(stop api.Stop) string {
	if stop.Reason == "" {
		return "emergency stop " + stop.ID
	}
	return "emergency stop " + stop.ID + ": " + stop.Reason
}

// tell ends what a stop has marked, those that run first.
func (s *Service) tell(ctx context.Context, held []row) {
	for _, r := range held {
		if r.record.State != api.EventNeedsInput {
			s.deliver(ctx, r)
			failpoint.Hit(failpoint.StopDelivered, string(r.record.ID))
		}
	}
	for _, r := range held {
		if r.record.State != api.EventNeedsInput {
			continue
		}
		if err := s.endWaiting(ctx, r, cancelled(r.record)); err != nil {
			s.logOf(&r.record).ErrorContext(ctx, "a dispatch that a stop holds could not be ended; the next start tries again", slog.Any("err", err))
		}
		failpoint.Hit(failpoint.StopDelivered, string(r.record.ID))
	}
}

// overtakenError says that stops were engaged, or that consent was taken back,
// after a decision was made and before it was durable.
type overtakenError struct {
	stops   []string
	consent api.Tier
}

func (e *overtakenError) Error() string { return "overtaken by what an operator decided" }

// stillBound refuses, in the transaction that would admit it, what a stop holds
// or what goes further than is consented to by then.
func (s *Service) stillBound(tx *store.Tx, m record.Manifest) error {
	ids, err := s.cfg.Registry.StopsIn(tx, m.StopSubject())
	if err != nil {
		return err
	}
	consent, err := s.cfg.Registry.ConsentIn(tx, m.Principal)
	if err == nil && (len(ids) > 0 || consent < m.Ceiling) {
		err = &overtakenError{ids, consent}
	}
	return err
}

// decideAgain denies what was overtaken, as policy words it.
func (s *Service) decideAgain(ctx context.Context, a *ask, overtook error) error {
	now, ok := errors.AsType[*overtakenError](overtook)
	if !ok {
		return overtook
	}
	a.stops, a.consent = now.stops, now.consent
	d := a.snapshot.Engine.Decide(a.policyRequest())
	if d.Allowed() && a.run != "" {
		return api.Errorf(api.CodeUnavailable, "the ceiling of %s was lowered to %s at this moment; nothing was done, and a task is tried again", a.principal, now.consent)
	}
	if d.Allowed() { // its manifest was made for a higher ceiling
		return s.invalid(ctx, a.principal, api.Errorf(api.CodeConflict, "the ceiling of %s was lowered to %s at this moment; nothing was done", a.principal, now.consent).WithHint("ask again"))
	}
	return s.deny(ctx, a, d)
}

// deny logs a denial and returns it with what a person may do about it.
func (s *Service) deny(ctx context.Context, a *ask, d policy.Decision) error {
	entry := a.entry()
	entry.Attempt = a.attempt
	return s.cfg.Ledger.Deny(ctx, d, entry, func(e *api.Error) *api.Error { return a.withHint(e, d) })
}

// withHint adds to a denial what its caller can do about it.
func (a *ask) withHint(e *api.Error, d policy.Decision) *api.Error {
	if slices.Contains(d.Policies(), "stop") {
		return e.WithHint("retrying is useless until an operator lifts it: bailiwick stop lift %s", a.stops[0])
	}
	// A ceiling is in the way alone where without it this would be allowed.
	without := a.policyRequest()
	without.Session = api.Irreversible
	if a.snapshot.Engine.Decide(without).Allowed() {
		return e.WithHint("retrying is useless: this session declared the ceiling %s, and none can raise its own", a.ceiling)
	}
	without.Consent = api.Irreversible
	if a.snapshot.Engine.Decide(without).Allowed() {
		return e.WithHint("retrying is useless; an operator can consent to it: bailiwick ceiling set %s %s", a.principal, a.subagent.Tier)
	}
	return e.WithHint("retrying is useless; a human can add it to a grant of %s in bailiwick.yaml; see: bailiwick can %s dispatch %s", a.principal, a.principal, a.request.Subagent)
}
