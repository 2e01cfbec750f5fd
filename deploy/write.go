package deploy

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/catalog"
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

// people reads a list of different people.
func (r *reader) people(n *yaml.Node, what string) (list []api.Principal) {
	for i, p := range r.principals(n, what) {
		switch {
		case p == "":
		case !p.Person():
			r.At(n, "%s[%d]: %s is not a person; only local: and human: principals approve", what, i, p)
		case slices.ContainsFunc(list, p.SamePerson) && !slices.Contains(list, p): // principals refuses the same one
			r.At(n, "%s[%d]: %s is taken for another one of the list: a person approves once", what, i, p)
		}
		list = append(list, p)
	}
	return list
}

// checkWrites refuses a rule that no people can meet.
func (r *reader) checkWrites(d *decl, v api.Grant) {
	w := v.Writes
	if w == nil || len(w.By) == 0 || v.Principal == "" {
		return
	}
	others := slices.DeleteFunc(slices.Clone(w.By), v.Principal.SamePerson)
	if len(others) < w.Needs() {
		r.At(d.at("writes"), "writes: wants %d to approve, but lists %d beside %s, who submits: another person always approves", w.Needs(), len(others), v.Principal)
	}
}

// looserWrites describes a change of a rule that lets more be written, or by other
// people; empty if none does.
func looserWrites(of api.Principal, old, now *api.WriteRule) string {
	if old == nil {
		return ""
	}
	if now == nil {
		return fmt.Sprintf("tasks of %s write without the approval of %s", of, nameList(old.By))
	}
	if added := missing(now.By, old.By); len(added) > 0 {
		return fmt.Sprintf("%s may approve what tasks of %s write", nameList(added), of)
	}
	if now.Needs() < old.Needs() {
		return fmt.Sprintf("what tasks of %s write needs %d approvals, was %d", of, now.Needs(), old.Needs())
	}
	if now.Expiry() > old.Expiry() {
		return fmt.Sprintf("what tasks of %s write may be approved for %s, was %s", of, limitText(now.Expiry()), limitText(old.Expiry()))
	}
	return ""
}

// writeRule is the rule of a principal in a set, and how many grants it has; the rule is
// nil without one.
func writeRule(set *catalog.Set, of api.Principal) (rule *api.WriteRule, grants int) {
	for _, name := range slices.Sorted(maps.Keys(set.Grants)) {
		if g := set.Grants[name]; g.Principal == of {
			rule, grants = rule.And(g.Writes), grants+1
		}
	}
	return rule, grants
}

// rewritten calls report for each principal that has grants before and after, with its
// rules and the first of its grants that has another rule than before.
func rewritten(before, after *catalog.Set, report func(ref api.Ref, of api.Principal, old, now *api.WriteRule)) {
	done := map[api.Principal]bool{}
	for _, changed := range []bool{true, false} {
		for _, name := range slices.Sorted(maps.Keys(after.Grants)) {
			g := after.Grants[name]
			if done[g.Principal] || changed && reflect.DeepEqual(before.Grants[name].Writes, g.Writes) {
				continue
			}
			done[g.Principal] = true
			old, had := writeRule(before, g.Principal)
			if now, _ := writeRule(after, g.Principal); had > 0 {
				report(api.RefTo(api.KindGrant, name), g.Principal, old, now)
			}
		}
	}
}

// writes adds the principals whose tasks write with the approval of others, or of fewer.
func (w *widening) writes() {
	rewritten(w.before, w.after, func(ref api.Ref, of api.Principal, old, now *api.WriteRule) {
		if text := looserWrites(of, old, now); text != "" {
			w.add(ref, "%s", text)
		}
	})
}

// writes adds the principals whose tasks wait for people, or for more, before they write.
func (n *narrowing) writes() {
	rewritten(n.before, n.after, func(ref api.Ref, of api.Principal, old, now *api.WriteRule) {
		if text := looserWrites(of, now, old); text != "" { // the way back
			n.add(ref, "tasks of %s whose subagent has the effect write wait for %d of %s to approve them", of, now.Needs(), nameList(now.By))
		}
	})
}
