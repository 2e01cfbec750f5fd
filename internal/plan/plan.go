// Package plan is the pure model of a plan of tasks: what a well-formed plan
// is (R-O2), the canonical form whose digest makes submitting idempotent
// (R-O8), the graph of its tasks, and the one table of a task's states.
//
// It knows no clock, disk, network, catalog or grant: whether a task may run
// is for the service to decide. It never stops at the first problem, never
// changes a plan that it has read, and takes time linear in the plan's size,
// so whoever submits one cannot hold up whoever reads it.
package plan

import (
	"encoding/json"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
)

// Plan is a plan that can run: its tasks have distinct ids and form a DAG
// within the bounds of package api. It is normalised: the queue is named, and
// each task says its source itself, so Plan.Source is nil. Nobody changes it.
type Plan struct {
	api.Plan

	canonical  json.RawMessage
	index      map[api.TaskID]int
	deps       lists
	dependents lists
	order      []int32
}

// Parse reads a plan from a JSON object. There is a plan exactly if there are
// no problems. At most api.MaxProblems are listed; where there are more, the
// last one listed says how many.
func Parse(raw []byte) (*Plan, []api.Problem) {
	var found list
	d := read(raw, &found)
	if d == nil {
		return nil, found.problems()
	}
	g := check(d, &found)
	if found.count > 0 {
		return nil, found.problems()
	}
	p, err := build(d.plan, g)
	if err != nil {
		found.sense("$", "%v", err)
		return nil, found.problems()
	}
	if n := len(p.canonical); n > api.MaxPlan {
		found.sense("$", "%d bytes in its canonical form, with each task's source written out: more than %d", n, api.MaxPlan)
		return nil, found.problems()
	}
	return p, nil
}

// Tasks returns what can be read of the tasks of a plan, each at its place, also
// of one that has problems: whoever knows more about them can then say all that
// is wrong at once.
func Tasks(raw []byte) []api.PlanTask {
	d := read(raw, &list{})
	if d == nil {
		return nil
	}
	inherit(&d.plan)
	return d.plan.Tasks
}

// inherit gives each task the plan's source that has none of its own.
func inherit(a *api.Plan) {
	for i := range a.Tasks {
		if t := &a.Tasks[i]; t.Source == nil && a.Source != nil {
			own := *a.Source
			t.Source = &own
		}
	}
}

// build normalises a plan that has been checked.
func build(a api.Plan, g *graph) (*Plan, error) {
	if a.Queue == "" {
		a.Queue = api.DefaultQueue
	}
	inherit(&a)
	for i := range a.Tasks {
		short(&a.Tasks[i])
	}
	a.Source = nil
	canonical, err := canon.Marshal(a)
	if err != nil {
		return nil, err
	}
	return &Plan{Plan: a, canonical: canonical, index: g.index, deps: g.deps, dependents: g.dependents, order: g.order}, nil
}

// short leaves out of a task what it would mean without, so that a plan that
// spells a default out is the same plan (R-O8).
func short(t *api.PlanTask) {
	if string(t.Input) == "{}" {
		t.Input = nil
	}
	if t.Retry.Attempts <= 1 {
		t.Retry = api.Retry{}
	}
	if t.Retry.Backoff == api.DefaultBackoff() {
		t.Retry.Backoff = api.Backoff{}
	}
	if slices.Equal(t.Retry.On, api.DefaultRetryReasons()) {
		t.Retry.On = nil
	}
	needed := make(map[api.TaskID]bool, len(t.Needs))
	for _, n := range t.Needs {
		needed[n.From] = true
	}
	t.DependsOn = slices.DeleteFunc(t.DependsOn, func(id api.TaskID) bool { return needed[id] })
}

// Canonical is the normalised plan as canonical JSON, which Parse reads to the
// same plan.
func (p *Plan) Canonical() json.RawMessage { return slices.Clone(p.canonical) }

// Size is how many bytes the canonical form has.
func (p *Plan) Size() int { return len(p.canonical) }

// Digest names the plan: that of its canonical form.
func (p *Plan) Digest() api.Digest { return api.DigestOf(p.canonical) }

// WithID is the same plan under another run id. It fails where that is too large
// to be read again: what is stored is the plan with its id.
func (p *Plan) WithID(id api.RunID) (*Plan, error) {
	q := *p
	q.ID = id
	canonical, err := canon.Marshal(q.Plan)
	if err != nil {
		return nil, err
	}
	if n := len(canonical); n > api.MaxPlan {
		return nil, api.Errorf(api.CodeTooLarge, "the plan has %d bytes in its canonical form under the run id %s, more than %d", n, id, api.MaxPlan)
	}
	q.canonical = canonical
	return &q, nil
}

// Deps are the indices of the tasks that task i comes after: those that it
// depends on and those that it needs something of. They are sorted and
// distinct. The caller does not change them.
func (p *Plan) Deps(i int) []int32 { return p.deps.at(i) }

// Dependents are the indices of the tasks that come after task i, sorted and
// distinct. The caller does not change them.
func (p *Plan) Dependents(i int) []int32 { return p.dependents.at(i) }

// Index is where a task stands in Plan.Tasks.
func (p *Plan) Index(id api.TaskID) (int, bool) {
	i, ok := p.index[id]
	return i, ok
}

// Order is an order in which the tasks can run: of those that may come next,
// the first in the plan. The caller does not change it.
func (p *Plan) Order() []int32 { return p.order }
