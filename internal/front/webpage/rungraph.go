package webpage

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/webpage/graph"
)

const (
	graphRows = 200 // of the table
	maxOpen   = 50  // nodes that a request can open
	maxAfter  = 8   // dependencies that a row lists
)

// graphPage is the graph of a run, and the same as a table.
type graphPage struct {
	api.Run
	Counts   string
	Problem  string // why there is no picture
	Picture  *graph.Picture
	Nodes    []graphNode
	Chosen   *api.RunTask // that is traced to its roots
	Grown    int          // tasks that grew from it
	OpenLink string       // shows them
	Reset    string       // shows the graph as it is at first
	Rows     []graphRow
	Found    int // rows in all pages
	From     int // number of the first row, from 1
	Next     string
	Previous string
	Filter   url.Values
	States   []string
}

type graphNode struct {
	graph.Node
	Link string
	Here bool // it has the task that is traced
}

// TextX and the others are where the lines of text of a node begin.
func (n graphNode) TextX() int { return n.X + 10 }

// LabelY is the baseline of the first line.
func (n graphNode) LabelY() int { return n.Y + 18 }

// SubY is the baseline of the second line.
func (n graphNode) SubY() int { return n.Y + 35 }

type graphRow struct {
	api.RunTask
	Trace string
	First []api.TaskID // of After
	More  int
}

// graph draws the tasks of a run and lists them.
func (s *runPages) graph(r *http.Request) (*view, error) {
	id, err := api.ParseRunID(r.PathValue("id"))
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "%w", err)
	}
	run, err := s.runtime(r.Context()).WholeRun(r.Context(), id)
	if err != nil {
		return nil, err
	}
	p := &graphPage{Run: run, Counts: graph.CountsText(run.Counts), Filter: given(r), States: words(api.TaskStates()), Reset: r.URL.Path}
	if err := p.draw(r, &s.layouts); err != nil {
		return nil, err
	}
	if err := p.list(r); err != nil {
		return nil, err
	}
	p.Tasks = nil
	return &view{"graph", "Graph of run " + string(run.RunID), p}, nil
}

// draw adds the picture. Tasks that are not a graph have only the table.
func (p *graphPage) draw(r *http.Request, layouts *graph.Cache) error {
	tasks := make([]graph.Task, len(p.Tasks))
	for i := range p.Tasks {
		t := &p.Tasks[i]
		tasks[i] = graph.Task{ID: t.Task, After: t.After, GrewFrom: t.GrewFrom, Subagent: t.Subagent, State: t.State}
	}
	open := p.Filter["open"]
	if len(open) > maxOpen {
		return api.Errorf(api.CodeInvalid, "open: at most %d nodes", maxOpen)
	}
	layout, err := layouts.Lay(tasks, open)
	if err != nil {
		p.Problem = err.Error()
		return nil //nolint:nilerr // the page says it, and has the table
	}
	trace := api.TaskID(p.Filter.Get("trace"))
	if p.Picture, err = layout.Draw(tasks, graph.View{Trace: trace}); err != nil {
		return err
	}
	for i := range p.Picture.Nodes {
		n := &p.Picture.Nodes[i]
		node := graphNode{Node: *n}
		switch n.Kind {
		case graph.KindRest:
			node.Link = linkWith(r, "rest", string(n.Task), "from", "") + "#tasks"
		case graph.KindAlike:
			node.Link = p.opened(r, n.Key)
		default:
			node.Link = linkWith(r, "trace", string(n.Task))
		}
		for _, t := range n.Tasks {
			if trace != "" && tasks[t].ID == trace {
				node.Here, p.Chosen = true, &p.Tasks[t]
				if n.Kind == graph.KindGrowth && n.Task == trace {
					p.Grown, p.OpenLink = len(n.Tasks)-1, p.opened(r, n.Key)
				}
			}
		}
		p.Nodes = append(p.Nodes, node)
	}
	return nil
}

// opened is the address of this page with a node drawn as its parts.
func (p *graphPage) opened(r *http.Request, key string) string {
	q := given(r)
	q.Add("open", key)
	return r.URL.Path + "?" + q.Encode()
}

// list adds the rows of the table that the query selects.
func (p *graphPage) list(r *http.Request) error {
	from, err := number(p.Filter, "from", 1, 1, api.MaxRunTasks)
	if err != nil {
		return err
	}
	state := api.TaskState(p.Filter.Get("state"))
	if state != "" && !slices.Contains(api.TaskStates(), state) {
		return api.Errorf(api.CodeInvalid, "state %.40q: want one of %s", state, strings.Join(p.States, ", "))
	}
	in := p.inRest(api.TaskID(p.Filter.Get("rest")))
	for i := range p.Tasks {
		t := &p.Tasks[i]
		if state != "" && t.State != state || !strings.Contains(string(t.Task), p.Filter.Get("task")) || in != nil && !in[i] {
			continue
		}
		if p.Found++; p.Found >= from && len(p.Rows) < graphRows {
			first := t.After[:min(len(t.After), maxAfter)]
			p.Rows = append(p.Rows, graphRow{*t, linkWith(r, "trace", string(t.Task)), first, len(t.After) - len(first)})
		}
	}
	p.From = from
	if last := from + len(p.Rows); last <= p.Found {
		p.Next = linkWith(r, "from", strconv.Itoa(last)) + "#tasks"
	}
	if from > 1 {
		p.Previous = linkWith(r, "from", strconv.Itoa(max(1, from-graphRows))) + "#tasks"
	}
	return nil
}

// inRest has the tasks of the node of those that are not drawn whose first is named;
// nil selects all tasks.
func (p *graphPage) inRest(first api.TaskID) map[int]bool {
	if first == "" || p.Picture == nil {
		return nil
	}
	in := map[int]bool{}
	for i := range p.Picture.Nodes {
		if n := &p.Picture.Nodes[i]; n.Kind == graph.KindRest && n.Task == first {
			for _, t := range n.Tasks {
				in[t] = true
			}
		}
	}
	return in
}
