package orchestrator

import (
	"context"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Tasks counts the tasks of the runs that are not settled, by their state.
func (o *Orchestrator) Tasks(ctx context.Context) (map[api.TaskState]int, error) {
	return ask(ctx, o, func(e *engine) map[api.TaskState]int {
		all := map[api.TaskState]int{}
		for _, r := range e.runs {
			for state, n := range r.counts {
				if n > 0 {
					all[state] += n
				}
			}
		}
		return all
	})
}
