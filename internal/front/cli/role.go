package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// roleVerbs are the verbs about roles and their tools.
type roleVerbs struct{ *findVerbs }

// shownRole is the JSON answer of role show.
type shownRole struct {
	api.ArtifactInfo
	Tools []api.RoleTool `json:"tools"`
}

func (t *roleVerbs) showCommand(v *console.Verb) {
	var schemas bool
	v.Do(func(ctx context.Context, args []string) error {
		var a console.Args
		name := a.Name("role", args[0])
		if a.Err != nil {
			return a.Err
		}
		return t.withConn(func(c *client.Conn) error { return t.showRole(ctx, c, name, schemas) })
	})
	v.Flag(&schemas, "schemas")
}

func (t *roleVerbs) showRole(ctx context.Context, c *client.Conn, name api.Name, schemas bool) error {
	who, err := c.Runtime().Who(ctx)
	if err != nil {
		return err
	}
	found, err := t.find(ctx, c, who, api.KindRole, name)
	if err != nil {
		return err
	}
	list, err := c.Runtime().RoleTools(ctx, name, schemas)
	if err != nil {
		return err
	}
	s := shownRole{found.ArtifactInfo, list.Tools}
	if t.Format != "text" {
		return t.Emit(s, string(name), nil)
	}
	return t.Page(func() error {
		t.printShown(found, who)
		for _, tool := range s.Tools {
			t.printTool(tool)
		}
		return nil
	})
}

// printTool prints a tool of a role as people decide about it, and as agents see it.
func (t *roleVerbs) printTool(tool api.RoleTool) {
	fmt.Fprintln(t.Stdout)
	t.Row("tool", "%s: %s", console.Line(tool.Tool), toolRules(tool))
	t.Row("agents see", "%s", console.Line(tool.Name))
	if words := strings.Trim(tool.Title+"\n"+tool.Description, "\n"); words != "" {
		t.Row("", "%s", console.AgentText(words)) // a server wrote it
	}
	t.OptionalRow("input", "%s", schemaText(tool.InputSchema))
	t.OptionalRow("output", "%s", schemaText(tool.OutputSchema))
}

// toolRules says what a call of a tool needs.
func toolRules(tool api.RoleTool) string {
	rules := []string{tool.Tier.String()}
	switch {
	case tool.Approval != nil:
		rules = append(rules, approvers(tool.Approvers)+" each call")
	case tool.Tainted == api.TaintedAsk:
		rules = append(rules, approvers(tool.Approvers)+" each call of a tainted dispatch")
	}
	if tool.Tainted == api.TaintedForbid {
		rules = append(rules, "closed to a tainted dispatch")
	}
	if !tool.Trusted {
		rules = append(rules, "taints the dispatch")
	}
	return strings.Join(rules, "; ")
}

func approvers(n int) string {
	if n == 1 {
		return "1 human approves"
	}
	return record.Plural(n, "human") + " approve"
}

// toolOfRole is a line of tool list.
type toolOfRole struct {
	Role api.Name `json:"role"`
	api.RoleTool
}

func (t *roleVerbs) toolListCommand(v *console.Verb) {
	var role string
	v.Do(func(ctx context.Context, _ []string) error {
		var a console.Args
		name := a.Name("role", role)
		if a.Err != nil {
			return a.Err
		}
		return t.withConn(func(c *client.Conn) error { return t.listTools(ctx, c, name) })
	})
	v.Flag(&role, "role")
}

// toolsByRole returns the tools of a role, or of each role that the caller may use.
func (t *findVerbs) toolsByRole(ctx context.Context, c *client.Conn, role api.Name) (list []api.RoleTools, err error) {
	roles := []api.ArtifactInfo{{Listing: api.Listing{Name: role}}}
	if role == "" {
		if roles, _, err = t.artifacts(ctx, c, api.Who{}, api.KindRole); err != nil {
			return nil, err
		}
	}
	for _, r := range roles {
		tools, err := c.Runtime().RoleTools(ctx, r.Name, false)
		if err != nil {
			return nil, err
		}
		list = append(list, tools)
	}
	return list, nil
}

func (t *roleVerbs) listTools(ctx context.Context, c *client.Conn, role api.Name) error {
	roles, err := t.toolsByRole(ctx, c, role)
	if err != nil {
		return err
	}
	var list []toolOfRole
	for _, r := range roles {
		for _, tool := range r.Tools {
			list = append(list, toolOfRole{r.Role, tool})
		}
	}
	if len(list) == 0 && t.Format == "text" {
		fmt.Fprintln(t.Stderr, "note: you may use no role; see: bailiwick can")
		return nil
	}
	return console.List(&t.Output, list, func(k toolOfRole) string { return "role:" + string(k.Role) + " " + k.Tool },
		"ROLE\tTOOL\tTIER\tAPPROVAL\tTAINTED\tDESCRIPTION", func(k toolOfRole) string {
			approval := "-"
			if k.Approval != nil {
				approval = record.Plural(k.Approvers, "human")
			}
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s", k.Role, console.Line(k.Tool), k.Tier, approval, console.Dash(string(k.Tainted)), console.Line(k.Description))
		})
}
