// Package plan is the pure model of a plan of tasks: what a valid plan is (R-O2),
// the canonical form whose digest makes submission idempotent (R-O8), the graph
// of its tasks, and the tables of the states of tasks and runs.
//
// It knows no clock, disk, network, catalog or grant: whether a task may run is
// for the service to decide. It reports every problem at once, never changes a
// plan that it has read, and takes time linear in the plan's size.
package plan

import (
	"encoding/json"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// Plan is a plan that can run: its tasks have distinct ids and form a DAG
// within the bounds of package api. It is normalised: the queue is named, and
// each task has its own source, so Plan.Source is nil. Only Grow changes it.
type Plan struct {
	api.Plan

	canonical  json.RawMessage
	declared   int // tasks of the submitted plan
	index      map[api.TaskID]int
	deps       [][]int32
	dependents [][]int32
	order      []int32
	parent     []int32 // by task: see Parent
	children   map[int32][]int32
	edges      int // dependencies of all tasks
	filled     int // bytes of the inputs that were made for the instances of a for_each
}

// Parse reads a plan from a JSON object. It returns either a plan or problems. At
// most api.MaxProblems are listed; if there are more, the last one says how many.
func Parse(raw []byte) (*Plan, []api.Problem) { return ParseWith(raw, nil) }

// ParseWith is Parse for a plan that declares parameters, with the values of some.
func ParseWith(raw []byte, values map[string]json.RawMessage) (*Plan, []api.Problem) {
	var found list
	d := read(raw, values, &found)
	if d == nil {
		return nil, found.problems()
	}
	g := check(d, nil, &found)
	if found.count > 0 {
		return nil, NameTasks(found.problems(), d.plan.Tasks)
	}
	p, err := build(d.plan, g)
	if err != nil {
		found.sense("$", "%v", err)
		return nil, found.problems()
	}
	if n := len(p.canonical); n > api.MaxPlan {
		found.sense("$", "%d bytes in canonical form, with the source of each task: more than %d", n, api.MaxPlan)
		return nil, found.problems()
	}
	return p, nil
}

// Tasks returns the tasks of a plan that can be read, also if the plan
// has problems, so that the service can report its own problems with them in the
// same answer.
func Tasks(raw []byte, values map[string]json.RawMessage) []api.PlanTask {
	d := read(raw, values, &list{})
	if d == nil {
		return nil
	}
	inherit(&d.plan)
	return d.plan.Tasks
}

// inherit gives each task without a source the plan's.
func inherit(a *api.Plan) {
	for i := range a.Tasks {
		if t := &a.Tasks[i]; t.Source == nil && a.Source != nil && t.Approval == nil {
			own := *a.Source
			t.Source = &own
		}
	}
}

// build normalises a valid plan.
func build(a api.Plan, g *graph) (*Plan, error) {
	if a.Queue == "" {
		a.Queue = api.DefaultQueue
	}
	inherit(&a)
	for i := range a.Tasks {
		dropDefaults(&a.Tasks[i])
	}
	a.Source, a.Parameters = nil, nil
	canonical, err := canon.Marshal(a)
	if err != nil {
		return nil, err
	}
	p := &Plan{Plan: a, canonical: canonical, declared: len(a.Tasks), index: g.index, deps: g.deps.split(), dependents: g.dependents.split(), order: g.order, children: map[int32][]int32{}, edges: len(g.deps.all)}
	p.parent = slices.Repeat([]int32{-1}, len(a.Tasks))
	return p, nil
}

// dropDefaults removes members that have their default value, so that a plan that
// spells them out is the same plan (R-O8).
func dropDefaults(t *api.PlanTask) {
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
	dropGrowthDefaults(t)
	needed := make(map[api.TaskID]bool, len(t.Needs))
	for _, n := range t.Needs {
		needed[n.From] = true
	}
	for _, n := range t.Needs {
		if n.AllowFailed { // it would be weaker
			delete(needed, n.From)
		}
	}
	t.DependsOn = slices.DeleteFunc(t.DependsOn, func(id api.TaskID) bool { return needed[id] })
}

// Canonical is the normalised plan as canonical JSON. Parse returns the same plan
// for it.
func (p *Plan) Canonical() json.RawMessage { return slices.Clone(p.canonical) }

// Size is the length of the canonical form in bytes.
func (p *Plan) Size() int { return len(p.canonical) }

// Digest is the digest of the canonical form.
func (p *Plan) Digest() api.Digest { return api.DigestOf(p.canonical) }

// WithID returns the same plan under another run id. It fails if that is larger
// than api.MaxPlan: the plan is stored with its id.
func (p *Plan) WithID(id api.RunID) (*Plan, error) {
	q := p.clone()
	q.ID = id
	canonical, err := canon.Marshal(q.Plan)
	if err != nil {
		return nil, err
	}
	if n := len(canonical); n > api.MaxPlan {
		return nil, api.Errorf(api.CodeTooLarge, "the plan with run id %s has %d bytes in canonical form, more than %d", id, n, api.MaxPlan)
	}
	q.canonical = canonical
	return q, nil
}

// clone returns the plan as it was submitted.
func (p *Plan) clone() *Plan {
	q, n := *p, p.declared
	q.Tasks, q.parent, q.order, q.children = slices.Clone(p.Tasks[:n]), slices.Clone(p.parent[:n]), slices.Clone(p.order[:n]), map[int32][]int32{}
	q.index, q.filled, q.edges = make(map[api.TaskID]int, n), 0, 0
	q.deps, q.dependents = slices.Clone(p.deps[:n]), slices.Clone(p.dependents[:n])
	for i := range q.Tasks {
		q.index[q.Tasks[i].ID] = i
		q.edges += len(q.deps[i])
		declared, _ := slices.BinarySearch(q.dependents[i], int32(n)) //nolint:gosec // G115: below MaxPlanTasks
		q.dependents[i] = slices.Clip(q.dependents[i][:declared])
	}
	return &q
}

// Deps are the indices of the tasks that task i depends on or needs something
// from, sorted and distinct. The caller must not change them.
func (p *Plan) Deps(i int) []int32 { return p.deps[i] }

// Dependents are the indices of the tasks that depend on task i, sorted and
// distinct. The caller must not change them.
func (p *Plan) Dependents(i int) []int32 { return p.dependents[i] }

func indexed(p *Plan, id api.TaskID) bool { _, ok := p.index[id]; return ok }

// Index is the index of a task in Plan.Tasks.
func (p *Plan) Index(id api.TaskID) (int, bool) {
	i, ok := p.index[id]
	return i, ok
}

// Order is a topological order of the tasks; among several possible next tasks it
// takes the first in the plan. The caller must not change it.
func (p *Plan) Order() []int32 { return p.order }
