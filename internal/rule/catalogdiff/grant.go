package catalogdiff

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
)

// budgetText describes a change of a budget that lets more be spent; empty if none does.
func budgetText(old, now *api.Budget) string {
	if old == nil {
		return ""
	}
	if now == nil {
		return "budget removed"
	}
	was, is := old.Limit(), now.Limit()
	switch {
	case old.Per != now.Per:
		return fmt.Sprintf("budget per %s, was per %s", now.Per, old.Per)
	case was.Cost > 0 && was.Currency != is.Currency:
		return fmt.Sprintf("budget cost: was %s", was.Of("cost"))
	}
	for _, name := range api.SpendNames() {
		switch before, after := was.Member(name), is.Member(name); {
		case before == 0:
		case after == 0:
			return fmt.Sprintf("budget of %s removed, was %s", name, was.Of(name))
		case after > before:
			return fmt.Sprintf("raised budget of %s: %s, was %s", name, is.Of(name), was.Of(name))
		}
	}
	return ""
}

// lostBudgets adds the budgets of removed grants whose dispatches other grants allow.
func (w *widening) lostBudgets() {
	for _, name := range slices.Sorted(maps.Keys(w.before.Grants)) {
		g := w.before.Grants[name]
		if _, has := w.after.Grants[name]; has || g.Budget == nil {
			continue
		}
		for _, other := range slices.Sorted(maps.Keys(w.after.Grants)) {
			o := w.after.Grants[other]
			if o.Principal == g.Principal && slices.ContainsFunc(g.Subagents, func(n api.Name) bool { return slices.Contains(o.Subagents, n) }) {
				w.add(api.RefTo(api.KindGrant, other), "budget of %s removed with grant %q", g.Principal, name)
			}
		}
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
