package plan

import (
	"github.com/bailiwick-dev/bailiwick/api"
)

// Influences are the tasks whose content decided that task i runs, sorted: those that a
// condition reads, the checks of a gate and the voters of a quorum that had to pass, and
// those that the list of a for_each is from, of task i and of every task that had to run
// before it. Together with its needs and the source of its item they are all that taints
// a task when it begins: the engine and the verifier both take them from here.
//
// That a task without any of these is done decides nothing but the order, and what people
// decide is their own: neither is an influence.
func (p *Plan) Influences(i int) (all []int32) {
	for n := 0; ; n++ {
		if n == len(p.Tasks) {
			return nil // most plans have none: each task runs once those before it are done
		}
		if t := &p.Tasks[n]; t.When != nil || t.Gate != nil || t.Quorum != nil || t.ForEach != nil {
			break
		}
	}
	v := influences{p: p, seen: make([]bool, len(p.Tasks)), had: make([]bool, len(p.Tasks))}
	v.ran(int32(i)) //nolint:gosec // G115: below MaxRunTasks
	for n, seen := range v.seen {
		if seen {
			all = append(all, int32(n)) //nolint:gosec // G115: likewise
		}
	}
	return all
}

// influences is one search for those of a task.
type influences struct {
	p    *Plan
	seen []bool // the influences
	had  []bool // tasks that had to run
	work []int32
}

// ran adds what decided that a task runs, and that those before it did.
func (v *influences) ran(first int32) {
	for v.work = []int32{first}; len(v.work) > 0; {
		i := v.work[len(v.work)-1]
		v.work = v.work[:len(v.work)-1]
		if v.had[i] {
			continue
		}
		v.had[i] = true
		v.one(i)
	}
}

func (v *influences) one(i int32) {
	p, t := v.p, &v.p.Tasks[i]
	if t.When != nil {
		v.seen[int32(p.index[t.When.Task])] = true //nolint:gosec // G115: below MaxRunTasks
	}
	if up := p.parent[i]; up >= 0 {
		v.work = append(v.work, up)
		if from := p.ItemFrom(int(i)); from >= 0 {
			v.seen[int32(from)] = true //nolint:gosec // G115: likewise
		}
		if p.Tasks[up].Gate != nil && p.Tasks[up].ForEach == nil { // the verdicts before it
			for _, other := range p.children[up] {
				if other < i {
					v.seen[other] = true
				}
			}
		}
	}
	for _, d := range p.deps[i] {
		if t.After != api.AfterAny || decides(t, p.Tasks[d].ID) || needs(t, p.Tasks[d].ID) {
			v.work = append(v.work, d) // what decided that it runs, and so has a product, decides about t
		}
		v.ended(d)
		if f := p.Tasks[d].ForEach; f != nil && f.From != "" && needs(t, p.Tasks[d].ID) {
			v.seen[int32(p.index[f.From])] = true //nolint:gosec // G115: likewise
		}
	}
}

// ended adds what decided that a task is done, apart from itself: the verdicts about it.
func (v *influences) ended(d int32) {
	t := &v.p.Tasks[d]
	for _, child := range v.p.children[d] {
		if t.ForEach != nil {
			v.ended(child)
		} else {
			v.seen[child] = true
		}
	}
}

// needs reports whether a task takes a product of another.
func needs(t *api.PlanTask, from api.TaskID) bool {
	for _, n := range t.Needs {
		if n.From == from {
			return true
		}
	}
	return false
}
