package graph

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/bailiwick-dev/bailiwick/api"
)

const (
	// maxFocus is how many nodes of a large run are shown for their states.
	maxFocus = 300
	// maxAround is how many are shown in all, with their neighbours.
	maxAround = 1200
	// maxEdges is how many edges a picture has.
	maxEdges = 8000
)

// Picture is what a page shows of a run: boxes and curves in pixels.
type Picture struct {
	Width, Height int
	Nodes         []Node // by column, from top to bottom
	Edges         []Edge
	Implied       int  // dependencies that follow from others and are not drawn
	MoreEdges     int  // dependencies between shown nodes that are too many to draw
	Folded        bool // it has nodes of KindRest: not all tasks are shown
	Traced        bool // a task is traced to its roots
}

// Node is a box.
type Node struct {
	Key                 string // for open; empty of KindRest
	Kind                Kind
	X, Y, Width, Height int
	Label, Sub          string // two lines that fit
	Title               string // the same in full
	Task                api.TaskID
	Tasks               []int // indices of the tasks that it stands for, of KindTask one
	Counts              map[api.TaskState]int
	State               api.TaskState // of the task, or the state among them that needs a reader most
	Column              int           // of KindRest the first
	Traced              bool
}

// Edge is a curve from one node to another.
type Edge struct {
	From, To string // keys
	Path     string // of an SVG path
	Grown    bool   // To grew from From
	Traced   bool
}

// View selects what a picture shows.
type View struct {
	Trace api.TaskID // traced to its roots, and shown with one hop around it; empty: none
}

// Draw draws a layout with the states of its tasks, which have the order that it was
// laid out in.
func (l *Layout) Draw(tasks []Task, v View) (*Picture, error) {
	if len(tasks) != len(l.of) {
		return nil, fmt.Errorf("graph: %d tasks, and the layout has %d", len(tasks), len(l.of))
	}
	d := &drawing{Layout: l, tasks: tasks, traced: make([]bool, len(l.list)), states: make([]api.TaskState, len(l.list))}
	for i := range l.list {
		d.states[i] = stateOf(tasks, &l.list[i])
	}
	d.Implied = l.hidden
	if v.Trace != "" {
		at := slices.IndexFunc(tasks, func(t Task) bool { return t.ID == v.Trace })
		if at < 0 {
			return nil, api.Errorf(api.CodeNotFound, "graph: no task %.150q", v.Trace)
		}
		d.Traced, d.root = true, l.of[at]
		d.trace(d.root)
	}
	if l.y != nil {
		d.whole()
	} else {
		d.part()
	}
	return &d.Picture, nil
}

type drawing struct {
	*Layout
	Picture
	tasks  []Task
	states []api.TaskState // of each vertex
	traced []bool
	root   int // of the trace
}

// trace marks a vertex and all that it depends on.
func (d *drawing) trace(at int) {
	for stack := []int{at}; len(stack) > 0; {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if !d.traced[i] {
			d.traced[i] = true
			stack = append(stack, d.list[i].after...)
		}
	}
}

// whole draws all vertices.
func (d *drawing) whole() {
	for k, column := range d.columns {
		for _, i := range column {
			if d.items[i].vertex >= 0 {
				d.add(d.node(i), k, d.y[i])
			}
		}
	}
	for i := range d.chains {
		c := &d.chains[i]
		p := penAt(d.column[c.from], d.y[c.from])
		if len(c.items) > 0 {
			for _, at := range c.items[1 : len(c.items)-1] {
				p.to(d.items[at].column, d.y[at])
				p.across()
			}
		}
		p.to(d.column[c.to], d.y[c.to])
		d.join(c.edge, string(p.path))
	}
}

