package approval

import (
	"context"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Vote adds the signed vote of by about a request. The record has to name by: nobody
// submits the vote of another.
func (a *Approvals) Vote(ctx context.Context, by api.Principal, id api.ApprovalID, envelope []byte) (api.OperatorReceipt, error) {
	asked, err := a.Get(ctx, id)
	if err != nil {
		return api.OperatorReceipt{}, err
	}
	if d := a.rules.Load().DecideVote(policy.VoteRequest{Voter: by, Action: asked.Action}); !d.Allowed() {
		return api.OperatorReceipt{}, a.cfg.Ledger.Deny(ctx, d, audit.AccessEntry(asked.Action.Dispatch, string(policy.ActionVote)), func(denied *api.Error) *api.Error {
			if asked.Action.Step != nil {
				return denied.WithHint("who may approve is in approval.by of the task; see: bailiwick approval show %s", id)
			}
			return denied.WithHint("who may approve is a grant's approve list; see: bailiwick approval show %s", id)
		})
	}
	if touched(&asked.Action, envelope) {
		if err := a.cfg.Hold(ctx); err != nil {
			return api.OperatorReceipt{}, err
		}
	}
	receipt, err := a.cfg.Votes.Vote(ctx, by, envelope, func(tx *store.Tx, rec *api.OperatorRecord, v api.Vote, earlier []api.Vote) error {
		return a.count(tx, by, id, rec, v, earlier)
	})
	if err == nil {
		a.announce(asked.Action)
	}
	return receipt, err
}

// touched reports whether a passkey signed an envelope about a call that changes things
// outside. Whether its signatures match is for Votes to verify.
func touched(action *api.Action, envelope []byte) bool {
	if action.Call == nil || action.Call.Tier < api.Stateful {
		return false
	}
	ids, err := seal.Signers(envelope, seal.Operator)
	return err == nil && seal.AnyPasskey(ids)
}

// count checks a verified vote and gives the request its state.
func (a *Approvals) count(tx *store.Tx, by api.Principal, id api.ApprovalID, rec *api.OperatorRecord, v api.Vote, earlier []api.Vote) error {
	r, err := load(tx, id)
	if err != nil {
		return err
	}
	switch {
	case v.Principal != by:
		return api.Errorf(api.CodeInvalid, "the vote belongs to %s, but %s submits it", v.Principal, by)
	case rec.Approval != id:
		return api.Errorf(api.CodeInvalid, "the vote is about approval %s, not %s", rec.Approval, id)
	case rec.Content != r.digest:
		return api.Errorf(api.CodeIntegrity, "approval %s: the vote is about action %s, but the action is %s", id, rec.Content, r.digest).WithHint("look at it again: bailiwick approval show %s", id)
	case r.state != api.ApprovalOpen:
		return settled(id, r.state)
	case a.deadlines.left(&r.action) <= 0:
		return api.Errorf(api.CodeConflict, "approval %s expired at %s", id, r.action.Expires.Format(time.RFC3339))
	}
	if !v.Approve {
		return deny(tx, &r)
	}
	if err := independent(v, earlier); err != nil || r.action.Call != nil || !a.rules.Load().Approved(&r.action, append(slices.Clone(earlier), v)) {
		return err
	}
	return settle(tx, id, api.ApprovalApproved)
}

// deny denies a request, and with one about a call every open request about the same call:
// its dispatch may have read text from outside since, and asked for it again.
func deny(tx *store.Tx, r *row) error {
	ids := []api.ApprovalID{r.action.ID}
	if r.action.Call != nil {
		var err error
		if ids, err = aboutCall(tx, r.action.Call, api.ApprovalOpen); err != nil {
			return err
		}
	}
	for _, id := range ids {
		if err := settle(tx, id, api.ApprovalDenied); err != nil {
			return err
		}
	}
	return nil
}

func settled(id api.ApprovalID, state api.ApprovalState) error {
	return api.Errorf(api.CodeConflict, "approval %s is %s", id, state).WithHint("see: bailiwick approval show %s", id)
}

// independent refuses an approval that would not count: of a person, or with a key, that
// approved before.
func independent(v api.Vote, earlier []api.Vote) error {
	if policy.Approvers(append(slices.Clone(earlier), v)) == policy.Approvers(earlier)+1 {
		return nil
	}
	for _, o := range earlier {
		if v.Principal.SamePerson(o.Principal) {
			return api.Errorf(api.CodeConflict, "%s approved it as %s: another person has to", v.Principal, o.Principal)
		}
	}
	return api.Errorf(api.CodeConflict, "the vote is signed with a key that another vote has: each person needs an operator key of their own").
		WithHint("create one: bailiwick operator keygen --key FILE; add it: bailiwick operators add FILE.pub --principal %s", v.Principal)
}
