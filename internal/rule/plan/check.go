package plan

import (
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
)

// maxWall is the largest wall time limit of a run.
const maxWall = api.Duration(365 * 24 * time.Hour)

// check finds the problems that the JSON Schema cannot express, also in a plan with
// problems of shape. The graph is complete only if there are no problems at all. With
// base, the tasks are to be appended to that run, and may depend on its tasks.
func check(d *draft, base *Plan, found *list) *graph {
	c := &checker{list: found, draft: d, base: base, reserved: api.ReservedInputs()}
	c.limits()
	c.index()
	for i := range d.plan.Tasks {
		c.locks(i)
		c.needs(i)
		c.retry(i)
		c.construct(i)
	}
	c.edges()
	if c.graph.sort(); len(c.graph.order) < len(d.plan.Tasks) {
		c.cycles()
	}
	return &c.graph
}

type checker struct {
	*list
	*draft
	base     *Plan // nil: of a plan
	graph    graph
	reserved []api.Name
	filled   int // bytes of the inputs of instances
}

// task is the path of a task.
func task(i int) string { return item("$.tasks", i) }

func (c *checker) limits() {
	n, least := len(c.plan.Tasks), 0
	for i := range c.plan.Tasks {
		least += atLeast(&c.plan.Tasks[i])
	}
	switch l := c.plan.Limits.Tasks; {
	case c.base != nil:
		if have, most := len(c.base.Tasks), mostTasks(&c.base.Plan); have+least > most {
			c.sense("$.tasks", "the run has %d tasks, and would have at least %d: its limit is %d", have, have+least, most)
		}
	case l > 0 && l < n:
		c.sense("$.limits.tasks", "%d: the plan has %d tasks", l, n)
	case l > 0 && l < least:
		c.sense("$.limits.tasks", "%d: the plan has %d tasks and grows to at least %d", l, n, least)
	case least > api.MaxRunTasks:
		c.sense("$.tasks", "the plan grows to at least %d tasks: at most %d", least, api.MaxRunTasks)
	}
	if w := c.plan.Limits.Wall; w > maxWall {
		c.sense("$.limits.wall", "%s: at most %s", time.Duration(w), time.Duration(maxWall))
	}
}

// index maps ids to tasks; of duplicates to the first.
func (c *checker) index() {
	c.graph.index = make(map[api.TaskID]int, len(c.plan.Tasks))
	for i, t := range c.plan.Tasks {
		if t.ID == "" {
			continue
		}
		if first, twice := c.graph.index[t.ID]; twice {
			c.sense(task(i)+".id", "duplicate task %s, first at %s", clip(string(t.ID)), task(first))
			continue
		}
		if c.base != nil && indexed(c.base, t.ID) {
			c.sense(task(i)+".id", "the run has a task %s already", clip(string(t.ID)))
		}
		c.graph.index[t.ID] = i
	}
}

func (c *checker) locks(i int) {
	locks := c.plan.Tasks[i].Locks
	seen := make(map[string]bool, len(locks))
	for k, l := range locks {
		at := item(task(i)+".locks", k)
		shared, duplicate := seen[l.Key]
		switch {
		case l.Key == "":
			continue // already reported
		case duplicate && shared != l.Shared:
			c.sense(at, "duplicate lock %s, exclusive and shared: keep the exclusive one", clip(l.Key))
		case duplicate:
			c.sense(at, "duplicate lock %s", clip(l.Key))
		default:
			seen[l.Key] = l.Shared
		}
		if err := checkLock(l.Key); err != nil {
			c.sense(at, "%v", err)
		}
	}
}

func (c *checker) needs(i int) {
	for _, n := range c.draft.needs[i] {
		if slices.Contains(c.reserved, api.Name(n.name)) {
			c.sense(n.path, "inputs/%s is reserved; choose another name", n.name)
		}
		if n.Output == "" {
			continue
		}
		c.outputPath(n.path+".output", n.Output)
	}
}

func (c *checker) retry(i int) {
	r := c.plan.Tasks[i].Retry
	if whole := api.Duration(time.Millisecond); r.Backoff.Min%whole != 0 || r.Backoff.Max%whole != 0 {
		c.sense(task(i)+".retry.backoff", "want whole milliseconds")
	}
}

// named returns a task by its id, and its index; -1 in a run that is appended to, which
// has no cycle with what is new. Nil: no task that was declared or appended has it.
func (c *checker) named(id api.TaskID) (*api.PlanTask, int32) {
	if j, ok := c.graph.index[id]; ok {
		return &c.plan.Tasks[j], int32(j) //nolint:gosec // G115: below MaxPlanTasks
	}
	if c.base != nil {
		if j, ok := c.base.Index(id); ok && c.base.parent[j] < 0 {
			return &c.base.Tasks[j], -1
		}
	}
	return nil, -1
}

