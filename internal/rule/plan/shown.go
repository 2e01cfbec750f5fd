package plan

import "slices"

// Shown are the tasks whose dispatches give the products that an approval task shows, in
// the order of the plan: of a for_each its tasks, and of a gate also the last fix.
func (p *Plan) Shown(i int) []int32 {
	var out []int32
	from := p.Deps(i)
	if a := p.Tasks[i].Approval; a != nil && len(a.Show) > 0 {
		from = nil
		for _, id := range a.Show {
			if d, ok := p.Index(id); ok {
				from = append(from, int32(d)) //nolint:gosec // G115: bounded by api.MaxPlanTasks
			}
		}
	}
	for _, d := range from {
		out = givers(p, out, int32(i), d) //nolint:gosec // G115: likewise
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// givers appends the tasks whose dispatches give what task i is shown of task d.
func givers(p *Plan, out []int32, i, d int32) []int32 {
	switch t := &p.Tasks[d]; {
	case t.ForEach != nil:
		for _, c := range p.Children(int(d)) {
			out = givers(p, out, i, c)
		}
		return out
	case t.Quorum != nil:
		for _, c := range p.Children(int(d)) {
			if p.Tasks[c].Approval == nil {
				out = append(out, c)
			}
		}
		return out
	case t.Approval != nil:
		return out
	}
	return append(out, d, p.Giver(i, d))
}
