package server

import (
	"context"
	"strconv"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/front/decisiontext"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
)

// pendingCalls answers the calls about records that wait for signatures. What is signed
// is here before it is signed, so that a page cannot show one record and have another
// one signed unseen.
type pendingCalls struct{ cfg *Config }

func (c *pendingCalls) handlers() map[api.Call]handler {
	return map[api.Call]handler{
		api.CallPendingAdd:  handle(c.submit),
		api.CallPendingList: show(c.list),
		api.CallPending:     show(c.get),
		api.CallPendingSign: handle(c.sign),
		api.CallRecord:      show(c.recorded),
	}
}

func (c *pendingCalls) submit(ctx context.Context, r *request, req api.PendingRequest) (api.PendingDecision, error) {
	if req.Record.Approval != "" {
		if err := c.votable(ctx, r, &req.Record); err != nil {
			return api.PendingDecision{}, c.refused(ctx, r, "operator.submit", err)
		}
	}
	l, err := c.cfg.Registry.Pending.Put(ctx, r.caller.Principal, req.Record, req.Content)
	if err != nil {
		return l, c.refused(ctx, r, "operator.submit", err)
	}
	return c.told(ctx, l)
}

// votable refuses a vote that its caller cannot cast, or about another action than the
// one that waits.
func (c *pendingCalls) votable(ctx context.Context, r *request, rec *api.OperatorRecord) error {
	asked, err := c.cfg.Approvals.Get(ctx, rec.Approval)
	if err != nil {
		return err
	}
	switch whyNot := c.cfg.Approvals.MayVote(r.caller.Principal, &asked); {
	case rec.Principal != r.caller.Principal:
		return api.Errorf(api.CodeInvalid, "the vote belongs to %s, but %s submits it", rec.Principal, r.caller.Principal)
	case rec.Content != asked.Digest:
		return api.Errorf(api.CodeIntegrity, "approval %s: the vote is about action %s, but the action is %s", rec.Approval, rec.Content, asked.Digest).WithHint("look at it again: bailiwick approval show %s", rec.Approval)
	case whyNot != "":
		return api.Errorf(api.CodeConflict, "approval %s: %s", rec.Approval, whyNot).WithHint("see: bailiwick approval show %s", rec.Approval)
	}
	return nil
}

func (c *pendingCalls) list(ctx context.Context, _ *request) ([]api.PendingDecision, error) {
	list, err := c.cfg.Registry.Pending.List(ctx)
	for i := range list {
		if list[i], err = c.told(ctx, list[i]); err != nil {
			return nil, err
		}
	}
	return list, err
}

func (c *pendingCalls) get(ctx context.Context, r *request) (api.PendingDecision, error) {
	id, err := pendingID(r)
	if err != nil {
		return api.PendingDecision{}, err
	}
	l, err := c.cfg.Registry.Pending.Get(ctx, id)
	if err != nil {
		return l, err
	}
	return c.told(ctx, l)
}

// sign adds a signature, and puts the record in force once it has enough. The signature
// authorizes it, not the account that submits it.
func (c *pendingCalls) sign(ctx context.Context, r *request, by api.PendingSignature) (api.PendingDecision, error) {
	id, err := pendingID(r)
	if err != nil {
		return api.PendingDecision{}, err
	}
	var person api.Principal
	if r.caller.person.ID != "" {
		person = r.caller.Principal
	}
	signed, err := c.cfg.Registry.Pending.SignAs(ctx, id, by, person)
	if err != nil {
		return api.PendingDecision{}, c.refused(ctx, r, "operator.record", err)
	}
	var l api.PendingDecision
	if signed == nil {
		l, err = c.cfg.Registry.Pending.Get(ctx, id)
	} else {
		var receipt api.OperatorReceipt
		if signed.Record.Approval != "" {
			receipt, err = c.cfg.Approvals.Vote(ctx, signed.By, signed.Record.Approval, signed.Envelope)
		} else {
			receipt, err = c.cfg.Registry.Add(ctx, r.caller.Principal, signed.Envelope, signed.Content)
		}
		l, err = c.cfg.Registry.Pending.Settle(ctx, id, receipt, err)
	}
	if err != nil {
		return l, c.refused(ctx, r, "operator.record", err)
	}
	return c.told(ctx, l)
}

// told adds what l decides in plain words.
func (c *pendingCalls) told(ctx context.Context, l api.PendingDecision) (api.PendingDecision, error) {
	action, err := c.action(ctx, l.Record)
	if err != nil {
		return l, err
	}
	l.Text = decisiontext.Text(l.Record, action)
	return l, nil
}

// action returns the action that a vote is about; nil of another record.
func (c *pendingCalls) action(ctx context.Context, rec api.OperatorRecord) (*api.Action, error) {
	if rec.Approval == "" {
		return nil, nil //nolint:nilnil // it is not a vote
	}
	asked, err := c.cfg.Approvals.Get(ctx, rec.Approval)
	if err != nil {
		return nil, err
	}
	doc, err := canon.Marshal(asked.Action)
	if err == nil && api.DigestOf(doc) != rec.Content {
		err = api.Errorf(api.CodeIntegrity, "operator record %d: it is about action %s, but the action of approval %s is another", rec.Number, rec.Content, rec.Approval)
	}
	return &asked.Action, err
}

// recorded returns a record that is in force.
func (c *pendingCalls) recorded(ctx context.Context, r *request) (api.Decision, error) {
	number, err := strconv.ParseUint(r.PathValue("number"), 10, 53)
	if err != nil {
		return api.Decision{}, malformed(api.CodeInvalid, "decision %.40q: want its number", r.PathValue("number"))
	}
	d, err := c.cfg.Registry.Decision(ctx, number)
	if err != nil {
		return d, err
	}
	action, err := c.action(ctx, d.Record)
	if err != nil {
		return d, err
	}
	d.Text = decisiontext.Recorded(d.Record, action)
	return d, nil
}

func pendingID(r *request) (id api.PendingID, err error) {
	if err := id.UnmarshalText([]byte(r.PathValue("id"))); err != nil {
		return id, malformed(api.CodeInvalid, "%w", err)
	}
	return id, nil
}

// refused logs a refusal; faults are returned as they are.
func (c *pendingCalls) refused(ctx context.Context, r *request, operation string, err error) error {
	switch api.CodeOf(err) { //nolint:exhaustive // the others are faults, not refusals
	case api.CodeInvalid, api.CodeConflict, api.CodeIntegrity:
		return dispatch.LogInvalid(ctx, c.cfg.Ledger, r.caller.Principal, operation, err)
	}
	return err
}
