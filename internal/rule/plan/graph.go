package plan

import (
	"container/heap"
	"fmt"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// lists are many lists of task indices in one array: the i-th is
// all[start[i]:start[i+1]].
type lists struct {
	start []int32
	all   []int32
}

func (l lists) at(i int) []int32 {
	return l.all[l.start[i]:l.start[i+1]:l.start[i+1]]
}

// split returns the lists one by one. An append to one of them copies it.
func (l lists) split() [][]int32 {
	out := make([][]int32, len(l.start)-1)
	for i := range out {
		out[i] = l.at(i)
	}
	return out
}

// graph is the dependencies between tasks, by their indices.
type graph struct {
	index      map[api.TaskID]int
	deps       lists
	dependents lists
	order      []int32
}

// reversed returns the lists of the opposite direction.
func (l lists) reversed() lists {
	n := len(l.start) - 1
	t := lists{start: make([]int32, n+1), all: make([]int32, len(l.all))}
	for _, to := range l.all {
		t.start[to+1]++
	}
	for i := range n {
		t.start[i+1] += t.start[i]
	}
	next := slices.Clone(t.start)
	for from := range n {
		for _, to := range l.at(from) {
			t.all[next[to]] = int32(from) //nolint:gosec // G115: below MaxPlanTasks
			next[to]++
		}
	}
	return t
}

// ready is a heap of tasks, the first in the plan on top.
type ready []int32

func (r ready) Len() int           { return len(r) }
func (r ready) Less(i, j int) bool { return r[i] < r[j] }
func (r ready) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *ready) Push(x any)        { *r = append(*r, x.(int32)) } //nolint:forcetypeassert // only Push of sort is called
func (r *ready) Pop() any {
	last := len(*r) - 1
	x := (*r)[last]
	*r = (*r)[:last]
	return x
}

// sort orders the tasks topologically. Tasks on a cycle, and those that depend on
// them, are missing from the order.
func (g *graph) sort() {
	n := len(g.deps.start) - 1
	open := make([]int, n)
	var next ready
	for i := range n {
		open[i] = len(g.deps.at(i))
		if open[i] == 0 {
			next = append(next, int32(i)) //nolint:gosec // G115: below MaxPlanTasks
		}
	}
	g.order = make([]int32, 0, n)
	for len(next) > 0 {
		i := heap.Pop(&next).(int32) //nolint:forcetypeassert // a heap of ready
		g.order = append(g.order, i)
		for _, d := range g.dependents.at(int(i)) {
			if open[d]--; open[d] == 0 {
				heap.Push(&next, d)
			}
		}
	}
}

// cycles returns one shortest cycle of each strongly connected component, beginning
// with its first task in the plan.
func (g *graph) cycles() [][]int32 {
	n := len(g.deps.start) - 1
	set := g.components()
	size := make([]int, n)
	for _, c := range set {
		size[c]++
	}
	var all [][]int32
	from := make([]int32, n)
	for i := range from {
		from[i] = -1
	}
	done := make([]bool, n)
	for i := range n {
		if c := set[i]; size[c] > 1 && !done[c] {
			done[c] = true
			all = append(all, g.cycleThrough(int32(i), set, from)) //nolint:gosec // G115: below MaxPlanTasks
		}
	}
	return all
}

// cycleThrough is the shortest cycle through a task within its component.
func (g *graph) cycleThrough(first int32, set, from []int32) []int32 {
	queue := []int32{first}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, d := range g.deps.at(int(at)) {
			if d == first {
				cycle := []int32{first}
				for ; at != first; at = from[at] {
					cycle = append(cycle, at)
				}
				cycle = append(cycle, first)
				slices.Reverse(cycle)
				return cycle
			}
			if set[d] == set[first] && from[d] < 0 {
				from[d] = at
				queue = append(queue, d)
			}
		}
	}
	return nil // not reached: the component is strongly connected
}

// components numbers the strongly connected components, by Tarjan's algorithm with
// an explicit stack.
func (g *graph) components() []int32 {
	n := int32(len(g.deps.start) - 1) //nolint:gosec // G115: at most MaxPlanTasks
	set, low, number, next := make([]int32, n), make([]int32, n), make([]int32, n), make([]int32, n)
	for i := range set {
		set[i] = -1
	}
	var calls, open []int32
	var numbers, sets int32
	for root := range n {
		if number[root] > 0 {
			continue
		}
		calls = append(calls, root)
		for len(calls) > 0 {
			v := calls[len(calls)-1]
			if number[v] == 0 {
				numbers++
				number[v], low[v] = numbers, numbers
				open = append(open, v)
			}
			deps := g.deps.at(int(v))
			if int(next[v]) < len(deps) {
				w := deps[next[v]]
				next[v]++
				if number[w] == 0 {
					calls = append(calls, w)
				} else if set[w] < 0 {
					low[v] = min(low[v], number[w])
				}
				continue
			}
			calls = calls[:len(calls)-1]
			if len(calls) > 0 {
				up := calls[len(calls)-1]
				low[up] = min(low[up], low[v])
			}
			if low[v] != number[v] {
				continue
			}
			for w := int32(-1); w != v; {
				w = open[len(open)-1]
				open = open[:len(open)-1]
				set[w] = sets
			}
			sets++
		}
	}
	return set
}

// maxShown is how many tasks are shown at each end of a long cycle.
const maxShown = 50

// cycleText writes a cycle as a -> b -> a, where a depends on b.
func cycleText(tasks []api.PlanTask, cycle []int32) string {
	ids := make([]string, 0, len(cycle))
	for _, i := range cycle {
		ids = append(ids, string(tasks[i].ID))
	}
	if left := len(ids) - 2*maxShown; left > 1 {
		ids = slices.Concat(ids[:maxShown], []string{fmt.Sprintf("(%d more)", left)}, ids[len(ids)-maxShown:])
	}
	return strings.Join(ids, " -> ")
}
