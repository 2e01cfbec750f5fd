package client

import (
	"context"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Lodge lodges a decision, to be signed with SignLodged: before anybody signs it, Lodged
// lists it. It is never repeated when its effect is unknown: the list tells.
func (o Operator) Lodge(ctx context.Context, req api.LodgeRequest) (api.LodgedRecord, error) {
	return fetch[api.LodgedRecord](ctx, o.c, on(api.CallLodge).with(req, false))
}

// Lodged lists the lodged records, oldest first, with those that were signed or became
// stale in the last ten minutes.
func (o Operator) Lodged(ctx context.Context) ([]api.LodgedRecord, error) {
	return fetch[[]api.LodgedRecord](ctx, o.c, on(api.CallLodgedList))
}

// LodgedRecord returns one lodged record.
func (o Operator) LodgedRecord(ctx context.Context, id api.LodgedID) (api.LodgedRecord, error) {
	return fetch[api.LodgedRecord](ctx, o.c, on(api.CallLodged, string(id)))
}

// SignLodged adds a signature to a lodged record. With as many as the operators' threshold
// says the record is in force when this returns, and has a receipt.
func (o Operator) SignLodged(ctx context.Context, id api.LodgedID, by api.LodgedSignature) (api.LodgedRecord, error) {
	return fetch[api.LodgedRecord](ctx, o.c, on(api.CallLodgedSign, string(id)).with(by, false))
}
