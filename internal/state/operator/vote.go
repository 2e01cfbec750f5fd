package operator

import (
	"context"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
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
	about := ballot{rec.Approval, rec.Content}
	for _, o := range s.votes[about] {
		if o.Principal == rec.Principal {
			return api.Errorf(api.CodeConflict, "%s voted about approval %s at %s", rec.Principal, rec.Approval, o.At.Format(time.RFC3339)).WithHint("see: bailiwick approval show %s", rec.Approval)
		}
	}
	s.votes[about] = append(slices.Clip(s.votes[about]), voteOf(v))
	return nil
}

func voteOf(v verified) api.Vote {
	vote := api.Vote{Principal: v.record.Principal, At: v.record.At, Approve: v.record.Verb == api.VerbApprove, Reason: v.record.Reason, Record: v.record.Number}
	for _, k := range v.keys {
		vote.Keys = append(vote.Keys, string(k))
	}
	return vote
}

// withdraw forgets the approving votes of some voters: they let no call begin any more. A
// denial stays.
func (s *state) withdraw(of func(voter api.Principal) bool) {
	for about, votes := range s.votes {
		left := slices.DeleteFunc(slices.Clone(votes), func(v api.Vote) bool { return v.Approve && of(v.Principal) })
		if len(left) != len(votes) {
			s.votes[about] = left
		}
	}
}

// Votes returns the votes in force about the action with a digest, in order.
func (r *Registry) Votes(id api.ApprovalID, action api.Digest) []api.Vote {
	return slices.Clone(r.current.Load().votes[ballot{id, action}])
}

// VotesIn is Votes as of transaction tx.
func (r *Registry) VotesIn(tx *store.Tx, id api.ApprovalID, action api.Digest) ([]api.Vote, error) {
	s, err := r.stateIn(tx)
	if err != nil {
		return nil, err
	}
	return slices.Clone(s.votes[ballot{id, action}]), nil
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
		return apply(tx, &rec, voteOf(v), r.current.Load().votes[ballot{rec.Approval, rec.Content}])
	})
}
