package cli

import (
	"github.com/bailiwick-dev/bailiwick/api"
)

// edges are the dependencies among tasks, by their numbers.
func edges(tasks []api.RunTask) (after, before [][]int32) {
	number := make(map[api.TaskID]int32, len(tasks))
	for i := range tasks {
		number[tasks[i].Task] = int32(i) //nolint:gosec // G115: a plan has at most 10,000 tasks
	}
	after, before = make([][]int32, len(tasks)), make([][]int32, len(tasks))
	for i := range tasks {
		for _, id := range tasks[i].After {
			if up, ok := number[id]; ok {
				after[i] = append(after[i], up)
				before[up] = append(before[up], int32(i)) //nolint:gosec // G115: as above
			}
		}
	}
	return after, before
}

// inOrder returns the numbers of the tasks, each behind all that it depends on,
// else as they are in the plan. What is in a cycle, as no plan has one, is not
// among them.
func inOrder(tasks []api.RunTask) []int32 {
	after, before := edges(tasks)
	open := make([]int, len(tasks))
	var order []int32
	for i := range tasks {
		if open[i] = len(after[i]); open[i] == 0 {
			order = append(order, int32(i)) //nolint:gosec // G115: as in edges
		}
	}
	for next := 0; next < len(order); next++ {
		for _, down := range before[order[next]] {
			if open[down]--; open[down] == 0 {
				order = append(order, down)
			}
		}
	}
	return order
}
