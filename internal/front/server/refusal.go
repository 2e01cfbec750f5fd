package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/background"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

const (
	refusalBurst    = 10
	refusalRate     = 1 // entries per second
	summaryInterval = time.Minute
)

// refusal is a caller that could not be established.
type refusal struct {
	via     string     // unix, tls, session, token, login or enrolment
	claimed string     // never a secret
	err     *api.Error // for the caller
}

// refuse logs a refusal, within the quota, and returns the caller's error.
func (c *callers) refuse(ctx context.Context, f refusal) error {
	if !c.refusals.take(struct{}{}) {
		return f.err
	}
	seq, err := c.Ledger.Record(ctx, record.Entry{
		Kind: record.KindAuthRefused, Detail: record.AuthRefused{Claimed: f.claimed, Message: f.err.Message, Via: f.via},
	}, nil)
	if err != nil {
		return err
	}
	logged := *f.err
	logged.AuditEntry = &seq
	return &logged
}

// refuseToken logs that a token is invalid.
func (c *callers) refuseToken(ctx context.Context, id api.TokenID, cause error) error {
	claimed := "token " + string(id)
	if id == "" {
		claimed = "no token of ours"
	}
	return c.refuseClaim(ctx, "token", claimed, cause)
}

// refuseClaim logs that what a caller presents is invalid: a token, or the code of an
// invitation. It throttles guessing, never the use of a valid one.
func (c *callers) refuseClaim(ctx context.Context, via, claimed string, cause error) error {
	var e *api.Error
	if !errors.As(cause, &e) {
		return cause
	}
	err := c.refuse(ctx, refusal{via: via, claimed: claimed, err: e})
	var refused *api.Error
	if errors.As(err, &refused) && refused.AuditEntry == nil && (refused.Code == api.CodeUnauthenticated || refused.Code == api.CodeDenied) {
		return api.Errorf(api.CodeThrottled, "too many invalid attempts by %s", via).WithHint("wait a second; a valid one is accepted at any time")
	}
	return err
}

// asError returns the API's error in err, which has one.
func asError(err error) *api.Error {
	var e *api.Error
	if !errors.As(err, &e) {
		return api.Errorf(api.CodeUnauthenticated, "%w", err)
	}
	return e
}

// summarize logs how many refusals got no entry of their own.
func (s *Server) summarize(ctx context.Context) (err error) {
	log := func(e record.Entry, restore func()) {
		if _, failed := s.cfg.Ledger.Record(ctx, e, nil); failed != nil {
			restore()
			err = errors.Join(err, failed)
		}
	}
	for p, n := range s.catalog.claims.dropped() {
		log(record.Entry{
			Kind: record.KindRequestInvalid, Principal: p,
			Detail: record.InvalidRequest{Code: string(api.CodeThrottled), Message: more(n), Operation: "refused"},
		}, func() { s.catalog.claims.restore(p, n) })
	}
	for key, n := range s.callers.refusals.dropped() {
		log(record.Entry{Kind: record.KindAuthRefused, Detail: record.AuthRefused{Message: more(n), Via: "unix"}}, func() { s.callers.refusals.restore(key, n) })
	}
	return err
}

func more(n int) string { return fmt.Sprintf("and %d more, too many to log each", n) }

// summarizeAlways summarizes every minute until the gate closes.
func (s *Server) summarizeAlways() {
	background.Loop{First: summaryInterval, Step: func(ctx context.Context) time.Duration {
		ctx = context.WithoutCancel(ctx)
		if err := s.summarize(ctx); err != nil {
			s.cfg.Logger.ErrorContext(ctx, "cannot log the summary of refusals", slog.Any("err", err))
		}
		return summaryInterval
	}}.Run(s.gate.leaving)
}
