package plan

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/strictyaml"
)

// maxWall is the largest wall time limit of a run.
const maxWall = api.Duration(365 * 24 * time.Hour)

// check finds the problems that the JSON Schema cannot express, also in a plan with
// problems of shape. The graph is complete only if there are no problems at all.
func check(d *draft, found *list) *graph {
	c := &checker{list: found, draft: d, reserved: api.ReservedInputs()}
	c.limits()
	c.index()
	for i := range d.plan.Tasks {
		c.locks(i)
		c.needs(i)
		c.retry(i)
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
	graph    graph
	reserved []api.Name
}

// task is the path of a task.
func task(i int) string { return item("$.tasks", i) }

func (c *checker) limits() {
	if l := c.plan.Limits.Tasks; l > 0 && l < len(c.plan.Tasks) {
		c.sense("$.limits.tasks", "%d: the plan has %d tasks", l, len(c.plan.Tasks))
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
		if err := strictyaml.CheckText(l.Key); err != nil {
			c.sense(at, "lock %s %v", clip(l.Key), err)
		}
		if strings.TrimSpace(l.Key) != l.Key {
			c.sense(at, "lock %s begins or ends with white space", clip(l.Key))
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
		at := n.path + ".output"
		switch {
		case strings.HasPrefix(n.Output, "/"):
			c.sense(at, "%s is absolute: want a path relative to outputs/", clip(n.Output))
		case n.Output == ".." || strings.HasPrefix(path.Clean(n.Output), "../"):
			c.sense(at, "%s leads out of outputs/", clip(n.Output))
		case n.Output == "." || path.Clean(n.Output) != n.Output:
			c.sense(at, "%s is not a clean path: want %s", clip(n.Output), clip(path.Clean(n.Output)))
		}
		if err := strictyaml.CheckText(n.Output); err != nil {
			c.sense(at, "%s %v", clip(n.Output), err)
		}
	}
}

func (c *checker) retry(i int) {
	r := c.plan.Tasks[i].Retry
	if whole := api.Duration(time.Millisecond); r.Backoff.Min%whole != 0 || r.Backoff.Max%whole != 0 {
		c.sense(task(i)+".retry.backoff", "want whole milliseconds")
	}
}

// edge returns the index of the task that task i names at a path, and false if
// that is no valid edge.
func (c *checker) edge(i int, to api.TaskID, at func() string) (int32, bool) {
	if to == "" {
		return 0, false // already reported
	}
	j, ok := c.graph.index[to]
	switch {
	case j == i && ok:
		c.sense(at(), "task %s depends on itself", clip(string(to)))
		return 0, false
	case !ok:
		if _, err := api.ParseTaskID(string(to)); err == nil {
			c.sense(at(), "no such task %s%s", clip(string(to)), c.suggestion(to))
		}
		return 0, false
	}
	return int32(j), true //nolint:gosec // G115: below MaxPlanTasks
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
	if near := strictyaml.Nearest(string(id), ids); near != "" {
		return "; did you mean " + clip(near) + "?"
	}
	return ""
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
			if j, ok := c.edge(i, to, func() string { return item(task(i)+".depends_on", k) }); ok {
				g.deps.all = append(g.deps.all, j)
			}
		}
		for _, need := range c.draft.needs[i] {
			if j, ok := c.edge(i, need.From, func() string { return need.path + ".from" }); ok {
				g.deps.all = append(g.deps.all, j)
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
	return task(int(i)) // not reached
}
