package client

import (
	"context"
	"net/url"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Budgets lists the budgets that the caller may see: those of its own grants and runs;
// the operator sees all.
func (r Runtime) Budgets(ctx context.Context, f api.BudgetFilter) ([]api.BudgetStatus, error) {
	query := url.Values{}
	for name, value := range map[string]string{"grant": string(f.Grant), "run": string(f.Run), "principal": string(f.Principal)} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if f.All {
		query.Set("all", "true")
	}
	return fetch[[]api.BudgetStatus](ctx, r.c, on(api.CallBudgetList).where(query))
}
