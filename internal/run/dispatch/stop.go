package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Stop engages an emergency stop (R-T10). The stop and a cancel of everything in
// flight that it covers are durable in one transaction: what was admitted before
// is cancelled, and what comes later is refused by the stop. So recovery needs
// nothing of its own: it ends what was cancelled, whatever cancelled it.
func (s *stopper) Stop(ctx context.Context, by api.Principal, req api.StopRequest) (api.Stop, error) {
	ctx = context.WithoutCancel(ctx) // the stop stays when the caller disconnects
	err := req.Check()
	if err != nil {
		err = api.Errorf(api.CodeInvalid, "%w", err)
	} else {
		err = s.checkStopName(ctx, req)
	}
	if err != nil {
		return api.Stop{}, LogInvalid(ctx, s.cfg.Ledger, by, "stop", err)
	}
	var covered []row
	failpoint.Hit(failpoint.StopCommit, "")
	stop, err := s.cfg.Registry.Engage(ctx, by, req, func(tx *store.Tx, stop api.Stop) (n int, err error) {
		covered, err = cancelCovered(tx, stop)
		return len(covered), err
	})
	if err != nil {
		return stop, err
	}
	failpoint.Hit(failpoint.StopCommitted, stop.ID)
	s.cfg.Logger.WarnContext(ctx, "emergency stop engaged", slog.String("stop", stop.ID), slog.String("scope", string(stop.Scope)), slog.Int("cancelled", stop.Cancelled))
	s.endCovered(ctx, covered)
	return stop, nil
}

// checkStopName refuses a name that nothing here has: a stop with a typo would
// stop nothing, and its operator would believe otherwise.
func (s *stopper) checkStopName(ctx context.Context, req api.StopRequest) error {
	count := func(column string) (n int, err error) {
		err = s.cfg.Store.Read(ctx, func(v *store.View) error {
			return v.Get("SELECT count(*) FROM (SELECT 1 FROM dispatch WHERE "+column+" = ? LIMIT 1)", store.Args{req.Name}, &n)
		})
		return n, err
	}
	var n int
	var err error
	p, catalogErr := s.cfg.InForce.Current(ctx)
	switch req.Scope {
	case api.StopAll:
		return nil
	case api.StopDispatch:
		n, err = count("id")
	case api.StopRun: // the log also knows runs that have dispatched nothing
		var entries []audit.Committed
		entries, err = s.cfg.Ledger.List(ctx, audit.Query{Run: api.RunID(req.Name), Limit: 1})
		n = len(entries)
	case api.StopPrincipal:
		if catalogErr != nil || strings.HasPrefix(req.Name, "local:") || s.cfg.Registry.Known(api.Principal(req.Name)) || len(p.Engine.Grants(api.Principal(req.Name))) > 0 {
			return nil //nolint:nilerr // a refused catalog must not prevent a stop
		}
		n, err = count("principal")
	case api.StopSchedule:
		if catalogErr != nil || p.Revision != nil && slices.Contains(p.Revision.Names(api.KindSchedule), api.Name(req.Name)) {
			return nil //nolint:nilerr // likewise
		}
	case api.StopTarget:
		if catalogErr != nil || p.Revision != nil && slices.Contains(p.Revision.Names(api.KindTarget), api.Name(req.Name)) {
			return nil //nolint:nilerr // likewise
		}
		n, err = count("json_extract(record, '$.target')")
	}
	if err == nil && n == 0 {
		err = api.Errorf(api.CodeNotFound, "stop: no such %s %s, so this would stop nothing", req.Scope, req.Name).
			WithHint("check the name; to stop everything: bailiwick stop --all")
	}
	return err
}

// cancelCovered cancels the dispatches that a stop covers and that have not
// ended, and returns them.
func cancelCovered(tx *store.Tx, stop api.Stop) (covered []row, err error) {
	running, err := unfinished(tx)
	if err != nil {
		return nil, err
	}
	asking, err := waiting(tx)
	if err != nil {
		return nil, err
	}
	reason := "emergency stop " + stop.ID
	if stop.Reason != "" {
		reason += ": " + stop.Reason
	}
	for _, r := range slices.Concat(running, asking) {
		d := &r.record
		if !stop.Covers(api.StopSubject{Principal: d.Principal, Target: d.Target, Run: d.Run, Dispatch: d.ID}) {
			continue
		}
		if r, err = markCancelled(tx, r, api.Actor(stop.By), reason); err != nil {
			return nil, err
		}
		covered = append(covered, r)
	}
	return covered, nil
}

// endCovered ends what a stop has cancelled, running dispatches first.
func (s *stopper) endCovered(ctx context.Context, covered []row) {
	var waiting []row
	for _, r := range covered {
		if r.record.State == api.EventNeedsInput {
			waiting = append(waiting, r)
			continue
		}
		s.deliverCancel(ctx, r)
		failpoint.Hit(failpoint.StopDelivered, string(r.record.ID))
	}
	for _, r := range waiting {
		if err := s.endWaiting(ctx, r, cancelled(r.record)); err != nil {
			s.logUnrecorded(r, err)
		}
		failpoint.Hit(failpoint.StopDelivered, string(r.record.ID))
	}
}

// overtakenError says that stops were engaged, or consent was lowered, after a
// decision was made and before it was durable.
type overtakenError struct {
	stops   []string
	consent api.Tier
}

func (e *overtakenError) Error() string { return "overtaken by an operator's decision" }

// checkOvertaken refuses, in the transaction that would admit m, what a stop
// covers or what exceeds the consent by then.
func (s *admitter) checkOvertaken(tx *store.Tx, m record.Manifest) error {
	stops, err := s.cfg.Registry.StopsIn(tx, m.StopSubject())
	if err != nil {
		return err
	}
	consent, err := s.cfg.Registry.ConsentIn(tx, m.Principal)
	if err == nil && (len(stops) > 0 || consent < m.Ceiling) {
		err = &overtakenError{stops, consent}
	}
	return err
}

// denyOvertaken denies a subject that was overtaken, worded like the
// policy. Any other error is returned as it is.
func (s *admitter) denyOvertaken(ctx context.Context, x subject, err error) error {
	now, ok := errors.AsType[*overtakenError](err)
	if !ok {
		return err
	}
	x.stops, x.consent = now.stops, now.consent
	if d := x.decide(); !d.Allowed() {
		return s.deny(ctx, x, d)
	}
	// Its manifest was made for a higher ceiling.
	if x.run != "" {
		return api.Errorf(api.CodeUnavailable, "the ceiling of %s was lowered to %s meanwhile; nothing was done, and the task is retried", x.principal, now.consent)
	}
	return LogInvalid(ctx, s.cfg.Ledger, x.principal, "dispatch", api.Errorf(api.CodeConflict, "the ceiling of %s was lowered to %s meanwhile; nothing was done", x.principal, now.consent).WithHint("retry"))
}
