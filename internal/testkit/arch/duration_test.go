package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// bounded are the files that may multiply a number by a unit of time, with what bounds
// the number. All others call api.Span, which does not overflow.
func bounded() map[string]string {
	return map[string]string{
		"api/artifact.go":                         "Span itself",
		"api/log.go":                              "16 bits of days",
		"internal/front/cli/token.go":             "16 bits of days",
		"internal/base/cron/cron.go":              "the offset of a zone",
		"internal/front/daemoncli/retention.go":   "at most 36525 days",
		"internal/verify/receipt/stamp.go":        "refused above 1<<32 seconds",
		"internal/worker/mcpclient/credential.go": "at most 1<<20 seconds",
	}
}

// multiplies reports whether a file multiplies a number that is not written there by a
// unit of time, as in time.Duration(n) * time.Second.
func multiplies(src any) (bool, error) {
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", src, parser.SkipObjectResolution)
	if err != nil {
		return false, err
	}
	number := func(e ast.Expr) bool {
		if neg, ok := e.(*ast.UnaryExpr); ok {
			e = neg.X
		}
		if product, ok := e.(*ast.BinaryExpr); ok && product.Op == token.MUL {
			e = product.X
			if neg, ok := e.(*ast.UnaryExpr); ok {
				e = neg.X
			}
		}
		call, ok := e.(*ast.CallExpr)
		if !ok || len(call.Args) != 1 || !strings.HasSuffix(named(call.Fun), "Duration") {
			return false
		}
		switch arg := call.Args[0].(type) {
		case *ast.BasicLit:
			return false
		case *ast.BinaryExpr: // of a float, which the conversion bounds
			return !strings.Contains(named(arg.X)+named(arg.Y), "float64")
		}
		return true
	}
	unit := func(e ast.Expr) bool {
		return slices.Contains([]string{"time.Microsecond", "time.Millisecond", "time.Second", "time.Minute", "time.Hour", "unit"}, named(e))
	}
	found := false
	ast.Inspect(f, func(n ast.Node) bool {
		if b, ok := n.(*ast.BinaryExpr); ok && b.Op == token.MUL && (number(b.X) && unit(b.Y) || unit(b.X) && number(b.Y)) {
			found = true
		}
		return !found
	})
	return found, nil
}

// named returns a name or a qualified one as it is written, of a call that of its
// function.
func named(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return named(e.X) + "." + e.Sel.Name
	case *ast.CallExpr:
		return named(e.Fun)
	}
	return ""
}

// A number from a request, an answer or a log becomes a duration without overflow. The
// controls are planted.
func TestNumbersBecomeDurationsWithoutOverflow(t *testing.T) {
	const root = "../../.."
	seen := map[string]bool{}
	for _, top := range []string{"api", "client", "cmd", "deploy", "internal"} {
		if err := filepath.WalkDir(filepath.Join(root, top), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			src, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			does, err := multiplies(src)
			if name, _ := filepath.Rel(root, path); does {
				seen[name] = true
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := slices.Sorted(maps.Keys(seen)), slices.Sorted(maps.Keys(bounded())); !slices.Equal(got, want) {
		t.Errorf("a number is multiplied by a unit in %q, the list has %q: use api.Span, or say what bounds the number", got, want)
	}
	for src, want := range map[string]bool{
		"time.Duration(n) * time.Second": true, "time.Second * time.Duration(r.Seconds)": true, "api.Duration(f()) * time.Hour": true,
		"-time.Duration(n) * 24 * time.Hour": true, "time.Duration(3) * time.Second": false, "3 * time.Second": false,
		"time.Duration(s * float64(time.Second))": false, "api.Span(n, time.Second)": false,
	} {
		if got, err := multiplies("package x\nvar _ = " + src + "\n"); err != nil || got != want {
			t.Errorf("planted %q: found %v, %v", src, got, err)
		}
	}
}
