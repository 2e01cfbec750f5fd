package server

import (
	"context"

	"github.com/bailiwick-dev/bailiwick/api"
)

func (c *dispatchCalls) budgets(ctx context.Context, r *request) ([]api.BudgetStatus, error) {
	q := r.query()
	f := api.BudgetFilter{
		Grant: parameter(q, "grant", api.ParseName), Run: parameter(q, "run", api.ParseRunID), Principal: parameter(q, "principal", api.ParsePrincipal), All: q.flag("all"),
	}
	if q.err != nil {
		return nil, q.err
	}
	var none api.DispatchID
	if err := (scopes{c.cfg}).resolve(r, &f.Run, &none); err != nil {
		return nil, err
	}
	return c.cfg.Dispatch.Budgets(ctx, r.caller.Principal, f)
}
