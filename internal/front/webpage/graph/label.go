package graph

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
)

const (
	labelWidth = 23 // characters that fit in a node, of its name
	subWidth   = 27 // and of the smaller line below
)

// urgency orders the states by how much they need a reader.
func urgency(s api.TaskState) int {
	return slices.Index([]api.TaskState{
		api.TaskFailed, api.TaskDenied, api.TaskWaiting, api.TaskRunning, api.TaskGrowing,
		api.TaskReady, api.TaskPending, api.TaskCancelled, api.TaskSkipped, api.TaskDone,
	}, s)
}

// stateOf is the state of a vertex: that of its task, or of tasks that look alike the
// most urgent.
func stateOf(tasks []Task, v *vertex) api.TaskState {
	if v.kind != KindAlike {
		return tasks[v.members[0]].State
	}
	return mostUrgent(tasks, v.members)
}

func mostUrgent(tasks []Task, members []int) api.TaskState {
	state := tasks[members[0]].State
	for _, i := range members {
		if s := tasks[i].State; urgency(s) < urgency(state) {
			state = s
		}
	}
	return state
}

func count(tasks []Task, members []int) map[api.TaskState]int {
	counts := map[api.TaskState]int{}
	for _, i := range members {
		counts[tasks[i].State]++
	}
	return counts
}

// CountsText lists how many tasks are in which state, the most urgent first.
func CountsText(counts map[api.TaskState]int) string {
	var list []string
	states := api.TaskStates()
	slices.SortFunc(states, func(a, b api.TaskState) int { return urgency(a) - urgency(b) })
	for _, s := range states {
		if n := counts[s]; n > 0 {
			list = append(list, fmt.Sprintf("%d %s", n, s))
		}
	}
	return strings.Join(list, ", ")
}

// node is the node of a vertex.
func (d *drawing) node(at int) Node {
	v := &d.list[at]
	t := &d.tasks[v.members[0]]
	n := Node{
		Key: v.key, Kind: v.kind, Task: t.ID, Tasks: v.members, Column: d.column[at],
		State: d.states[at], Traced: d.traced[at], Counts: count(d.tasks, v.members),
	}
	label, sub := string(t.ID), string(t.State)
	switch v.kind {
	case KindGrowth:
		grown := count(d.tasks, v.members[1:])
		sub = fmt.Sprintf("%s, %d grown", t.State, len(v.members)-1)
		n.Title = fmt.Sprintf("task %s is %s; tasks that grew from it: %s", label, t.State, CountsText(grown))
	case KindAlike:
		label = fmt.Sprintf("%d × %s", len(v.members), t.Subagent)
		sub = CountsText(n.Counts)
		n.Title = fmt.Sprintf("%d tasks of subagent %s with the same dependencies, %s and others: %s", len(v.members), t.Subagent, t.ID, sub)
	default:
		n.Title = fmt.Sprintf("task %s, subagent %s, is %s", label, t.Subagent, t.State)
		if t.Subagent == "" {
			n.Title = fmt.Sprintf("task %s is %s", label, t.State)
		}
	}
	n.Label, n.Sub = cuttext.Characters(label, labelWidth), cuttext.Characters(sub, subWidth)
	return n
}

// rest is the node of the vertices that are not shown.
func (d *drawing) rest(vertices []int, column int) Node {
	n := Node{Kind: KindRest, Column: column}
	for _, v := range vertices {
		n.Tasks = append(n.Tasks, d.list[v].members...)
	}
	d.Folded = true
	n.Counts, n.State = count(d.tasks, n.Tasks), mostUrgent(d.tasks, n.Tasks)
	n.Task = d.tasks[n.Tasks[0]].ID
	label, sub := fmt.Sprintf("%d more tasks", len(n.Tasks)), CountsText(n.Counts)
	n.Title = fmt.Sprintf("%d tasks that are not drawn: %s", len(n.Tasks), sub)
	n.Label, n.Sub = cuttext.Characters(label, labelWidth), cuttext.Characters(sub, subWidth)
	return n
}
