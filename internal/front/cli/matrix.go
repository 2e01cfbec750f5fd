package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

func (t *roleVerbs) matrixCommand(v *console.Verb) {
	v.Do(func(ctx context.Context, _ []string) error {
		return t.withConn(func(c *client.Conn) error { return t.matrix(ctx, c) })
	})
}

// matrixWidth is the width of a matrix where that of the terminal is unknown.
const matrixWidth = 80

func (t *roleVerbs) matrix(ctx context.Context, c *client.Conn) error {
	roles, err := t.toolsByRole(ctx, c, "")
	if err != nil {
		return err
	}
	if t.Format != "text" {
		return console.List(&t.Output, roles, func(r api.RoleTools) string { return string(r.Role) }, "", nil)
	}
	if len(roles) == 0 {
		fmt.Fprintln(t.Stderr, "note: you may use no role; see: bailiwick can")
		return nil
	}
	width, _ := t.Size()
	if !t.Screen || width < matrixWidth {
		width = matrixWidth
	}
	return t.Page(func() error {
		_, err := fmt.Fprint(t.Stdout, drawMatrix(roles, width))
		return err
	})
}

// drawMatrix draws a row for each tool and a column for each role, in as many blocks
// as the width requires.
func drawMatrix(roles []api.RoleTools, width int) string {
	cells := map[string]map[api.Name]string{}
	first := len("TOOL")
	for _, r := range roles {
		for _, tool := range r.Tools {
			first = max(first, console.Columns(console.Line(tool.Tool)))
			if cells[tool.Tool] == nil {
				cells[tool.Tool] = map[api.Name]string{}
			}
			cells[tool.Tool][r.Role] = matrixCell(tool)
		}
	}
	first = min(first, width/2)
	tools := slices.Sorted(maps.Keys(cells))
	var b strings.Builder
	for len(roles) > 0 {
		if b.Len() > 0 {
			b.WriteString("\n")
		}
		lines := make([]string, len(tools)+1)
		lines[0] = console.Pad("TOOL", first)
		for i, name := range tools {
			lines[i+1] = console.Pad(console.Line(name), first)
		}
		for n := 0; len(roles) > 0; n++ {
			role := roles[0].Role
			column := len(role)
			for _, name := range tools {
				column = max(column, len(cells[name][role]))
			}
			if column = min(column, width-first-2); n > 0 && console.Columns(lines[0])+2+column > width {
				break
			}
			lines[0] += "  " + console.Pad(string(role), column)
			for i, name := range tools {
				lines[i+1] += "  " + console.Pad(console.Dash(cells[name][role]), column)
			}
			roles = roles[1:]
		}
		for _, line := range lines {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
		}
	}
	return b.String()
}

// matrixCell says in a few characters what a call needs.
func matrixCell(tool api.RoleTool) string {
	cell := tool.Tier.String()
	if tool.Approval != nil {
		cell += fmt.Sprintf(" +%d", tool.Approvers)
	}
	if tool.Tainted == api.TaintedForbid {
		cell += " !"
	}
	return cell
}
