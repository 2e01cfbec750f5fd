package failpoint

import (
	"bytes"
	"debug/elf"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	root = "../../.."
	self = "internal/base/failpoint"
	// marker is Marker, which only a build with failpoints has.
	marker = "bailiwick failpoints are built in"
)

// declared returns the constants of type Name by their identifiers.
func declared(t *testing.T) map[string]Name {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "name.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]Name{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if ok {
			names[spec.Names[0].Name] = Name(strings.Trim(spec.Values[0].(*ast.BasicLit).Value, `"`))
		}
		return true
	})
	return names
}

// placed returns how often the code passes each identifier to Hit, and reports
// calls that pass anything else.
func placed(t *testing.T) map[string]int {
	t.Helper()
	found := map[string]int{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin") {
			return filepathSkip(err)
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || selector(call.Fun) != "Hit" {
				return true
			}
			name := selector(call.Args[0])
			if name == "" {
				t.Errorf("%s: Hit with a name outside the list", path)
			}
			found[name]++
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func filepathSkip(err error) error {
	if err != nil {
		return err
	}
	return filepath.SkipDir
}

// selector is the name in failpoint.NAME, or nothing.
func selector(e ast.Expr) string {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if pkg, ok := s.X.(*ast.Ident); !ok || pkg.Name != "failpoint" {
		return ""
	}
	return s.Sel.Name
}

func TestTheListOfNamesMatchesTheCallsOfHit(t *testing.T) {
	names, calls := declared(t), placed(t)
	for ident, name := range names {
		if !slices.Contains(Names(), name) {
			t.Errorf("%s is declared, but not in Names", ident)
		}
		if calls[ident] == 0 {
			t.Errorf("%s is never passed to Hit", ident)
		}
	}
	for ident := range calls {
		if _, ok := names[ident]; !ok {
			t.Errorf("%s is passed to Hit, but not declared", ident)
		}
	}
	if len(Names()) != len(names) {
		t.Errorf("%d names are listed, %d declared", len(Names()), len(names))
	}
}

// The control is the same check on a build with the tag.
func TestReleaseBuildsHaveNoFailpoints(t *testing.T) {
	for _, tags := range []string{"", "failpoints"} {
		programs := []string{"bailiwickd", "bailiwick-worker"}
		if tags == "" {
			programs = append(programs, "bailiwick", "bailiwick-deploy", "bailiwick-fetch", "bailiwick-toolhost")
		}
		for _, program := range programs {
			out := filepath.Join(t.TempDir(), program)
			build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", tags, "-o", out, root+"/cmd/"+program)
			build.Env = append(os.Environ(), "CGO_ENABLED=0") // as the programs are built
			if said, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			code, text := linked(t, out)
			if tags == "" && (len(code) > 0 || text) {
				t.Errorf("%s has failpoints: %q %v", program, code, text)
			}
			if tags != "" && (len(code) == 0 || !text) {
				t.Errorf("control: no failpoints found in %s: %q %v", program, code, text)
			}
		}
	}
}

// linked returns the symbols of this package in a program, and whether it has
// the marker.
func linked(t *testing.T, program string) (symbols []string, text bool) {
	t.Helper()
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if strings.Contains(s.Name, self) {
			symbols = append(symbols, s.Name)
		}
	}
	return symbols, bytes.Contains(b, []byte(marker))
}
