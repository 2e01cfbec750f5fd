package server

import (
	"context"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
)

// Approvals is what the server needs of internal/state/approval.
type Approvals interface {
	Get(ctx context.Context, id api.ApprovalID) (api.Approval, error)
	List(ctx context.Context, all bool) ([]api.Approval, error)
	Vote(ctx context.Context, by api.Principal, id api.ApprovalID, envelope []byte) (api.OperatorReceipt, error)
	OfRun(ctx context.Context, run api.RunID) ([]api.Approval, error)
	Electorate(reader api.Principal, asked *api.Approval) api.Electorate
	MayRead(ctx context.Context, p api.Principal) (func(asked *api.Approval) bool, error)
	MayVote(p api.Principal, asked *api.Approval) (whyNot string)
}

// approvalCalls answers the calls about approvals. A person votes by account or by
// token: the signature of an operator key in the vote is the consent, and policy decides
// who may vote.
type approvalCalls struct{ cfg *Config }

func (c *approvalCalls) handlers() map[api.Call]handler {
	return map[api.Call]handler{
		api.CallApprovalList: show(c.list),
		api.CallApproval:     show(c.get),
		api.CallApprovalVote: handle(c.vote),
	}
}

func (c *approvalCalls) list(ctx context.Context, r *request) ([]api.ApprovalView, error) {
	found, err := c.cfg.Approvals.List(ctx, r.URL.Query().Get("all") == "true")
	if err != nil {
		return nil, err
	}
	mayRead, err := c.cfg.Approvals.MayRead(ctx, r.caller.Principal)
	if err != nil {
		return nil, err
	}
	list := []api.ApprovalView{}
	for i := range found {
		if mayRead(&found[i]) {
			list = append(list, api.ApprovalView{Approval: found[i], WhyNot: c.cfg.Approvals.MayVote(r.caller.Principal, &found[i])})
		}
	}
	return list, nil
}

// waiting returns the open requests that p may see.
func (c *approvalCalls) waiting(ctx context.Context, p api.Principal) (list []api.Waiting, err error) {
	if c.cfg.Approvals == nil {
		return nil, nil
	}
	found, err := c.cfg.Approvals.List(ctx, false)
	if err != nil {
		return nil, err
	}
	mayRead, err := c.cfg.Approvals.MayRead(ctx, p)
	if err != nil {
		return nil, err
	}
	for i := range found {
		if a := &found[i].Action; found[i].State == api.ApprovalOpen && mayRead(&found[i]) {
			w := api.Waiting{
				Kind: api.WaitingApproval, Since: found[i].RequestedAt, Until: &a.Expires, Principal: a.Principal,
				RunID: a.Run, Task: a.Task, DispatchID: a.Dispatch, Approval: a.ID, Electorate: c.cfg.Approvals.Electorate(p, &found[i]),
			}
			if a.Call != nil {
				w.Subagent, w.Tool = a.Call.Subagent, a.Call.Tool
			}
			list = append(list, w)
		}
	}
	return list, err
}

// ofRun returns the open requests of a run, for those who may see it.
func (c *approvalCalls) ofRun(ctx context.Context, p api.Principal, run api.RunID) (list []api.OpenApproval, err error) {
	if c.cfg.Approvals == nil {
		return nil, nil
	}
	found, err := c.cfg.Approvals.OfRun(ctx, run)
	for i := range found[:min(len(found), api.MaxOpenApprovals)] {
		a := &found[i].Action
		open := api.OpenApproval{ID: a.ID, Task: a.Task, DispatchID: a.Dispatch, Electorate: c.cfg.Approvals.Electorate(p, &found[i]), Expires: a.Expires}
		if a.Call != nil {
			open.Tool = a.Call.Tool
		}
		list = append(list, open)
	}
	return list, err
}

// find returns the request in the path of a call. One that the caller may not see reads
// as one that does not exist.
func (c *approvalCalls) find(ctx context.Context, r *request) (api.Approval, error) {
	var id api.ApprovalID
	if err := id.UnmarshalText([]byte(r.PathValue("id"))); err != nil {
		return api.Approval{}, malformed(api.CodeInvalid, "%w", err)
	}
	found, err := c.cfg.Approvals.Get(ctx, id)
	if err != nil {
		return api.Approval{}, err
	}
	mayRead, err := c.cfg.Approvals.MayRead(ctx, r.caller.Principal)
	if err == nil && !mayRead(&found) {
		err = api.Errorf(api.CodeNotFound, "no approval %s", id).WithHint("see: bailiwick approval list --all")
	}
	return found, err
}

func (c *approvalCalls) get(ctx context.Context, r *request) (api.ApprovalView, error) {
	found, err := c.find(ctx, r)
	if err != nil {
		return api.ApprovalView{}, err
	}
	view := api.ApprovalView{Approval: found, WhyNot: c.cfg.Approvals.MayVote(r.caller.Principal, &found)}
	if view.WhyNot == "" {
		head := c.cfg.Registry.Head()
		view.Head = &head
	}
	if found.Action.Step != nil {
		view.Products, err = c.products(ctx, found.Action.Step)
	}
	return view, err
}

// products returns what people read of the tasks that are shown: exactly what the digests
// of the action name.
func (c *approvalCalls) products(ctx context.Context, a *api.TaskAction) ([]api.ShownProduct, error) {
	list := make([]api.ShownProduct, len(a.Shown))
	for i := range a.Shown {
		s := &a.Shown[i]
		list[i] = api.ShownProduct{Task: s.Task, Gone: true}
		d, ok, err := c.cfg.Dispatch.Get(ctx, s.Dispatch)
		if err != nil {
			return nil, err
		}
		if !ok || d.Outcome == nil {
			continue
		}
		now, err := record.ShownTask(s.Task, d.ID, d.Result, d.Outcome)
		if err != nil {
			return nil, err
		}
		if now.Result != s.Result || now.Value != s.Value || now.Text != s.Text {
			return nil, api.Errorf(api.CodeIntegrity, "approval %s: the result of dispatch %s is not the one that it shows", a.ID, s.Dispatch)
		}
		list[i] = api.ShownProduct{Task: s.Task, Files: d.Outcome.Files, Changed: now.Changed, Value: d.Outcome.Value, Text: d.Outcome.Text}
	}
	return list, nil
}

func (c *approvalCalls) vote(ctx context.Context, r *request, req api.VoteRequest) (api.OperatorReceipt, error) {
	found, err := c.find(ctx, r)
	if err != nil {
		return api.OperatorReceipt{}, err
	}
	receipt, err := c.cfg.Approvals.Vote(ctx, r.caller.Principal, found.Action.ID, req.Envelope)
	switch api.CodeOf(err) { //nolint:exhaustive // the others are faults, or logged denials
	case api.CodeInvalid, api.CodeConflict, api.CodeIntegrity:
		err = dispatch.LogInvalid(ctx, c.cfg.Ledger, r.caller.Principal, "approval.vote", err)
	}
	return receipt, err
}