// edge adds the dependency of task i on one that it names at a path, and returns that
// one; nil if it cannot depend on it.
func (c *checker) edge(i int, to api.TaskID, at func() string) *api.PlanTask {
	if to == "" {
		return nil // already reported
	}
	t, j := c.named(to)
	switch {
	case t == nil:
		if _, err := api.ParseTaskID(string(to)); err == nil {
			c.sense(at(), "no such task %s%s", clip(string(to)), c.suggestion(to))
		}
	case int(j) == i:
		c.sense(at(), "task %s depends on itself", clip(string(to)))
		return nil
	case j >= 0:
		c.graph.deps.all = append(c.graph.deps.all, j)
	}
	return t
}

// suggestion names the task that was probably meant, in plans small enough to be
// written by a person.
func (c *checker) suggestion(id api.TaskID) string {
	if c.full() || len(c.plan.Tasks) > 500 {
		return ""
	}
	ids := make([]string, 0, len(c.plan.Tasks))
	for _, t := range c.plan.Tasks {
		ids = append(ids, string(t.ID))
	}
	return strictyaml.Suggestion(string(id), ids)
}

// edges builds the graph.
func (c *checker) edges() {
	n, total := len(c.plan.Tasks), 0
	g := &c.graph
	g.deps.start = make([]int32, 1, n+1)
	for i, t := range c.plan.Tasks {
		begin := len(g.deps.all)
		total += len(t.DependsOn) + len(c.draft.needs[i])
		for k, to := range t.DependsOn {
			c.edge(i, to, func() string { return item(task(i)+".depends_on", k) })
		}
		for _, need := range c.draft.needs[i] {
			at := func() string { return need.path + ".from" }
			if from := c.edge(i, need.From, at); from != nil {
				c.gives(&need, from, at)
			}
		}
		for _, o := range c.others(i) {
			total++
			if t := c.edge(i, o.to, func() string { return o.at }); t != nil && o.result && (t.Subagent == "" || t.ForEach != nil) {
				c.sense(o.at, "task %s has no result of its own", clip(string(o.to)))
			}
		}
		slices.Sort(g.deps.all[begin:])
		g.deps.all = g.deps.all[:begin+len(slices.Compact(g.deps.all[begin:]))]
		g.deps.start = append(g.deps.start, int32(len(g.deps.all))) //nolint:gosec // G115: a plan has at most MaxPlan bytes
	}
	if total > api.MaxPlanEdges {
		c.sense("$.tasks", "%d dependencies: at most %d", total, api.MaxPlanEdges)
	}
	g.dependents = g.deps.reversed()
}

// other is a dependency that is neither in depends_on nor in needs.
type other struct {
	to     api.TaskID
	at     string
	result bool // a product of the task is read
}

func (c *checker) others(i int) (list []other) {
	t := &c.plan.Tasks[i]
	if t.When != nil {
		list = append(list, other{t.When.Task, task(i) + ".when.task", true})
	}
	if t.ForEach != nil && t.ForEach.From != "" {
		list = append(list, other{t.ForEach.From, task(i) + ".for_each.from", true})
	}
	if t.Approval != nil {
		for k, id := range t.Approval.Show {
			list = append(list, other{id, item(task(i)+".approval.show", k), false})
		}
	}
	return list
}

// gives refuses a need from a task that has no such product.
func (c *checker) gives(n *need, from *api.PlanTask, at func() string) {
	switch {
	case from.Quorum != nil || from.Approval != nil:
		c.sense(at(), "task %s has no products: it is decided by people or reviewers; use depends_on", clip(string(n.From)))
	case n.AllowFailed && from.ForEach == nil:
		c.sense(n.path+".allow_failed", "task %s has no for_each", clip(string(n.From)))
	case from.Gate != nil && !n.Patch:
		c.sense(at(), "task %s has a gate, which gives its patch only", clip(string(n.From)))
	}
}

func (c *checker) cycles() {
	for _, cycle := range c.graph.cycles() {
		c.sense(c.where(cycle[0], cycle[1]), "dependency cycle: %s", cycleText(c.plan.Tasks, cycle))
	}
}

// where is the path of task i's dependency on task j.
func (c *checker) where(i, j int32) string {
	id := c.plan.Tasks[j].ID
	if k := slices.Index(c.plan.Tasks[i].DependsOn, id); k >= 0 {
		return item(task(int(i))+".depends_on", k)
	}
	for _, n := range c.draft.needs[i] {
		if n.From == id {
			return n.path + ".from"
		}
	}
	for _, o := range c.others(int(i)) {
		if o.to == id {
			return o.at
		}
	}
	return task(int(i)) // not reached
}