// part draws what failed, waits or runs and what is traced, with one hop around it; the
// other vertices of a column are one node, and so are columns without any shown.
func (d *drawing) part() {
	shown := d.focus()
	var items []item
	var columns [][]int
	var rests [][]int                  // vertices of the node of KindRest, for each column
	var first []int                    // layout's column of each column
	number := make([]int, len(d.list)) // item of each shown vertex
	for k := range d.columns {
		var column, rest []int
		for _, i := range d.columns[k] {
			switch v := d.items[i].vertex; {
			case v < 0:
			case shown[v]:
				number[v] = len(items)
				column = append(column, len(items))
				items = append(items, item{vertex: v})
			default:
				rest = append(rest, v)
			}
		}
		if last := len(columns) - 1; last >= 0 && len(column) == 0 && len(columns[last]) == 0 {
			rests[last] = append(rests[last], rest...)
			continue
		}
		columns, rests, first = append(columns, column), append(rests, rest), append(first, k)
	}
	for _, e := range d.edges {
		if shown[e.from] && shown[e.to] {
			from, to := number[e.from], number[e.to]
			items[from].next, items[to].prev = append(items[from].next, to), append(items[to].prev, from)
		}
	}
	for k := range columns {
		if len(rests[k]) > 0 {
			columns[k] = append(columns[k], len(items))
			items = append(items, item{vertex: len(d.list) + k})
		}
		for _, i := range columns[k] {
			items[i].column = k
		}
	}
	y := place(items, columns)
	for k, column := range columns {
		for _, i := range column {
			if v := items[i].vertex; v < len(d.list) {
				d.add(d.node(v), k, y[i])
			} else {
				d.add(d.rest(rests[k], first[k]), k, y[i])
			}
		}
	}
	for _, e := range d.edges {
		if shown[e.from] && shown[e.to] {
			from, to := number[e.from], number[e.to]
			p := penAt(items[from].column, y[from])
			p.to(items[to].column, y[to])
			d.join(e, string(p.path))
		}
	}
}

// focus selects the vertices of a large run that are shown.
func (d *drawing) focus() []bool {
	var wanted []int
	for i := range d.list {
		if urgency(d.states[i]) < urgency(api.TaskReady) {
			wanted = append(wanted, i)
		}
	}
	slices.SortStableFunc(wanted, func(a, b int) int { return cmp.Compare(urgency(d.states[a]), urgency(d.states[b])) })
	wanted = wanted[:min(len(wanted), maxFocus)]
	if d.Traced {
		// The task itself first, then the nearest that it depends on.
		traced := []int{d.root}
		seen := map[int]bool{d.root: true}
		for at := 0; at < len(traced) && len(traced) < maxFocus; at++ {
			for _, on := range d.list[traced[at]].after {
				if !seen[on] && len(traced) < maxFocus {
					seen[on], traced = true, append(traced, on)
				}
			}
		}
		wanted = append(traced, wanted...)
	}
	shown, n := make([]bool, len(d.list)), 0
	show := func(i int) {
		if !shown[i] && n < maxAround {
			shown[i] = true
			n++
		}
	}
	for _, i := range wanted {
		show(i)
	}
	for _, i := range wanted {
		for _, next := range d.list[i].after {
			show(next)
		}
		for _, next := range d.list[i].before {
			show(next)
		}
	}
	return shown
}

// add puts a node at a column, its middle at y.
func (d *drawing) add(n Node, column int, y float64) {
	n.X, n.Y, n.Width, n.Height = left(column), int(y)-NodeHeight/2, NodeWidth, NodeHeight
	d.Width, d.Height = max(d.Width, n.X+n.Width+margin), max(d.Height, n.Y+n.Height+margin)
	d.Nodes = append(d.Nodes, n)
}

// join adds an edge.
func (d *drawing) join(e edge, path string) {
	if len(d.Edges) == maxEdges {
		d.MoreEdges++
		return
	}
	d.Edges = append(d.Edges, Edge{
		From: d.list[e.from].key, To: d.list[e.to].key, Path: path,
		Grown: d.list[e.to].grew == e.from, Traced: d.Traced && d.traced[e.from] && d.traced[e.to],
	})
}

// left is the left edge of a column.
func left(column int) int { return margin + column*(NodeWidth+columnGap) }

// pen draws a path.
type pen struct {
	path []byte
	x, y int
}

// penAt starts at the right edge of a node.
func penAt(column int, y float64) *pen {
	p := &pen{x: left(column) + NodeWidth, y: int(y)}
	p.write("M", p.x, p.y)
	return p
}

func (p *pen) write(command string, numbers ...int) {
	p.path = append(p.path, command...)
	for i, n := range numbers {
		if i > 0 {
			p.path = append(p.path, ' ')
		}
		p.path = strconv.AppendInt(p.path, int64(n), 10)
	}
}

// to draws a curve to the left edge of a column.
func (p *pen) to(column int, y float64) {
	x, end := left(column), int(y)
	if end == p.y {
		p.write("H", x)
	} else {
		middle := (p.x + x) / 2
		p.write("C", middle, p.y, middle, end, x, end)
	}
	p.x, p.y = x, end
}

// across draws a line to the right edge of the column.
func (p *pen) across() {
	p.x += NodeWidth
	p.write("H", p.x)
}
