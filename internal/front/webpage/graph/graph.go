// Package graph draws the tasks of a run as a layered graph, from left to right: a
// column is the earliest that a task can start. Layout is a pure function of the tasks
// and their dependencies, so a task stands in the same place from before the run starts
// to its end; states only choose colours and, in large runs, what is shown.
//
// Tasks that grew from a task are part of its node, and many tasks of one subagent with
// the same dependencies and dependents are one node, until the reader opens it. Above
// MaxShown nodes a picture has what failed, waits or runs, with one hop around it; the
// rest of a column is one node.
//
// What it draws was written by others: its work is bounded by the number of tasks and
// dependencies, whatever they are, and it reads and keeps nothing but a cache of layouts.
package graph

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Task is a task as the drawing needs it.
type Task struct {
	ID       api.TaskID
	After    []api.TaskID // what it depends on, each in the same list
	GrewFrom api.TaskID   // the task that it grew from
	Subagent api.Name
	State    api.TaskState
}

// Kind says what a node stands for.
type Kind string

// The kinds.
const (
	KindTask   Kind = "task"   // one task
	KindGrowth Kind = "growth" // a task, and those that grew from it
	KindAlike  Kind = "alike"  // tasks of one subagent with the same dependencies and dependents
	KindRest   Kind = "rest"   // the tasks of one or several columns that are not shown
)

const (
	// MaxShown is how many nodes are drawn with nothing left out.
	MaxShown = 2000
	// manyAlike is how many tasks that look alike become one node.
	manyAlike = 12
	// fewAlike is the same in a graph of more than MaxShown nodes.
	fewAlike = 4
)

// alikeSuffix ends the key of a node of KindAlike, after the id of its first task. No
// task id has a colon.
const alikeSuffix = ":alike"

// vertex is a node before it has a place.
type vertex struct {
	key     string
	kind    Kind
	members []int // indices of tasks, the first gives it its name
	after   []int // vertices that it depends on, ascending
	before  []int // vertices that depend on it, ascending
	grew    int   // the opened vertex that it grew from, or -1
}

// fold makes the vertices of tasks. open has the keys of the nodes that are drawn as
// their parts.
func fold(tasks []Task, open map[string]bool) ([]vertex, error) {
	index := make(map[api.TaskID]int, len(tasks))
	for i := range tasks {
		if _, duplicate := index[tasks[i].ID]; duplicate {
			return nil, fmt.Errorf("graph: duplicate task %.150q", tasks[i].ID)
		}
		index[tasks[i].ID] = i
	}
	// owner is the task whose vertex a task is part of. What grew comes after the
	// task that it grew from.
	owner := make([]int, len(tasks))
	place := make([]int, len(tasks))
	var list []vertex
	for i := range tasks {
		t := &tasks[i]
		owner[i] = i
		grew := -1
		if t.GrewFrom != "" {
			from, ok := index[t.GrewFrom]
			if !ok || from >= i {
				return nil, fmt.Errorf("graph: task %.150q grew from %.150q, which is not before it", t.ID, t.GrewFrom)
			}
			if owner[i] = owner[from]; open[string(t.GrewFrom)] && owner[from] == from {
				owner[i], grew = i, place[from]
			}
		}
		if owner[i] == i {
			place[i] = len(list)
			list = append(list, vertex{key: string(t.ID), kind: KindTask, members: []int{i}, grew: grew})
			continue
		}
		v := &list[place[owner[i]]]
		v.kind, v.members = KindGrowth, append(v.members, i)
	}
	for i := range tasks {
		at := place[owner[i]]
		for _, id := range tasks[i].After {
			dep, ok := index[id]
			if !ok {
				return nil, fmt.Errorf("graph: task %.150q depends on %.150q, which is not a task", tasks[i].ID, id)
			}
			if on := place[owner[dep]]; on != at || dep == i { // a task after itself stays a cycle
				list[at].after = append(list[at].after, on)
			}
		}
		if grew := list[at].grew; grew >= 0 && owner[i] == i {
			list[at].after = append(list[at].after, grew)
		}
	}
	link(list)
	return alike(tasks, list, open), nil
}

