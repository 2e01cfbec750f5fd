package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

func (r *Registry) Add(ctx context.Context, by api.Principal, envelope, content []byte) (api.OperatorReceipt, error) {
	return r.add(ctx, by, envelope, content, func(tx *store.Tx, v verified) error {
		switch verb := v.record.Verb; {
		case verb == api.VerbStopLift:
			return liftable(tx, v.record.Stop)
		case v.record.Vote():
			return api.Errorf(api.CodeInvalid, "operator record: %s is a vote", verb).WithHint("vote with: bailiwick approval approve, or deny, %s", v.record.Approval)
		}
		return nil
	})
}

func (r *Registry) add(ctx context.Context, by api.Principal, envelope, content []byte, check func(*store.Tx, verified) error) (api.OperatorReceipt, error) {
	r.adding.Lock()
	defer r.adding.Unlock()
	if err := r.reread(ctx); err != nil {
		return api.OperatorReceipt{}, err
	}
	v, err := r.Chain.verify(envelope, r.current.Load().operators)
	if err != nil {
		hint := "sign with keys that bailiwick operators list shows, of as many people as the threshold says: --key, several times"
		if errors.Is(err, seal.ErrOwner) {
			hint = "sign with an operator key of your own: --key; see: bailiwick operators list"
		}
		return api.OperatorReceipt{}, api.Errorf(api.CodeIntegrity, "operator record: %w", err).WithHint("%s", hint)
	}
	if err := r.Pending.check(v); err != nil {
		return api.OperatorReceipt{}, err
	}
	next, err := r.current.Load().next(v, r.cfg.Now())
	if err != nil {
		return api.OperatorReceipt{}, err
	}
	if err := putSecret(r.cfg.Secrets, v.record, content); err != nil {
		return api.OperatorReceipt{}, err
	}
	r.pending.Store(next)
	failpoint.Hit(failpoint.DecideCommit, string(v.record.Verb))
	seq, err := r.cfg.Ledger.Record(ctx, entry(by, v, next), func(tx *store.Tx) error {
		if err := check(tx, v); err != nil {
			return err
		}
		_, err := tx.Exec("INSERT INTO operator_record(number, envelope) VALUES (?, ?)", v.record.Number, string(envelope))
		return err
	})
	if err != nil {
		return api.OperatorReceipt{}, err
	}
	failpoint.Hit(failpoint.DecideCommitted, string(v.record.Verb))
	r.current.Store(next)
	if v.record.Secret != "" {
		_ = sweepSecrets(r.cfg.Secrets, next) // what is left goes at the next start
	}
	return api.OperatorReceipt{Number: v.record.Number, AuditEntry: seq}, nil
}

func (r *Registry) reread(ctx context.Context) error {
	first, err := r.Chain.keys()
	if err == nil && first.Digest() != r.first {
		var s *state
		if s, err = r.Chain.reverify(ctx, r.current.Load(), first); err == nil {
			r.first = first.Digest()
			r.current.Store(s)
		}
	}
	if err != nil {
		return r.current.Load().unsignable(err, r.cfg.Root)
	}
	return nil
}

func entry(by api.Principal, v verified, next *state) record.Entry {
	return record.Entry{
		Kind: record.KindOperatorRecorded, Principal: by, Refs: map[string]api.Digest{record.RefRecord: next.digest}, Detail: record.DecisionOf(&v.record, v.signers()),
	}
}

func (r *Registry) Decision(ctx context.Context, number uint64) (d api.Decision, err error) {
	s := r.current.Load()
	if number < 1 || number > s.number {
		return d, api.Errorf(api.CodeNotFound, "no decision %d: the newest is %d", number, s.number).WithHint("see: bailiwick audit list --kind %s", record.KindOperatorRecorded)
	}
	var envelope string
	if err := r.cfg.Store.Read(ctx, func(v *store.View) error {
		return v.Get("SELECT envelope FROM operator_record WHERE number = ?", store.Args{int64(number)}, &envelope) //nolint:gosec // G115: numbers count up from 1
	}); err != nil {
		return d, fmt.Errorf("decision %d: %w", number, err)
	}
	i := len(s.sets) - 1
	for s.sets[i].from > number {
		i--
	}
	v, err := r.Chain.verify([]byte(envelope), s.sets[i].operators)
	if err == nil && v.record.Number != number {
		err = fmt.Errorf("its record has number %d", v.record.Number)
	}
	if err == nil {
		d, err = decided(v, []byte(envelope), s.sets[i].operators)
	}
	if err == nil {
		d.AuditEntry, err = r.Chain.entryOf(ctx, v)
	}
	if err != nil {
		return api.Decision{}, api.Errorf(api.CodeIntegrity, "decision %d: %w", number, err)
	}
	return d, nil
}

func decided(v verified, envelope []byte, operators *seal.Operators) (d api.Decision, err error) {
	e, err := seal.Open(envelope, seal.Operator)
	if err != nil {
		return d, err
	}
	challenge := seal.Challenge(seal.Operator, e.Payload())
	root := operators.Root()
	d = api.Decision{
		OperatorReceipt: api.OperatorReceipt{Number: v.record.Number}, Record: v.record, Payload: e.Payload(), Digest: v.digest, Challenge: challenge[:],
		Set: operators.Number(), Threshold: root.Threshold,
	}
	raw := e.SignaturesBy(v.keys)
	for _, k := range root.Keys {
		if !slices.Contains(v.keys, k.ID) {
			continue
		}
		s := api.DecisionSignature{Key: string(k.ID), Name: k.Name}
		if k.Passkey != nil {
			a, err := seal.ParseAssertion(raw[k.ID])
			if err != nil {
				return d, err
			}
			s.Assertion = (*api.Assertion)(&a)
		}
		d.Signatures = append(d.Signatures, s)
	}
	return d, nil
}
