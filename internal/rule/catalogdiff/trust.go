package catalogdiff

import (
	"fmt"
	"maps"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
)

// taintedWrites adds the trusted servers that a role can write once its dispatch has read
// text of an untrusted one: the next dispatch reads what it wrote as trusted.
func (w *widening) taintedWrites() {
	had := map[string]bool{}
	eachTaintedWrite(w.before, func(_ api.Ref, what string) { had[what] = true })
	eachTaintedWrite(w.after, func(ref api.Ref, what string) {
		if !had[what] {
			w.add(ref, "%s", what)
		}
	})
}

// eachTaintedWrite calls report for each tool of a trusted server that has an effect, and
// each role that has it and can be tainted by a tool of its own. Any role can be tainted
// by what another task hands it, which no catalog shows.
func eachTaintedWrite(s *catalog.Set, report func(ref api.Ref, what string)) {
	from := map[api.Name]string{} // by role: an untrusted tool of it
	names := slices.Sorted(maps.Keys(s.Tools))
	for _, name := range names {
		if v := s.Tools[name]; !v.Trusted {
			for _, a := range v.Allow {
				for _, role := range a.Roles {
					if from[role] == "" {
						from[role] = catalog.ToolID(name, a.Tool)
					}
				}
			}
		}
	}
	for _, name := range names {
		v := s.Tools[name]
		if !v.Trusted {
			continue
		}
		for _, a := range v.Allow {
			if a.Tier == api.Observe || a.Tainted == api.TaintedForbid {
				continue
			}
			with := "with an approval"
			if a.Tier < api.Stateful && a.Approval == nil {
				with = "without an approval"
			}
			for _, role := range a.Roles {
				if from[role] != "" {
					report(api.RefTo(api.KindTool, name), fmt.Sprintf("role %s can call %s %s after it read %s, and what it writes there is read as trusted",
						role, catalog.ToolID(name, a.Tool), with, from[role]))
				}
			}
		}
	}
}
