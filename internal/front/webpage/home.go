package webpage

import (
	"context"
	"net/http"
	"slices"
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

// operatorPart is partOf for what only operators may read.
func operatorPart[T any](ctx context.Context, read func(context.Context) (T, error)) part[T] {
	if !reads(ctx) {
		return part[T]{Error: "only operators see this"}
	}
	return partOf(ctx, read)
}

// recent is how far back the first page looks for runs that failed.
const recent = 24 * time.Hour

const (
	listed = 20  // runs or dispatches of a list on the first page, at most
	sought = 200 // dispatches among which the first page looks for those outside runs
)

// homePages is the pages that lead to the others.
type homePages struct{ source }

func (s homePages) home(r *http.Request) (*view, error) {
	runs := func(f api.RunFilter) func(context.Context) ([]api.Run, error) {
		return func(ctx context.Context) ([]api.Run, error) { return s.runtime(ctx).Runs(ctx, f) }
	}
	open, err := api.ParseRunStates(api.RunsOpen)
	if err != nil {
		return nil, err
	}
	ctx, since := r.Context(), s.now().Add(-recent)
	return &view{"home", "Overview", struct {
		Waiting      part[[]api.Waiting]
		Open, Failed part[[]api.Run]
		// Dispatches outside runs. The page of a run has its own.
		OpenAlone, FailedAlone part[[]api.Dispatch]
		Budgets                part[[]api.BudgetStatus]
		Status                 part[api.ServiceStatus]
	}{
		partOf(ctx, s.runtime(ctx).Waiting),
		partOf(ctx, runs(api.RunFilter{States: open, Limit: listed})),
		partOf(ctx, runs(api.RunFilter{States: []api.RunState{api.RunFailed}, Since: since, Limit: listed})),
		partOf(ctx, s.alone(api.DispatchFilter{States: []api.Event{api.EventAccepted, api.EventStarted, api.EventNeedsInput}})),
		partOf(ctx, s.alone(api.DispatchFilter{States: []api.Event{api.EventFailed}, Since: since})),
		partOf(ctx, func(ctx context.Context) ([]api.BudgetStatus, error) {
			return s.runtime(ctx).Budgets(ctx, api.BudgetFilter{})
		}),
		operatorPart(ctx, s.operator(ctx).Status),
	}}, nil
}

// alone lists the newest dispatches of f that belong to no run.
func (s homePages) alone(f api.DispatchFilter) func(context.Context) ([]api.Dispatch, error) {
	f.Limit = sought
	return func(ctx context.Context) ([]api.Dispatch, error) {
		list, err := s.runtime(ctx).List(ctx, f)
		list = slices.DeleteFunc(list, func(d api.Dispatch) bool { return d.Run != "" })
		return list[:min(listed, len(list))], err
	}
}
