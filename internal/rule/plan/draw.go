package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Layers are the tasks by their depth: those of one layer can run at once when the
// layers above are done.
func Layers(p *Plan) [][]int32 {
	depth := make([]int, len(p.Tasks))
	var layers [][]int32
	for _, i := range p.order {
		for _, d := range p.Deps(int(i)) {
			depth[i] = max(depth[i], depth[d]+1)
		}
		if depth[i] == len(layers) {
			layers = append(layers, nil)
		}
		layers[depth[i]] = append(layers[depth[i]], i)
	}
	for _, layer := range layers {
		slices.Sort(layer)
	}
	return layers
}

// Products describes what task i needs from another: "(patch as change)".
func Products(p *Plan, i int, from api.TaskID) []string {
	var all []string
	t := &p.Tasks[i]
	for _, name := range slices.Sorted(maps.Keys(t.Needs)) {
		n := t.Needs[name]
		what := n.Output
		switch {
		case n.From != from:
			continue
		case n.Patch:
			what = "patch"
		case n.Result:
			what = "result"
		}
		all = append(all, fmt.Sprintf("(%s as %s)", what, name))
	}
	if f := t.ForEach; f != nil && f.From == from {
		all = append(all, fmt.Sprintf("(for each %s)", f.Outputs+f.Items))
	}
	if w := t.When; w != nil && w.Task == from {
		all = append(all, fmt.Sprintf("(when %s is %s)", w.Result, w.Is))
	}
	return all
}

// Worker is what carries a task out: its subagent, or the people and reviewers.
func Worker(t *api.PlanTask) string {
	switch {
	case t.Quorum != nil:
		return fmt.Sprintf("votes: %d of %s", t.Quorum.Approve, strings.Join(t.Quorum.Of, ", "))
	case t.Approval != nil:
		people := make([]string, len(t.Approval.By))
		for i, by := range t.Approval.By {
			people[i] = string(by)
		}
		return fmt.Sprintf("approval: %d of %s", max(1, t.Approval.Count), strings.Join(people, ", "))
	}
	return string(t.Subagent)
}

// GrowthText describes the tasks that grow from a task.
func GrowthText(t *api.PlanTask) []string {
	var all []string
	if f := t.ForEach; f != nil && f.From == "" {
		all = append(all, fmt.Sprintf("for each of %d values", len(f.Values)))
	}
	if g := t.Gate; g != nil {
		all = append(all, fmt.Sprintf("gate %s, %s fixes at most %d", g.Verify.Subagent, g.Fix.Subagent, Fixes(g)))
		if g.Protected {
			all = append(all, "refuses a patch that changes what verify runs")
		}
	}
	return all
}

// Drawing is a graph of tasks in a language of drawing programs.
type Drawing []Node

// Node is a task of a Drawing.
type Node struct {
	Name  string
	Lines []string // below the name
	Grows bool     // tasks grow from it, or may
	Edges []Edge
}

// Edge is a dependency of a Node.
type Edge struct {
	From  int // index of the other Node
	Label string
	Grew  bool // the node grew from the other
}

// Draw returns the plan as a graph: each task that grows is one node.
func Draw(p *Plan) Drawing {
	d := make(Drawing, len(p.Tasks))
	for i := range p.Tasks {
		t := &p.Tasks[i]
		d[i] = Node{Name: string(t.ID), Lines: append([]string{Worker(t)}, GrowthText(t)...), Grows: Grows(t) || t.Gate != nil}
		for _, on := range p.Deps(i) {
			d[i].Edges = append(d[i].Edges, Edge{From: int(on), Label: strings.Join(Products(p, i, p.Tasks[on].ID), " ")})
		}
	}
	return d
}

// DOT is the drawing in Graphviz's language. What grows has two borders.
func (d Drawing) DOT() string {
	var b strings.Builder
	b.WriteString("digraph plan {\n  rankdir=LR;\n  node [shape=box, style=rounded];\n")
	for i, n := range d {
		lines := []string{dotText(n.Name)}
		for _, line := range n.Lines {
			lines = append(lines, dotText(line))
		}
		more := ""
		if n.Grows {
			more = ", peripheries=2"
		}
		fmt.Fprintf(&b, "  n%d [label=\"%s\"%s];\n", i, strings.Join(lines, `\n`), more)
	}
	for i, n := range d {
		for _, e := range n.Edges {
			var more []string
			if e.Label != "" {
				more = append(more, fmt.Sprintf("label=\"%s\"", dotText(e.Label)))
			}
			if e.Grew {
				more = append(more, "style=dashed")
			}
			fmt.Fprintf(&b, "  n%d -> n%d", e.From, i)
			if more != nil {
				fmt.Fprintf(&b, " [%s]", strings.Join(more, ", "))
			}
			b.WriteString(";\n")
		}
	}
	return b.String() + "}\n"
}

// dotText escapes a quoted text.
func dotText(s string) string { return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) }

// Mermaid is the drawing in Mermaid's language. What grows has two borders.
func (d Drawing) Mermaid() string {
	var b strings.Builder
	b.WriteString("flowchart LR\n")
	for i, n := range d {
		lines := []string{mermaidText(n.Name)}
		for _, line := range n.Lines {
			lines = append(lines, mermaidText(line))
		}
		open, end := "[", "]"
		if n.Grows {
			open, end = "[[", "]]"
		}
		fmt.Fprintf(&b, "  n%d%s\"%s\"%s\n", i, open, strings.Join(lines, "<br/>"), end)
	}
	for i, n := range d {
		for _, e := range n.Edges {
			arrow, label := "-->", ""
			if e.Grew {
				arrow = "-.->"
			}
			if e.Label != "" {
				label = fmt.Sprintf("|\"%s\"|", mermaidText(e.Label))
			}
			fmt.Fprintf(&b, "  n%d %s%s n%d\n", e.From, arrow, label, i)
		}
	}
	return b.String()
}

// mermaidText escapes a quoted text: everything that Mermaid or HTML could
// interpret is written as a number.
func mermaidText(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune(" ./_-()", r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, "#%d;", r)
		}
	}
	return b.String()
}