// link sorts the dependencies and derives the dependents.
func link(list []vertex) {
	for i := range list {
		list[i].before = nil
	}
	for i := range list {
		slices.Sort(list[i].after)
		list[i].after = slices.Compact(list[i].after)
		for _, on := range list[i].after {
			list[on].before = append(list[on].before, i)
		}
	}
}

// alike joins vertices that have the same subagent, dependencies and dependents.
func alike(tasks []Task, list []vertex, open map[string]bool) []vertex {
	least := manyAlike
	if len(list) > MaxShown {
		least = fewAlike
	}
	groups := map[string][]int{}
	names := make([]string, len(list))
	for i := range list {
		v := &list[i]
		names[i] = v.likeness(tasks[v.members[0]].Subagent)
		groups[names[i]] = append(groups[names[i]], i)
	}
	into := make([]int, len(list)) // new place
	var out []vertex
	for i := range list {
		group := groups[names[i]]
		key := list[group[0]].key + alikeSuffix
		switch {
		case len(group) < least || open[key]:
			into[i] = len(out)
			out = append(out, list[i])
		case group[0] == i:
			into[i] = len(out)
			out = append(out, vertex{key: key, kind: KindAlike, members: slices.Clone(list[i].members), after: list[i].after, grew: list[i].grew})
		default:
			into[i] = into[group[0]]
			g := &out[into[i]]
			g.members = append(g.members, list[i].members...)
		}
	}
	for i := range out {
		v := &out[i]
		after := make([]int, len(v.after))
		for k, on := range v.after {
			after[k] = into[on]
		}
		if v.after = after; v.grew >= 0 {
			v.grew = into[v.grew]
		}
	}
	link(out)
	return out
}

// likeness is equal for vertices that look alike.
func (v *vertex) likeness(subagent api.Name) string {
	b := append([]byte(subagent), 0)
	b = binary.AppendVarint(b, int64(v.grew))
	b = binary.AppendVarint(b, int64(len(v.after)))
	for _, i := range slices.Concat(v.after, v.before) {
		b = binary.AppendVarint(b, int64(i))
	}
	return string(b)
}

// layers returns the column of each vertex: the length of the longest path to it.
func layers(list []vertex) ([]int, error) {
	column, open := make([]int, len(list)), make([]int, len(list))
	queue := make([]int, 0, len(list))
	for i := range list {
		if open[i] = len(list[i].after); open[i] == 0 {
			queue = append(queue, i)
		}
	}
	for at := 0; at < len(queue); at++ {
		for _, next := range list[queue[at]].before {
			column[next] = max(column[next], column[queue[at]]+1)
			if open[next]--; open[next] == 0 {
				queue = append(queue, next)
			}
		}
	}
	if len(queue) < len(list) {
		i := slices.IndexFunc(open, func(n int) bool { return n > 0 })
		return nil, fmt.Errorf("graph: the dependencies of %.150q form a cycle", list[i].key)
	}
	return column, nil
}

const (
	// manyEdges is from how many dependencies on those are left out that follow from
	// others.
	manyEdges = 4000
	// maxReach bounds the memory of finding them, in words of 64 bits.
	maxReach = 4 << 20
)

// edge is a dependency that is drawn.
type edge struct{ from, to int }

// drawn returns the dependencies to draw: all, or in a dense graph those that do not
// follow from others.
func drawn(list []vertex, column []int) []edge {
	var edges []edge
	for i := range list {
		for _, on := range list[i].after {
			edges = append(edges, edge{on, i})
		}
	}
	words := (len(list) + 63) / 64
	if len(edges) <= manyEdges || words*len(list) > maxReach {
		return edges
	}
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(column[a], column[b]) })
	reach := make([]uint64, words*len(list)) // all that a vertex depends on
	edges = edges[:0]
	for _, i := range order {
		row := reach[i*words : (i+1)*words]
		after := slices.Clone(list[i].after)
		// The nearest first: what they depend on need not be drawn.
		slices.SortStableFunc(after, func(a, b int) int { return cmp.Compare(column[b], column[a]) })
		for _, on := range after {
			if row[on/64]>>(on%64)&1 == 1 {
				continue
			}
			edges = append(edges, edge{on, i})
			for w, bits := range reach[on*words : (on+1)*words] {
				row[w] |= bits
			}
			row[on/64] |= 1 << (on % 64)
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.to, b.to), cmp.Compare(a.from, b.from)) })
	return edges
}
