package operator

import (
	"context"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/ballot"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// vote counts a vote. Each principal has one about a request.
func (s *state) vote(v verified) error {
	rec := v.record
	if !local(rec.Principal) {
		if err := s.known(rec.Principal); err != nil {
			return err
		}
	}
	return s.votes.Cast(&rec, v.keys)
}

// Votes returns the votes in force about the action with a digest, in order.
func (r *Registry) Votes(id api.ApprovalID, action api.Digest) []api.Vote {
	return r.current.Load().votes.Of(id, action)
}

// VotesIn is Votes as of transaction tx.
func (r *Registry) VotesIn(tx *store.Tx, id api.ApprovalID, action api.Digest) ([]api.Vote, error) {
	s, err := r.stateIn(tx)
	if err != nil {
		return nil, err
	}
	return s.votes.Of(id, action), nil
}

// CanVote returns an error unless an operator key in force belongs to p.
func (r *Registry) CanVote(p api.Principal) error {
	s := r.current.Load()
	operators := s.operators
	switch {
	case operators == nil:
		return s.unsignable(errNoOperator, r.cfg.Root)
	case !operators.Assigned():
		return api.Errorf(api.CodeConflict, "the operator keys have no principals, and a vote counts only under the voter's own key").
			WithHint("say once whose each key is: bailiwick operators assign KEY=PRINCIPAL ...; see: bailiwick operators list")
	case !slices.ContainsFunc(operators.Root().Keys, func(k seal.Key) bool { return k.Principal.SameName(p) }):
		return api.Errorf(api.CodeConflict, "no operator key belongs to %s, and a vote counts only under the voter's own key", p).
			WithHint("create one: bailiwick operator keygen --key FILE; add it: bailiwick operators add FILE.pub --principal %s", p)
	}
	return nil
}

// Vote adds the signed vote that by submits. apply checks it in the transaction that
// makes it durable; earlier are the votes about the same action before it.
func (r *Registry) Vote(ctx context.Context, by api.Principal, envelope []byte, apply func(tx *store.Tx, rec *api.OperatorRecord, v api.Vote, earlier []api.Vote) error) (api.OperatorReceipt, error) {
	if err := r.CanVote(by); err != nil {
		return api.OperatorReceipt{}, err
	}
	return r.add(ctx, by, envelope, nil, func(tx *store.Tx, v verified) error {
		if !v.record.Vote() {
			return api.Errorf(api.CodeInvalid, "operator record: %s is not a vote", v.record.Verb)
		}
		rec := v.record
		return apply(tx, &rec, ballot.VoteOf(&rec, v.keys), r.current.Load().votes.Of(rec.Approval, rec.Content))
	})
}
