package plan

import "github.com/bailiwick-dev/bailiwick/api"

// Offspring counts how the tasks stand that grew from a task. The engine and the verifier
// count by it.
type Offspring struct {
	Open, Done, Cancelled int
	Lost                  int // settled, and neither done nor cancelled
}

// Settle counts a task that has settled, and was open.
func (o *Offspring) Settle(state api.TaskState) {
	o.Open--
	switch state { //nolint:exhaustive // it has settled
	case api.TaskDone:
		o.Done++
	case api.TaskCancelled:
		o.Cancelled++
	default:
		o.Lost++
	}
}

// ForEachEnd returns how a task with a for_each ends by what grew from it, unless it is
// cancelled itself. It is growing while any of them is open.
func (o *Offspring) ForEachEnd() api.TaskState {
	switch {
	case o.Open > 0:
		return api.TaskGrowing
	case o.Lost > 0:
		return api.TaskFailed
	case o.Cancelled > 0:
		return api.TaskCancelled
	}
	return api.TaskDone
}
