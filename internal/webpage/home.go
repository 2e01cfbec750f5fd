package webpage

import (
	"context"
	"net/http"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// part is a part of a page that is read by a call of its own, which may fail: a person
// who is not the operator may not see the service's status, for example.
type part[T any] struct {
	Value T
	Error string
}

func partOf[T any](ctx context.Context, read func(context.Context) (T, error)) (p part[T]) {
	var err error
	if p.Value, err = read(ctx); err != nil {
		p.Error = err.Error()
	}
	return p
}

// recent is how far back the first page looks for runs that failed.
const recent = 24 * time.Hour

// listed bounds the runs of a list on the first page.
const listed = 20

func (s *site) home(r *http.Request) (*view, error) {
	runs := func(f api.RunFilter) func(context.Context) ([]api.Run, error) {
		return func(ctx context.Context) ([]api.Run, error) { return s.runtime().Runs(ctx, f) }
	}
	open, err := api.ParseRunStates(api.RunsOpen)
	if err != nil {
		return nil, err
	}
	ctx := r.Context()
	return &view{"home", "Overview", struct {
		Waiting      part[[]api.Waiting]
		Open, Failed part[[]api.Run]
		Budgets      part[[]api.BudgetStatus]
		Status       part[api.ServiceStatus]
	}{
		partOf(ctx, s.runtime().Waiting),
		partOf(ctx, runs(api.RunFilter{States: open, Limit: listed})),
		partOf(ctx, runs(api.RunFilter{States: []api.RunState{api.RunFailed}, Since: s.Now().Add(-recent), Limit: listed})),
		partOf(ctx, func(ctx context.Context) ([]api.BudgetStatus, error) {
			return s.runtime().Budgets(ctx, api.BudgetFilter{})
		}),
		partOf(ctx, s.operator().Status),
	}}, nil
}
