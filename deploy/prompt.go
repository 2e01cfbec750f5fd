package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
)

// checkPrompt returns what is wrong with a prompt: it does not parse, or it names a
// member that the schema of the input does not have, which would fail each dispatch. A
// schema that admits further members explicitly, by additionalProperties, patterns or
// combinations of schemas, leaves the names below it open.
func checkPrompt(prompt string, input json.RawMessage) (problems []string) {
	t, err := template.New("prompt").Option("missingkey=error").Parse(prompt)
	if err != nil {
		return []string{strictyaml.OneLine(err.Error())}
	}
	var s jsonschema.Schema
	if len(input) == 0 || json.Unmarshal(input, &s) != nil || t.Tree == nil {
		return nil // any input; or reported with the schema
	}
	f := fields{prompt: prompt, schema: &s}
	f.list(t.Root, true)
	return f.problems
}

// fields walks a template. Definitions are left out: where they are called says what
// their dot is.
type fields struct {
	prompt   string
	schema   *jsonschema.Schema
	problems []string
}

// list checks the nodes of a list; root reports whether the dot is the input.
func (f *fields) list(l *parse.ListNode, root bool) {
	if l == nil {
		return
	}
	for _, n := range l.Nodes {
		switch n := n.(type) {
		case *parse.ActionNode:
			f.pipe(n.Pipe, root)
		case *parse.TemplateNode:
			f.pipe(n.Pipe, root)
		case *parse.IfNode:
			f.branch(&n.BranchNode, root, root)
		case *parse.RangeNode:
			f.branch(&n.BranchNode, root, false)
		case *parse.WithNode:
			f.branch(&n.BranchNode, root, false)
		}
	}
}

// branch checks a control structure, within which the dot may be another value.
func (f *fields) branch(b *parse.BranchNode, root, within bool) {
	f.pipe(b.Pipe, root)
	f.list(b.List, within)
	f.list(b.ElseList, root)
}

func (f *fields) pipe(p *parse.PipeNode, root bool) {
	if p == nil {
		return
	}
	for _, c := range p.Cmds {
		for _, arg := range c.Args {
			f.operand(arg, root)
		}
	}
}

func (f *fields) operand(n parse.Node, root bool) {
	switch n := n.(type) {
	case *parse.FieldNode:
		if root {
			f.path(n, n.Ident)
		}
	case *parse.VariableNode:
		if n.Ident[0] == "$" {
			f.path(n, n.Ident[1:])
		}
	case *parse.ChainNode:
		f.operand(n.Node, root)
	case *parse.PipeNode:
		f.pipe(n, root)
	}
}

// path reports the first name of a path that its schema does not have.
func (f *fields) path(n parse.Node, names []string) {
	at := f.schema
	for i, name := range names {
		if at == nil || open(at) {
			return
		}
		next, ok := at.Properties[name]
		if !ok {
			of := "the input"
			if i > 0 {
				of = strings.Join(names[:i], ".") + " of the input"
			}
			known := slices.Sorted(maps.Keys(at.Properties))
			f.problems = append(f.problems, fmt.Sprintf("%s: %s has no member %q%s", f.place(n), of, strictyaml.Clip(name), strictyaml.Suggestion(name, known)))
			return
		}
		at = next
	}
}

// open reports whether values that a schema admits may have members that it does not
// name.
func open(s *jsonschema.Schema) bool {
	further := len(s.Properties) == 0 // nothing is declared
	if s.AdditionalProperties != nil {
		further = !isFalse(s.AdditionalProperties)
	}
	combined := s.Ref != "" || s.DynamicRef != "" || len(s.AllOf)+len(s.AnyOf)+len(s.OneOf) > 0 || s.If != nil || s.Then != nil || s.Else != nil || len(s.DependentSchemas) > 0
	return further || combined || len(s.PatternProperties) > 0 || s.UnevaluatedProperties != nil && !isFalse(s.UnevaluatedProperties)
}

// isFalse reports whether a schema admits nothing.
func isFalse(s *jsonschema.Schema) bool {
	b, err := json.Marshal(s)
	return err == nil && string(b) == "false"
}

// place returns a node as it is written, with its line in a prompt of several.
func (f *fields) place(n parse.Node) string {
	text := strictyaml.Clip(n.String())
	if !strings.Contains(strings.TrimRight(f.prompt, "\n"), "\n") {
		return text
	}
	return fmt.Sprintf("line %d: %s", 1+strings.Count(f.prompt[:min(int(n.Position()), len(f.prompt))], "\n"), text)
}
