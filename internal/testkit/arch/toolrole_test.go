package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// toolTypes are the types that say what can be called, with those that a client reads.
func toolTypes() []string { return []string{"Tool", "RoleTool", "RoleTools"} }

// roleless lists the exported functions of a file that return tools and have no role
// among their parameters: an api.Name called role.
func roleless(file *ast.File) (found []string) {
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || !f.Name.IsExported() || f.Type.Results == nil || !mentions(f.Type.Results, toolTypes()) {
			continue
		}
		byRole := slices.ContainsFunc(f.Type.Params.List, func(p *ast.Field) bool {
			return mentions(p.Type, []string{"Name"}) && slices.ContainsFunc(p.Names, func(n *ast.Ident) bool { return n.Name == "role" })
		})
		if !byRole {
			found = append(found, f.Name.Name)
		}
	}
	return found
}

// mentions reports whether a part of the syntax names one of the types.
func mentions(n ast.Node, types []string) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && slices.Contains(types, id.Name) {
			found = true
		}
		return true
	})
	return found
}

// No exported function returns a tool without a role: the registry is a boundary, not a
// directory.
//
// proves R-G1
func TestNoFunctionReturnsToolsWithoutARole(t *testing.T) {
	dirs := []string{"api", "client", "internal/rule/catalog", "internal/run/dispatch", "internal/tool/gateway", "internal/rule/policy", "internal/front/server", "internal/state/inforce"}
	functions := 0
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, name := range roleless(file) {
				t.Errorf("%s: %s returns tools without a parameter role", path, name)
			}
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Name.IsExported() && f.Type.Results != nil && mentions(f.Type.Results, toolTypes()) {
					functions++
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if functions == 0 {
		t.Error("no function returns tools: the test looks for the wrong types")
	}
	// The check finds a planted violation of each shape.
	for _, planted := range []string{
		"func (r *Revision) AllTools() []api.Tool { return nil }",
		"func Find(name string) (*api.Tool, error) { return nil, nil }",
		"func Each(fn func()) map[string][]Tool { return nil }",
		"func (c *Client) Tools(ctx context.Context, rule api.Name) (api.RoleTools, error) { panic(0) }",
		"func Visit() func(yield func(api.RoleTool) bool) { return nil }",
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "planted.go", "package planted\n"+planted, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if len(roleless(file)) != 1 {
			t.Errorf("not found: %s", planted)
		}
	}
}
