package policy

import "github.com/bailiwick-dev/bailiwick/api"

// Writes returns who has to approve what a task of principal is to write, before it
// starts; nil: nobody. The rules of all its grants apply, whichever of them allows the
// task: only those whom each lists may approve, as many as the strictest one wants, in
// the shortest time. Rules that no people can meet let nothing start.
func (e *Engine) Writes(principal api.Principal, effect api.Effect) *api.WriteRule {
	if effect != api.EffectWrite {
		return nil
	}
	var rule *api.WriteRule
	for _, g := range e.of[principal] {
		rule = rule.And(g.Writes)
	}
	return rule
}
