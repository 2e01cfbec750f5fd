package plan

import (
	"encoding/json"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
)

// readReuse reads "never" or {"max_age": DURATION}.
func readReuse(r *reader, path string, raw json.RawMessage) *api.ReusePolicy {
	if raw[0] != '{' {
		if string(raw) != `"never"` {
			r.shape(path, `want "never" or {"max_age": DURATION}, got %s`, kind(raw))
		}
		return &api.ReusePolicy{Never: true}
	}
	p := &api.ReusePolicy{}
	members := r.object(path, raw, readers{
		"max_age": func(path string, raw json.RawMessage) { p.MaxAge = r.duration(path, raw) },
	})
	r.require(path, members, "max_age")
	return p
}

// Reuse returns what results of earlier dispatches a task may be done with; nil allows
// all. A run can be submitted with never, and a task that a retry was asked to run again
// runs. The reviewers of a quorum decide on their own.
func (p *Plan) Reuse(i int, never bool, again []api.TaskID) *api.ReusePolicy {
	for at := int32(i); at >= 0; at = p.parent[at] { //nolint:gosec // G115: below MaxPlanTasks
		t := &p.Tasks[at]
		never = never || t.Quorum != nil || slices.Contains(again, t.ID)
	}
	if never {
		return &api.ReusePolicy{Never: true}
	}
	return p.Tasks[i].Reuse
}
