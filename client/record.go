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

// Lodge lodges a decision, to be signed with SignLodged: before anybody signs it, Lodged
// lists it. It is never repeated when its effect is unknown: the list tells.
func (o OperatorRecords) Lodge(ctx context.Context, req api.LodgeRequest) (api.LodgedRecord, error) {
	return fetch[api.LodgedRecord](ctx, o.c, on(api.CallLodge).with(req, false))
}

// Lodged lists the lodged records, oldest first, with those that were signed or became
// stale in the last ten minutes.
func (o OperatorRecords) Lodged(ctx context.Context) ([]api.LodgedRecord, error) {
	return fetch[[]api.LodgedRecord](ctx, o.c, on(api.CallLodgedList))
}

// LodgedRecord returns one lodged record.
func (o OperatorRecords) LodgedRecord(ctx context.Context, id api.LodgedID) (api.LodgedRecord, error) {
	return fetch[api.LodgedRecord](ctx, o.c, on(api.CallLodged, string(id)))
}

// SignLodged adds a signature to a lodged record. With as many as the operators' threshold
// says the record is in force when this returns, and has a receipt.
func (o OperatorRecords) SignLodged(ctx context.Context, id api.LodgedID, by api.LodgedSignature) (api.LodgedRecord, error) {
	return fetch[api.LodgedRecord](ctx, o.c, on(api.CallLodgedSign, string(id)).with(by, false))
}
