package client

import (
	"context"
	"strconv"

	"github.com/bailiwick-dev/bailiwick/api"
)

// OperatorRecords submits decisions that operators' keys signed, and reads the chain of
// those in force and the list of those that still wait for signatures.
type OperatorRecords struct{ c *Conn }

// Head returns what the next operator record has to name as its predecessor.
func (o OperatorRecords) Head(ctx context.Context) (api.OperatorHead, error) {
	return fetch[api.OperatorHead](ctx, o.c, on(api.CallRecordHead))
}

// Decision returns the operator record with a number, from 1.
func (o OperatorRecords) Decision(ctx context.Context, number uint64) (api.Decision, error) {
	return fetch[api.Decision](ctx, o.c, on(api.CallRecord, strconv.FormatUint(number, 10)))
}

// Record submits a decision that an operator's key signed. It is in force when
// this returns. It is never repeated when its effect is unknown: the service
// would refuse the duplicate. content is the encrypted value of a secret that the
// decision sets.
func (o OperatorRecords) Record(ctx context.Context, envelope, content []byte) (api.OperatorReceipt, error) {
	return fetch[api.OperatorReceipt](ctx, o.c, on(api.CallRecordAdd).with(api.OperatorRequest{Envelope: envelope, Content: content}, false))
}

// Keys returns the operator keys, in force and retired.
func (o OperatorRecords) Keys(ctx context.Context) (api.OperatorKeys, error) {
	return fetch[api.OperatorKeys](ctx, o.c, on(api.CallOperatorKeys))
}

// SubmitDecision submits a decision, to be signed with SignPending; PendingDecisions lists
// it. The call is never repeated when its effect is unknown: the list tells.
func (o OperatorRecords) SubmitDecision(ctx context.Context, req api.PendingRequest) (api.PendingDecision, error) {
	return fetch[api.PendingDecision](ctx, o.c, on(api.CallPendingAdd).with(req, false))
}

// PendingDecisions lists the pending decisions, oldest first, with the decisions that were
// signed or became stale in the last ten minutes.
func (o OperatorRecords) PendingDecisions(ctx context.Context) ([]api.PendingDecision, error) {
	return fetch[[]api.PendingDecision](ctx, o.c, on(api.CallPendingList))
}

// PendingDecision returns one pending decision.
func (o OperatorRecords) PendingDecision(ctx context.Context, id api.PendingID) (api.PendingDecision, error) {
	return fetch[api.PendingDecision](ctx, o.c, on(api.CallPending, string(id)))
}

// SignPending adds a signature to a pending decision. With as many as the operators' threshold
// says the record is in force when this returns, and has a receipt.
func (o OperatorRecords) SignPending(ctx context.Context, id api.PendingID, by api.PendingSignature) (api.PendingDecision, error) {
	return fetch[api.PendingDecision](ctx, o.c, on(api.CallPendingSign, string(id)).with(by, false))
}

// Invite invites a person to enrol a passkey on a device of their own. It is never repeated
// when its effect is unknown: the answer alone has the link.
func (o OperatorRecords) Invite(ctx context.Context, req api.InvitationRequest) (api.Invitation, error) {
	return fetch[api.Invitation](ctx, o.c, on(api.CallInvitationAdd).with(req, false))
}

// Invitations lists the invitations, with the passkeys that were enrolled.
func (o OperatorRecords) Invitations(ctx context.Context) ([]api.Invitation, error) {
	return fetch[[]api.Invitation](ctx, o.c, on(api.CallInvitationList))
}
