package client

import (
	"context"
	"net/url"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Approvals lists the requests for approvals that the caller may see: the open ones, and
// with all those that are settled.
func (r Runtime) Approvals(ctx context.Context, all bool) ([]api.ApprovalView, error) {
	query := url.Values{}
	if all {
		query.Set("all", "true")
	}
	return fetch[[]api.ApprovalView](ctx, r.c, on(api.CallApprovalList).where(query))
}

// Approval returns a request for an approval.
func (r Runtime) Approval(ctx context.Context, id api.ApprovalID) (api.ApprovalView, error) {
	return fetch[api.ApprovalView](ctx, r.c, on(api.CallApproval, string(id)))
}

// Vote submits the caller's signed vote about a request. It is never repeated when its
// effect is unknown: the service would refuse the duplicate.
func (r Runtime) Vote(ctx context.Context, id api.ApprovalID, envelope []byte) (api.OperatorReceipt, error) {
	return fetch[api.OperatorReceipt](ctx, r.c, on(api.CallApprovalVote, string(id)).with(api.VoteRequest{Envelope: envelope}, false))
}
