package runverbs

import (
	"github.com/bailiwick-dev/bailiwick/api"
)

// edges returns the dependencies of each task and its dependents, by number.
func edges(tasks []api.RunTask) (after, dependents [][]int32) {
	number := make(map[api.TaskID]int32, len(tasks))
	for i := range tasks {
		number[tasks[i].Task] = int32(i) //nolint:gosec // G115: a plan has at most 10,000 tasks
	}
	after, dependents = make([][]int32, len(tasks)), make([][]int32, len(tasks))
	for i := range tasks {
		for _, id := range tasks[i].After {
			if up, ok := number[id]; ok {
				after[i] = append(after[i], up)
				dependents[up] = append(dependents[up], int32(i)) //nolint:gosec // G115: as above
			}
		}
	}
	return after, dependents
}

// inOrder returns the numbers of the tasks in topological order, else in the order
// of the plan. Tasks of a cycle, which no valid plan has, are left out.
func inOrder(tasks []api.RunTask) []int32 {
	after, dependents := edges(tasks)
	open := make([]int, len(tasks))
	var order []int32
	for i := range tasks {
		if open[i] = len(after[i]); open[i] == 0 {
			order = append(order, int32(i)) //nolint:gosec // G115: as in edges
		}
	}
	for next := 0; next < len(order); next++ {
		for _, down := range dependents[order[next]] {
			if open[down]--; open[down] == 0 {
				order = append(order, down)
			}
		}
	}
	return order
}
