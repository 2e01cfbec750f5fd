package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/cron"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
)

func (r *reader) schedule(d *decl, what string) {
	var v api.Schedule
	r.Fields(d.node, what, map[string]func(*yaml.Node){
		"name":          d.in("name", func(n *yaml.Node) { v.Name = r.Name(n, "name") }),
		"description":   func(n *yaml.Node) { v.Description = r.Line(n, "description") },
		"cron":          d.in("cron", func(n *yaml.Node) { v.Cron = strings.Join(strings.Fields(r.Line(n, "cron")), " ") }),
		"zone":          d.in("zone", func(n *yaml.Node) { v.Zone = r.Line(n, "zone") }),
		"plan":          d.in("plan", func(n *yaml.Node) { v.Plan = r.file(d, n, "plan") }),
		"set":           d.in("set", func(n *yaml.Node) { v.Set = r.values(n) }),
		"principal":     d.in("principal", func(n *yaml.Node) { r.Scalar(n, "principal", &v.Principal) }),
		"overlap":       d.in("overlap", func(n *yaml.Node) { r.Scalar(n, "overlap", &v.Overlap) }),
		"catchUp":       d.in("catchUp", func(n *yaml.Node) { r.Scalar(n, "catchUp", &v.CatchUp) }),
		"catchUpWithin": d.in("catchUpWithin", func(n *yaml.Node) { r.Scalar(n, "catchUpWithin", &v.CatchUpWithin) }),
		"jitter":        d.in("jitter", func(n *yaml.Node) { r.Scalar(n, "jitter", &v.Jitter) }),
		"pause":         func(n *yaml.Node) { v.Pause = r.Bool(n, "pause") },
	})
	if d.node.Kind == yaml.MappingNode {
		for _, key := range []string{"cron", "zone", "plan", "principal"} {
			if d.pos[key] == nil {
				r.At(d.node, "%s: the key %q is missing", what, key)
			}
		}
		checkSchedule(&r.parser, d, v)
	}
	r.declare(d, api.KindSchedule, v.Name, v.Description, v)
}

// values reads the parameters of a plan.
func (r *reader) values(n *yaml.Node) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	r.mapping(n, "set", "names to values", func(key, value *yaml.Node, at string) { all[key.Value] = r.JSON(value, at) })
	return all
}

// checkSchedule validates a declaration on its own, with its plan.
func checkSchedule(r *parser, d *decl, v api.Schedule) {
	if v.Cron != "" && v.Zone != "" {
		if _, err := cron.Zone(v.Zone); err != nil {
			r.At(d.at("zone"), "%v", err)
		} else if _, err := cron.Parse(v.Cron, v.Zone); err != nil {
			r.At(d.at("cron"), "%v", err)
		}
	}
	if v.Principal != "" && !strings.HasPrefix(string(v.Principal), "ci:") {
		r.At(d.at("principal"), "principal: %s: a schedule runs as a program, not as a person or an AI; want ci:NAME, with a grant of its own", v.Principal)
	}
	catches := v.CatchUp == api.CatchUpLast || v.CatchUp == api.CatchUpAll
	switch {
	case catches && d.pos["catchUpWithin"] == nil:
		r.At(d.at("catchUp"), "catchUp: %s needs catchUpWithin: DURATION, how old a slot may be that is made up", v.CatchUp)
	case !catches && v.CatchUpWithin > 0:
		r.At(d.at("catchUpWithin"), "catchUpWithin: has no effect without catchUp: last or all")
	case v.CatchUpWithin > api.MaxCatchUpWithin:
		r.At(d.at("catchUpWithin"), "catchUpWithin: at most %s", time.Duration(api.MaxCatchUpWithin))
	}
	if v.CatchUp == api.CatchUpAll && v.Overlap != api.OverlapQueue {
		r.At(d.at("catchUp"), "catchUp: all needs overlap: queue, because slots that are made up at the same time overlap")
	}
	if v.Jitter > api.MaxJitter {
		r.At(d.at("jitter"), "jitter: at most %s", time.Duration(api.MaxJitter))
	}
	if v.Plan == "" {
		return
	}
	if _, places := plan.OfSchedule(v); len(places) > 0 {
		for _, p := range places {
			r.At(d.at("plan"), "plan: %s: %s", strictyaml.Clip(d.at("plan").Value), p)
		}
	}
}

// schedules refuses the plan of a schedule that names subagents which the catalog does
// not have, also if the schedule stays as it is.
func (p *Plan) schedules(l *strictyaml.List, declared map[api.Ref]*decl) {
	for _, name := range slices.Sorted(maps.Keys(p.set.Schedules)) {
		v, ref := p.set.Schedules[name], api.RefTo(api.KindSchedule, name)
		read, _ := plan.OfSchedule(v)
		if read == nil {
			continue // the reader refuses it; one of an earlier version says so when it is due
		}
		for _, sub := range plan.Subagents(read.Tasks) {
			if _, ok := p.set.Subagents[sub]; ok {
				continue
			}
			if d := declared[ref]; d != nil {
				n := d.at("plan")
				l.Add(n.Line, n.Column, "%s: plan: %s: no such subagent %q%s", ref, strictyaml.Clip(n.Value), sub, p.suggestion(api.RefTo(api.KindSubagent, sub)))
				continue
			}
			l.Add(0, 0, "%s of %s, which stays in the catalog: its plan needs subagent %q; keep it, or change the schedule first", ref, projectText(p.set.Project(ref)), sub)
		}
	}
}

// noteSchedules adds notes on schedules whose principal is not granted what their plans
// need.
func (p *Plan) noteSchedules() {
	for _, name := range slices.Sorted(maps.Keys(p.set.Schedules)) {
		v := p.set.Schedules[name]
		read, _ := plan.OfSchedule(v)
		if read == nil {
			continue
		}
		for _, sub := range plan.Subagents(read.Tasks) {
			granted := false
			for _, g := range p.set.Grants {
				granted = granted || g.Principal == v.Principal && slices.Contains(g.Subagents, sub)
			}
			if !granted {
				p.Notes = append(p.Notes, fmt.Sprintf("schedule/%s: no grant gives %s subagent %s, so its runs are refused", name, v.Principal, sub))
			}
		}
	}
}
