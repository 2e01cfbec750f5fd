package deploy

import (
	"slices"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
)

// maxWriteTimeout is how long people may have to approve a task, as in a plan.
const maxWriteTimeout = api.Duration(90 * 24 * time.Hour)

// writes reads who approves the tasks of a grant's principal before they write.
func (r *reader) writes(n *yaml.Node, what string) *api.WriteRule {
	v, before := &api.WriteRule{}, r.Len()
	r.Fields(n, what, map[string]func(*yaml.Node){
		"by":      func(n *yaml.Node) { v.By = r.people(n, what+".by") },
		"count":   func(n *yaml.Node) { v.Count = r.Count(n, what+".count") },
		"timeout": func(n *yaml.Node) { r.Scalar(n, what+".timeout", &v.Timeout) },
	})
	switch {
	case r.Len() > before:
	case len(v.By) == 0:
		r.At(n, "%s: the key \"by\" is missing; name the people who approve, such as by: [human:ann]", what)
	case len(v.By) > api.MaxVoters:
		r.At(n, "%s.by: %d people, the limit is %d", what, len(v.By), api.MaxVoters)
	case v.Timeout > maxWriteTimeout:
		r.At(n, "%s.timeout: at most %s", what, time.Duration(maxWriteTimeout))
	}
	return v
}

// checkWrites refuses a rule that no people can meet.
func checkWrites(r *parser, d *decl, v api.Grant) {
	w := v.Writes
	if w == nil || len(w.By) == 0 || v.Principal == "" {
		return
	}
	others := slices.DeleteFunc(slices.Clone(w.By), v.Principal.SamePerson)
	if len(others) < w.Needs() {
		r.At(d.at("writes"), "writes: %d approvals are required, but only %d of the listed people can give one: %s submits and cannot approve", w.Needs(), len(others), v.Principal)
	}
}
