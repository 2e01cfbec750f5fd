package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// concurrent returns what in a file starts a goroutine or shares memory between some,
// or could: an import of what does, a go statement, a parallel test.
func concurrent(file string, src any) (found []string, err error) {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, file, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, i := range f.Imports {
		path, _ := strconv.Unquote(i.Path.Value)
		if first, _, _ := strings.Cut(path, "/"); first == "sync" || first == "net" || path == "testing/synctest" || path == "os/signal" {
			found = append(found, path)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = append(found, "go")
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && (s.Sel.Name == "Parallel" || s.Sel.Name == "AfterFunc") {
				found = append(found, s.Sel.Name)
			}
		}
		return true
	})
	return found, nil
}

// The packages that the Makefile tests without the race detector, because they are
// sequential, are so. The controls are planted.
func TestOnlySequentialPackagesAreNotRaced(t *testing.T) {
	touch(t)
	b, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^SEQUENTIAL := ((?:.*\\\n)*.*)$`).FindSubmatch(b)
	if list == nil {
		t.Fatal("the Makefile lists no SEQUENTIAL packages")
	}
	for dir := range strings.FieldsSeq(strings.ReplaceAll(string(list[1]), "\\", " ")) {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s: %d files, %v", dir, len(files), err)
		}
		for _, file := range files {
			found, err := concurrent(file, nil)
			if err != nil || len(found) > 0 {
				t.Errorf("%s uses %q, %v: take %s from SEQUENTIAL", file, found, err, dir)
			}
		}
	}
	for src, want := range map[string]bool{
		`import "strings"; var _ = strings.Cut`:    false,
		`import "sync/atomic"; var n atomic.Int64`: true, `import "net/http"`: true, `import "testing/synctest"`: true,
		"func f() { go f() }": true, "func f(t *testing.T) { t.Parallel() }": true, "func f() { time.AfterFunc(1, f) }": true,
	} {
		if found, err := concurrent("planted.go", "package planted\n"+src); err != nil || (len(found) > 0) != want {
			t.Errorf("planted %q: found %q, %v", src, found, err)
		}
	}
}
