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
func (p *Plan) Layers() [][]int32 {
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
func (p *Plan) Products(i int, from api.TaskID) []string {
	var all []string
	needs := p.Tasks[i].Needs
	for _, name := range slices.Sorted(maps.Keys(needs)) {
		n := needs[name]
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
	return all
}

// DOT is the plan in Graphviz's language.
func (p *Plan) DOT() string {
	var b strings.Builder
	b.WriteString("digraph plan {\n  rankdir=LR;\n  node [shape=box, style=rounded];\n")
	for i, t := range p.Tasks {
		fmt.Fprintf(&b, "  n%d [label=\"%s\\n%s\"];\n", i, dotText(string(t.ID)), dotText(string(t.Subagent)))
	}
	for i := range p.Tasks {
		for _, d := range p.Deps(i) {
			fmt.Fprintf(&b, "  n%d -> n%d", d, i)
			if products := p.Products(i, p.Tasks[d].ID); products != nil {
				fmt.Fprintf(&b, " [label=\"%s\"]", dotText(strings.Join(products, " ")))
			}
			b.WriteString(";\n")
		}
	}
	return b.String() + "}\n"
}

// dotText escapes a quoted text.
func dotText(s string) string { return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) }

// Mermaid is the plan in Mermaid's language.
func (p *Plan) Mermaid() string {
	var b strings.Builder
	b.WriteString("flowchart LR\n")
	for i, t := range p.Tasks {
		fmt.Fprintf(&b, "  n%d[\"%s<br/>%s\"]\n", i, mermaidText(string(t.ID)), mermaidText(string(t.Subagent)))
	}
	for i := range p.Tasks {
		for _, d := range p.Deps(i) {
			label := ""
			if products := p.Products(i, p.Tasks[d].ID); products != nil {
				label = fmt.Sprintf("|\"%s\"|", mermaidText(strings.Join(products, " ")))
			}
			fmt.Fprintf(&b, "  n%d -->%s n%d\n", d, label, i)
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
