package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
)

const (
	// leastWait bounds how often an agent can ask about one approval.
	leastWait = time.Second
	// waitNotice is how often a waiting agent is told that it waits.
	waitNotice = 10 * time.Second
)

// approve waits until people have approved the call, and returns nil then. It waits as
// long as the registry says; after that the agent has to call again. It holds nothing
// that other calls wait for.
func (v *View) approve(ctx context.Context, c *call, r policy.ToolRequest, d policy.Decision) *refusal {
	if v.isSpent() {
		return v.deny(ctx, c, r, d)
	}
	failpoint.Hit(failpoint.ToolAsk, string(v.a.Manifest.ID))
	a, err := v.g.cfg.Approvals.Ask(ctx, v.action(c, d), v.a.Manifest.Attempt, v.reported())
	failpoint.Hit(failpoint.ToolAsked, string(v.a.Manifest.ID))
	if api.CodeOf(err) == api.CodeConflict { // too many are open
		c.advice = "nothing was done; call again when people have decided"
		return v.deny(ctx, c, r, policy.DenyTool(r, reasonOf(err), d.Policies()...))
	}
	if err != nil {
		return failed(err)
	}
	wait := max(time.Duration(approvalOf(c.tool).Wait), leastWait)
	if a.State == api.ApprovalOpen {
		a, err = v.await(ctx, c, a, wait)
		if err != nil {
			return failed(err)
		}
	}
	c.approval = a.Action.ID
	switch a.State {
	case api.ApprovalOpen:
		return &refusal{code: api.CodeNotFinished, message: waitingText(a, wait), hint: fmt.Sprintf("call again with the same arguments to wait again; approval %s was requested once and stays valid until %s", a.Action.ID, a.Action.Expires.UTC().Format(time.RFC3339))}
	case api.ApprovalApproved:
		call := record.ApprovedCall{Tool: c.tool.ID, Arguments: api.DigestOf(c.arguments), Dispatch: v.a.Manifest.ID, At: v.g.cfg.Now()}
		if err := call.Covered(a.Action.Call); err != nil {
			c.advice = adviceUsed
			return v.deny(ctx, c, r, policy.DenyTool(r, fmt.Sprintf("approval %s: %v", a.Action.ID, err), d.Policies()...))
		}
		c.approved = a.Action.Call
		return nil
	case api.ApprovalUsed: // by the same call, made meanwhile
		c.advice = adviceUsed
	case api.ApprovalDenied, api.ApprovalExpired, api.ApprovalEnded:
	}
	return v.deny(ctx, c, r, policy.DenyTool(r, deniedText(a), d.Policies()...))
}

// await returns an approval when it is no longer open, or when wait has passed.
func (v *View) await(ctx context.Context, c *call, a api.Approval, wait time.Duration) (api.Approval, error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	text := waitingText(a, 0)
	c.stream.progress(text)
	done := make(chan struct{})
	defer close(done)
	go func() {
		tick := time.NewTicker(waitNotice)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				c.stream.progress(text)
			case <-done:
				return
			}
		}
	}()
	for a.State == api.ApprovalOpen {
		next, err := v.g.cfg.Approvals.Wait(waiting, a.Action.ID)
		switch {
		case err == nil:
			a = next
		case ctx.Err() != nil:
			return a, ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			return a, nil
		default:
			return a, err
		}
	}
	return a, nil
}

// action is what people approve.
func (v *View) action(c *call, d policy.Decision) api.ToolAction {
	a := record.ToolAction(v.a.Manifest, &c.tool.Tool, c.tool.definition, c.arguments, policy.ToolApprovers(c.tool.Tier))
	a.Policies, a.Taint = d.Policies(), v.taint.Load()
	a.Expires = v.g.cfg.Now().UTC().Add(time.Duration(approvalOf(c.tool).Expires))
	return a
}

// approvalOf returns how calls of a tool are approved, with the defaults. A tool without
// it is approved in a tainted dispatch.
func approvalOf(t *tool) api.ToolApproval {
	a := api.ToolApproval{}
	if t.Approval != nil {
		a = *t.Approval
	}
	if a.Wait == 0 {
		a.Wait = api.DefaultApprovalWait
	}
	if a.Expires == 0 {
		a.Expires = api.DefaultApprovalExpiry
	}
	return a
}

func waitingText(a api.Approval, waited time.Duration) string {
	text := fmt.Sprintf("waiting for a human to approve this call, approval %s", a.Action.ID)
	if a.Action.Needs > 1 {
		text = fmt.Sprintf("waiting for %d humans to approve this call, approval %s, %d so far", a.Action.Needs, a.Action.ID, len(a.Votes))
	}
	if waited > 0 {
		text += fmt.Sprintf(": no decision within %s", waited)
	}
	return text
}

// deniedText says who denied an approval, and why.
func deniedText(a api.Approval) string {
	switch a.State { //nolint:exhaustive // the others were not denied by anyone
	case api.ApprovalDenied:
		for _, vote := range a.Votes {
			if !vote.Approve {
				text := fmt.Sprintf("%s denied approval %s", vote.Principal, a.Action.ID)
				if reason := strings.TrimSpace(vote.Reason); reason != "" {
					text += ": " + reason
				}
				return text
			}
		}
		return fmt.Sprintf("approval %s was denied, with another request for the same call", a.Action.ID)
	case api.ApprovalExpired:
		return fmt.Sprintf("approval %s expired at %s", a.Action.ID, a.Action.Expires.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("approval %s is %s", a.Action.ID, a.State)
}
