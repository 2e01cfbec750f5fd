package graph

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// task is a task in a test: "b after a", "c[1] from c".
func parse(t testing.TB, lines ...string) []Task {
	t.Helper()
	var tasks []Task
	for _, line := range lines {
		f := strings.Fields(line)
		task := Task{ID: api.TaskID(f[0]), Subagent: "worker", State: api.TaskPending}
		for i := 1; i+1 < len(f); i += 2 {
			switch f[i] {
			case "after":
				for id := range strings.SplitSeq(f[i+1], ",") {
					task.After = append(task.After, api.TaskID(id))
				}
			case "from":
				task.GrewFrom = api.TaskID(f[i+1])
			case "is":
				task.State = api.TaskState(f[i+1])
			case "by":
				task.Subagent = api.Name(f[i+1])
			}
		}
		tasks = append(tasks, task)
	}
	return tasks
}

func draw(t testing.TB, tasks []Task, v View, open ...string) *Picture {
	t.Helper()
	l, err := Lay(tasks, open)
	if err != nil {
		t.Fatal(err)
	}
	p, err := l.Draw(tasks, v)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// sound checks what must hold of every picture: no two nodes overlap, every edge leads
// to the right, and every task is in exactly one node.
func sound(t testing.TB, tasks []Task, p *Picture) {
	t.Helper()
	in := make([]int, len(tasks))
	byColumn, x := map[int][]Node{}, map[string]int{}
	for _, n := range p.Nodes {
		byColumn[n.X], x[n.Key] = append(byColumn[n.X], n), n.X
		if n.X < 0 || n.Y < 0 || n.X+n.Width > p.Width || n.Y+n.Height > p.Height {
			t.Fatalf("node %s is outside the picture", n.Key)
		}
		for _, i := range n.Tasks {
			in[i]++
		}
	}
	for i, n := range in {
		if n != 1 {
			t.Fatalf("task %s is in %d nodes", tasks[i].ID, n)
		}
	}
	for _, column := range byColumn {
		for i := 1; i < len(column); i++ {
			if a, b := column[i-1], column[i]; b.Y < a.Y+a.Height {
				t.Fatalf("nodes %s and %s overlap", a.Key, b.Key)
			}
		}
	}
	for _, e := range p.Edges {
		if x[e.From] >= x[e.To] {
			t.Fatalf("the edge from %s to %s does not lead to the right", e.From, e.To)
		}
	}
}

func TestATaskStandsRightOfWhatItDependsOn(t *testing.T) {
	tasks := parse(t, "a", "b after a", "c after a", "d after b,c", "e", "f after e,a,d")
	p := draw(t, tasks, View{})
	sound(t, tasks, p)
	column := map[api.TaskID]int{}
	for _, n := range p.Nodes {
		column[n.Task] = n.Column
	}
	if want := map[api.TaskID]int{"a": 0, "b": 1, "c": 1, "d": 2, "e": 0, "f": 3}; !reflect.DeepEqual(column, want) {
		t.Errorf("columns %v, want %v", column, want)
	}
	if len(p.Edges) != 7 || p.Implied != 0 {
		t.Errorf("%d edges, %d implied", len(p.Edges), p.Implied)
	}
}

// Edges that can be drawn without crossings are, whatever the order of the tasks.
func TestSweepsRemoveCrossings(t *testing.T) {
	var lines []string
	for i := range 8 {
		lines = append(lines, fmt.Sprintf("a%d", i))
	}
	for i := range 8 {
		lines = append(lines, fmt.Sprintf("b%d after a%d", i, 7-i))
	}
	tasks := parse(t, lines...)
	l, err := Lay(tasks, nil)
	if err != nil {
		t.Fatal(err)
	}
	pos := make([]int, len(l.items))
	for _, c := range l.columns {
		for at, i := range c {
			pos[i] = at
		}
	}
	if n := crossings(l.items, l.columns, pos); n != 0 {
		t.Errorf("%d crossings", n)
	}
	slices.Reverse(l.columns[1])
	for at, i := range l.columns[1] {
		pos[i] = at
	}
	if n := crossings(l.items, l.columns, pos); n != 28 {
		t.Errorf("control: %d crossings in the reversed order, want 28", n)
	}
}

// A task stays where it is while the run advances and grows.
func TestPositionsAreStableFromTheStartToTheEnd(t *testing.T) {
	tasks := parse(t, "a", "b after a", "c after a", "d after b,c")
	before := draw(t, tasks, View{})
	for i, s := range []api.TaskState{api.TaskDone, api.TaskGrowing, api.TaskFailed, api.TaskSkipped} {
		tasks[i].State = s
	}
	for i := range 30 {
		tasks = append(tasks, parse(t, fmt.Sprintf("b[%d] after a from b is running", i))...)
	}
	after := draw(t, tasks, View{})
	sound(t, tasks, after)
	if len(after.Nodes) != len(before.Nodes) {
		t.Fatalf("%d nodes, then %d", len(before.Nodes), len(after.Nodes))
	}
	for i, n := range after.Nodes {
		if m := before.Nodes[i]; n.Key != m.Key || n.X != m.X || n.Y != m.Y {
			t.Errorf("%s moved from %d,%d to %s %d,%d", m.Key, m.X, m.Y, n.Key, n.X, n.Y)
		}
		if n.Key == "b" && (n.Kind != KindGrowth || n.Sub != "growing, 30 grown" || n.Counts[api.TaskRunning] != 30) {
			t.Errorf("%+v", n)
		}
	}
	open := draw(t, tasks, View{}, "b", "b[0]:alike")
	sound(t, tasks, open)
	if len(open.Nodes) != len(tasks) {
		t.Errorf("opened: %d nodes, want one for each of %d tasks", len(open.Nodes), len(tasks))
	}
	grown := 0
	for _, e := range open.Edges {
		if e.Grown {
			grown++
		}
	}
	if grown != 30 {
		t.Errorf("%d edges of growth, want 30", grown)
	}
	if again := draw(t, tasks, View{}, "b", "b[0]:alike"); !reflect.DeepEqual(again, open) {
		t.Error("the same tasks give another picture")
	}
}

// Tasks that look alike are one node, which names the most urgent state. Control: one
// with another dependent stands alone.
func TestTasksThatLookAlikeAreOneNode(t *testing.T) {
	lines := []string{"a", "odd after a"}
	for i := range 20 {
		lines = append(lines, fmt.Sprintf("t%d after a", i))
	}
	lines = append(lines, "z after odd")
	tasks := parse(t, lines...)
	tasks[5].State = api.TaskFailed
	p := draw(t, tasks, View{})
	sound(t, tasks, p)
	var keys []string
	for _, n := range p.Nodes {
		keys = append(keys, n.Key)
		if n.Kind == KindAlike && (n.State != api.TaskFailed || n.Label != "20 × worker" || n.Sub != "1 failed, 19 pending" || len(n.Tasks) != 20) {
			t.Errorf("%+v", n)
		}
	}
	slices.Sort(keys)
	if want := []string{"a", "odd", "t0:alike", "z"}; !slices.Equal(keys, want) {
		t.Errorf("nodes %q, want %q", keys, want)
	}
	p = draw(t, tasks, View{}, "t0:alike")
	if sound(t, tasks, p); len(p.Nodes) != len(tasks) {
		t.Errorf("opened: %d nodes", len(p.Nodes))
	}
}

func TestATraceMarksAllThatATaskDependsOn(t *testing.T) {
	tasks := parse(t, "a", "b after a", "c after a", "d after b", "e after c", "f after d,e")
	p := draw(t, tasks, View{Trace: "d"})
	var traced []string
	for _, n := range p.Nodes {
		if n.Traced {
			traced = append(traced, n.Key)
		}
	}
	edges := 0
	for _, e := range p.Edges {
		if e.Traced {
			edges++
		}
	}
	if slices.Sort(traced); !slices.Equal(traced, []string{"a", "b", "d"}) || edges != 2 || !p.Traced {
		t.Errorf("traced %q and %d edges", traced, edges)
	}
	if _, err := must(Lay(tasks, nil)).Draw(tasks, View{Trace: "nobody"}); err == nil || !strings.Contains(err.Error(), `no task "nobody"`) {
		t.Errorf("an unknown task: %v", err)
	}
}

func must(l *Layout, err error) *Layout {
	if err != nil {
		panic(err)
	}
	return l
}

// Tasks that are not a graph are refused, and never a loop without an end.
func TestWhatIsNotAGraphIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		tasks []Task
		want  string
	}{
		"a cycle":            {parse(t, "a after c", "b after a", "c after b"), "form a cycle"},
		"itself":             {parse(t, "a after a"), "form a cycle"},
		"an unknown task":    {parse(t, "a after b"), "which is not a task"},
		"a duplicate":        {parse(t, "a", "a"), "duplicate task"},
		"growth from itself": {parse(t, "a from a"), "not before it"},
		"a cycle of growth":  {parse(t, "a from b", "b from a"), "not before it"},
	} {
		if _, err := Lay(c.tasks, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if l, err := Lay(nil, nil); err != nil {
		t.Error(err)
	} else if p, err := l.Draw(nil, View{}); err != nil || len(p.Nodes) != 0 {
		t.Errorf("no tasks: %+v, %v", p, err)
	}
	if _, err := must(Lay(parse(t, "a"), nil)).Draw(nil, View{}); err == nil {
		t.Error("a layout draws the tasks of another run")
	}
}

// network makes n tasks in columns with one to three dependencies.
func network(n, width int, seed uint64) []Task {
	r := rand.New(rand.NewPCG(seed, 1))
	tasks := make([]Task, n)
	for i := range tasks {
		tasks[i] = Task{ID: api.TaskID(fmt.Sprintf("t%d", i)), Subagent: "worker", State: api.TaskDone}
		if i >= width {
			for range 1 + r.IntN(3) {
				lo := max(0, i-2*width)
				tasks[i].After = append(tasks[i].After, tasks[lo+r.IntN(i-lo)].ID)
			}
		}
	}
	return tasks
}

// Above MaxShown nodes a picture has what needs a reader, with one hop around it, and
// counts of the rest.
func TestALargeRunShowsWhatNeedsAReader(t *testing.T) {
	tasks := network(10_000, 100, 1)
	tasks[5000].State, tasks[7000].State = api.TaskFailed, api.TaskWaiting
	p := draw(t, tasks, View{})
	sound(t, tasks, p)
	shown := map[api.TaskID]bool{}
	for _, n := range p.Nodes {
		if n.Kind != KindRest {
			shown[n.Task] = true
		}
	}
	if !p.Folded || !shown["t5000"] || !shown["t7000"] || len(shown) > 60 {
		t.Errorf("%d nodes shown, folded %v", len(shown), p.Folded)
	}
	for _, id := range tasks[5000].After {
		if !shown[id] {
			t.Errorf("%s, which the failed task depends on, is not shown", id)
		}
	}
	p = draw(t, tasks, View{Trace: "t9999"})
	sound(t, tasks, p)
	if !slices.ContainsFunc(p.Nodes, func(n Node) bool { return n.Task == "t9999" && n.Traced }) {
		t.Error("a traced task is not shown")
	}
	for i := range tasks { // all of them need a reader
		tasks[i].State = api.TaskFailed
	}
	p = draw(t, tasks, View{})
	if sound(t, tasks, p); len(p.Nodes) > maxAround+200 {
		t.Errorf("%d nodes", len(p.Nodes))
	}
}

// Work and output stay bounded for graphs made to be large when drawn.
func TestHostileGraphsAreBounded(t *testing.T) {
	var chain, dense, halves []Task
	for i := range 10_000 {
		task := Task{ID: api.TaskID(fmt.Sprintf("c%d", i))}
		if i > 0 {
			task.After = []api.TaskID{api.TaskID(fmt.Sprintf("c%d", i-1)), "c0"}
		}
		chain = append(chain, task)
	}
	for i := range 440 { // each after all before it
		task := Task{ID: api.TaskID(fmt.Sprintf("d%d", i))}
		for k := range i {
			task.After = append(task.After, dense[k].ID)
		}
		dense = append(dense, task)
	}
	for i := range 600 { // every edge counts, and no two tasks look alike
		task := Task{ID: api.TaskID(fmt.Sprintf("h%d", i)), Subagent: api.Name(fmt.Sprint("s", i))}
		if i >= 300 {
			for k := range 300 {
				task.After = append(task.After, halves[k].ID)
			}
		}
		halves = append(halves, task)
	}
	for name, tasks := range map[string][]Task{"a long chain": chain, "all after all": dense, "two halves": halves} {
		p := draw(t, tasks, View{})
		sound(t, tasks, p)
		if len(p.Edges) > maxEdges || len(p.Nodes) > MaxShown {
			t.Errorf("%s: %d nodes, %d edges", name, len(p.Nodes), len(p.Edges))
		}
		l := must(Lay(tasks, nil))
		if len(l.items) > maxBends+5*len(tasks) {
			t.Errorf("%s: %d items", name, len(l.items))
		}
		switch name {
		case "all after all":
			if len(p.Edges) != 439 || p.Implied != 440*439/2-439 {
				t.Errorf("%s: %d edges, %d implied", name, len(p.Edges), p.Implied)
			}
		case "two halves":
			if len(p.Edges) != maxEdges || p.MoreEdges != 300*300-maxEdges {
				t.Errorf("%s: %d edges, %d more", name, len(p.Edges), p.MoreEdges)
			}
		}
	}
}

func TestTheCacheKeepsTheNewestLayouts(t *testing.T) {
	var c Cache
	lay := func(open []string, lines ...string) *Layout {
		l, err := c.Lay(parse(t, lines...), open)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	first := lay(nil, "a", "b after a")
	if lay(nil, "a is done", "b after a is failed") != first {
		t.Error("the states of tasks give another layout")
	}
	for _, l := range []*Layout{lay([]string{"a"}, "a", "b after a"), lay(nil, "a", "b"), lay(nil, "a", "b after a by other"), lay(nil, "a", "b after a from a")} {
		if l == first {
			t.Error("other tasks give the same layout")
		}
	}
	for i := range cached {
		lay(nil, fmt.Sprint("x", i))
	}
	if lay(nil, "a", "b after a") == first || len(c.list) != cached {
		t.Errorf("the oldest of %d layouts was kept", len(c.list))
	}
	if _, err := c.Lay(parse(t, "a after a"), nil); err == nil {
		t.Error("the cache has a layout of a cycle")
	}
}

// FuzzLay lays out any tasks: each pair of bytes is a dependency.
func FuzzLay(f *testing.F) {
	f.Add([]byte{3, 1, 2, 1, 3, 2}, false)
	f.Add([]byte{40, 1, 2, 9, 3, 200, 4}, true)
	f.Fuzz(func(t *testing.T, b []byte, growth bool) {
		if len(b) == 0 {
			return
		}
		tasks := make([]Task, b[0])
		for i := range tasks {
			tasks[i] = Task{ID: api.TaskID(fmt.Sprint("t", i)), State: api.TaskStates()[i%10]}
		}
		for i := 1; i+1 < len(b) && len(tasks) > 0; i += 2 {
			from, to := int(b[i])%len(tasks), int(b[i+1])%len(tasks)
			if growth && i%4 == 1 {
				tasks[from].GrewFrom = tasks[to].ID
			} else {
				tasks[from].After = append(tasks[from].After, tasks[to].ID)
			}
		}
		l, err := Lay(tasks, []string{"t1", "t2:alike"})
		if err != nil {
			return
		}
		p, err := l.Draw(tasks, View{})
		if err != nil {
			t.Fatal(err)
		}
		sound(t, tasks, p)
	})
}

func BenchmarkLay10000(b *testing.B) {
	tasks := network(10_000, 100, 1)
	tasks[5000].State = api.TaskFailed
	for b.Loop() {
		draw(b, tasks, View{})
	}
}

func BenchmarkLay1000(b *testing.B) {
	tasks := network(1000, 30, 1)
	for b.Loop() {
		draw(b, tasks, View{})
	}
}
