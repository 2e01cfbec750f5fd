package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// starters lists the packages that may import os/exec, with what they start. One that
// is not here cannot run git, nor any other program.
func starters() map[string]string {
	return map[string]string{
		"internal/base/gitexec":      "git, in directories of ours",
		"internal/base/hostcommand":  "commands of the service's configuration",
		"internal/front/cli":         "programs in the folder of this one",
		"internal/front/console":     "the pager of the user",
		"internal/front/daemoncli":   "this program",
		"internal/front/installer":   "tools of systemd, and programs of the installation",
		"internal/front/deploycli":   "npm, to install agents",
		"internal/testkit/faultdisk": "the kernel's fault disk, in tests",
		"internal/testkit/machine":   "a machine with accounts, in tests",
		"internal/testkit/prebuilt":  "building programs, in tests",
		"internal/worker/jail":       "programs in jails",
		"internal/tool/toolclient":   "the tool host",
	}
}

// literals are the files outside gitexec that may have "git" as the first word of a
// command: the command runs in a jail.
func literals() []string { return []string{"internal/worker/sourcefetch/session.go"} }

// gitViolations returns what in a file of a package runs git, or could, around gitexec.
func gitViolations(name string, src any) (found []string) {
	f, err := parser.ParseFile(token.NewFileSet(), name, src, parser.SkipObjectResolution)
	if err != nil {
		return []string{err.Error()}
	}
	dir := filepath.Dir(name)
	for _, i := range f.Imports {
		if path, _ := strconv.Unquote(i.Path.Value); path == "os/exec" && starters()[dir] == "" {
			found = append(found, dir+" imports os/exec")
		}
	}
	if dir == "internal/base/gitexec" || slices.Contains(literals(), name) {
		return found
	}
	isGit := func(e ast.Expr) bool {
		lit, ok := e.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return false
		}
		text, _ := strconv.Unquote(lit.Value)
		return text == "git" || strings.HasSuffix(text, "/git") || strings.HasPrefix(text, "git ")
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			sel, ok := n.Fun.(*ast.SelectorExpr)
			if starts := ok && slices.Contains([]string{"Command", "CommandContext", "LookPath", "StartProcess", "ForkExec", "Exec"}, sel.Sel.Name); starts && slices.ContainsFunc(n.Args, isGit) {
				found = append(found, name+" runs git")
			}
		case *ast.CompositeLit:
			if a, ok := n.Type.(*ast.ArrayType); ok && a.Len == nil && len(n.Elts) > 0 && isGit(n.Elts[0]) {
				found = append(found, name+" has a command that is git")
			}
		}
		return true
	})
	return found
}

// Git runs in internal/base/gitexec alone, which takes no directory that it did not make:
// no use of git can read the configuration of somebody's repository. The controls are
// planted.
//
// proves R-P9
func TestOnlyOnePackageRunsGit(t *testing.T) {
	root := "../../.."
	seen := map[string]bool{}
	for _, top := range []string{"api", "client", "cmd", "deploy", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			src, err := os.ReadFile(path)
			for _, v := range gitViolations(name, src) {
				t.Error(v)
			}
			if strings.Contains(string(src), "\"os/exec\"\n") {
				seen[filepath.Dir(name)] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got, want := slices.Sorted(maps.Keys(seen)), slices.Sorted(maps.Keys(starters())); !slices.Equal(got, want) {
		t.Errorf("os/exec is imported by %q, the list has %q", got, want)
	}
	for src, want := range map[string]string{
		"package runcli\n\nimport _ \"os/exec\"\n":                                                "internal/front/runverbs imports os/exec",
		"package runcli\n\nfunc f() { exec.Command(\"git\", \"status\") }\n":                      "runs git",
		"package runcli\n\nfunc f() { exec.CommandContext(ctx, \"/usr/bin/git\") }\n":             "runs git",
		"package runcli\n\nfunc f() { syscall.ForkExec(\"/usr/bin/git\", nil, nil) }\n":           "runs git",
		"package runcli\n\nfunc f() { command.Run([]string{\"git\", \"-C\", repo, \"status\"}) }": "has a command that is git",
	} {
		if found := gitViolations("internal/front/runverbs/planted.go", src); !strings.Contains(strings.Join(found, "\n"), want) {
			t.Errorf("control: found %q in %s, want %q", found, src, want)
		}
	}
}
