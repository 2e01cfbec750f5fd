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
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// admitter makes decisions about attempts durable, and starts what they allow.
type admitter struct{ *lifecycle }

// deny logs a denial and returns it with a hint for the caller.
func (s *admitter) deny(ctx context.Context, x subject, d policy.Decision) error {
	entry := x.entry()
	entry.Attempt = x.attempt
	return s.cfg.Ledger.Deny(ctx, d, entry, func(e *api.Error) *api.Error { return x.withHint(e, d) })
}

// admit makes the decision durable together with the dispatch, and starts it.
// ctx holds the blobs that it stores.
func (s *admitter) admit(ctx context.Context, p *prepared) (api.Dispatch, error) {
	now := s.cfg.Now().UTC()
	m, err := p.manifest(now)
	if err != nil {
		return api.Dispatch{}, err
	}
	digest, err := s.storeManifest(ctx, m)
	if err != nil {
		return api.Dispatch{}, err
	}
	if _, err := s.cfg.Blobs.Put(ctx, p.request.Input); err != nil {
		return api.Dispatch{}, storeError(err)
	}
	r := row{request: p.digest, record: api.Dispatch{
		ID: m.ID, State: api.EventAccepted, Attempt: m.Attempt, Principal: m.Principal, Run: m.Run, Task: m.Task, Subagent: m.Subagent, Role: m.Role, Tier: m.Tier,
		Target: m.Target, Source: m.Source, Revision: m.Revision, Manifest: digest, Input: m.Input, AcceptedAt: now, Mode: s.cfg.Mode, Trace: p.trace, Taint: m.Taint,
	}}
	if r.record.ReuseKey, err = record.ReuseKey(&m); err != nil {
		return api.Dispatch{}, err
	}
	failpoint.Hit(failpoint.AcceptCommit, string(m.ID))
	spending, err := s.spending(ctx, &p.subject, p.forTask, &m, now)
	if err != nil {
		return api.Dispatch{}, err
	}
	admission, err := s.commit(ctx, p.decision, record.Accepted(&m, digest, p.request.Capabilities), spending, func(tx *store.Tx) error {
		switch _, ok, err := load(tx, m.ID); {
		case err != nil:
			return err
		case ok:
			return errDuplicate
		}
		if err := p.caller.CheckToken(); err != nil {
			return err
		}
		if err := s.checkOvertaken(tx, m); err != nil {
			return err
		}
		if err := s.useApproval(tx, p, &m); err != nil {
			return err
		}
		return insert(tx, r)
	})
	if err != nil {
		return api.Dispatch{}, err
	}
	failpoint.Hit(failpoint.AcceptCommitted, string(m.ID))
	s.observeAccepted(s.life, r.record, p.received)
	s.launch(admission, r, m)
	return r.record, nil
}

// storeManifest signs and stores a manifest.
func (s *admitter) storeManifest(ctx context.Context, m record.Manifest) (api.Digest, error) {
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
