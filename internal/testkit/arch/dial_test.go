package arch

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// world has the export data that type-checking a package needs.
type world struct {
	fset *token.FileSet
	pkgs map[string]listed
	gc   types.Importer
	fake map[string]*types.Package // packages of other systems

	parsed map[string]*ast.File // files by their path
}

func loadWorld(t *testing.T) *world {
	t.Helper()
	touch(t)
	w := &world{fset: token.NewFileSet(), pkgs: loaded(t), fake: map[string]*types.Package{}, parsed: map[string]*ast.File{}}
	w.gc = importer.ForCompiler(w.fset, "gc", func(path string) (io.ReadCloser, error) {
		file := w.pkgs[path].Export
		if file == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(file)
	})
	return w
}

// Import implements types.Importer. A package of another system is empty; its
// members are matched by name.
func (w *world) Import(path string) (*types.Package, error) {
	if path == "unsafe" || w.pkgs[path].Export != "" {
		return w.gc.Import(path)
	}
	if w.fake[path] == nil {
		w.fake[path] = types.NewPackage(path, path[strings.LastIndex(path, "/")+1:])
		w.fake[path].MarkComplete()
	}
	return w.fake[path], nil
}

// denied maps the objects that dials lists to their names in the policy.
func (w *world) denied() (map[types.Object]string, []string) { return w.objects(dials()) }

// objects maps the objects of a table to their names in it.
func (w *world) objects(table map[string][]string) (map[types.Object]string, []string) {
	found, bad := map[types.Object]string{}, []string{}
	for path, names := range table {
		if w.pkgs[path].Export == "" {
			continue // not imported
		}
		p, err := w.Import(path)
		if err != nil {
			return nil, []string{err.Error()}
		}
		for _, name := range names {
			kind, member, _ := strings.Cut(name, ".")
			obj := p.Scope().Lookup(kind)
			if member != "" && obj != nil {
				obj, _, _ = types.LookupFieldOrMethod(obj.Type(), true, p, member)
			}
			if obj == nil {
				bad = append(bad, "the table names "+path+"."+name+", which does not exist")
				continue
			}
			found[obj] = path + "." + name
		}
	}
	return found, bad
}

// finding is the use of a denied object by a package of the module.
type finding struct{ pkg, what, where string }

func (f finding) String() string { return f.where + ": " + f.pkg + " uses " + f.what }

// parse returns the syntax of a file. Its content is src, if that is not nil.
func (w *world) parse(file string, src any) (*ast.File, error) {
	if f := w.parsed[file]; f != nil && src == nil {
		return f, nil
	}
	f, err := parser.ParseFile(w.fset, file, src, parser.ParseComments|parser.SkipObjectResolution)
	if err == nil && src == nil {
		w.parsed[file] = f
	}
	return f, err
}

// inspect returns the denied objects that p uses in any of its files. Files excluded
// on this system are checked together with the others, ignoring type errors, and so is
// a planted one.
func (w *world) inspect(p listed, denied map[types.Object]string, planted string) (found []finding, bad []string) {
	name := strings.TrimPrefix(p.ImportPath, module)
	var here, elsewhere []*ast.File
	parse := func(file string, src any) {
		f, err := w.parse(file, src)
		if err != nil {
			bad = append(bad, err.Error())
		} else if src != nil || slices.Contains(p.IgnoredGoFiles, filepath.Base(file)) {
			elsewhere = append(elsewhere, f)
		} else {
			here = append(here, f)
		}
	}
	for _, file := range slices.Concat(p.GoFiles, p.CgoFiles, p.IgnoredGoFiles) {
		if !strings.HasSuffix(file, "_test.go") {
			parse(filepath.Join(p.Dir, file), nil)
		}
	}
	if planted != "" {
		parse(filepath.Join(p.Dir, "planted.go"), planted)
	}
	check := func(files []*ast.File, strict bool) {
		info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}}
		cfg := types.Config{Importer: w, FakeImportC: true, Error: func(err error) {
			if strict {
				bad = append(bad, name+" cannot be checked: "+err.Error())
			}
		}}
		_, _ = cfg.Check(p.ImportPath, w.fset, files, info) // errors went to Error
		for _, f := range files {
			v := &visitor{w: w, pkg: name, info: info, denied: denied}
			ast.Walk(v, f)
			found = append(found, v.found...)
			found = append(found, v.comments(f)...)
		}
	}
	if planted == "" {
		check(here, true)
	}
	if len(elsewhere) > 0 {
		check(slices.Concat(elsewhere, here), false)
	}
	return found, bad
}

type visitor struct {
	w      *world
	pkg    string
	info   *types.Info
	denied map[types.Object]string
	stack  []ast.Node
	found  []finding
}

func (v *visitor) Visit(n ast.Node) ast.Visitor {
	if n == nil {
		v.stack = v.stack[:len(v.stack)-1]
		return nil
	}
	v.stack = append(v.stack, n)
	switch n := n.(type) {
	case *ast.ImportSpec:
		if path, err := strconv.Unquote(n.Path.Value); err == nil && slices.Contains(dialImports(), path) {
			v.add(n, "package "+path)
		}
	case *ast.Ident:
		if what, ok := v.denied[v.info.Uses[n]]; ok && (what != "net/http.Client" || !v.pointed()) {
			v.add(n, what)
		}
	case *ast.SelectorExpr:
		// Members of another system are matched by name.
		if x, ok := n.X.(*ast.Ident); ok {
			if p, ok := v.info.Uses[x].(*types.PkgName); ok && v.w.fake[p.Imported().Path()] != nil && lists(p.Imported().Path(), n.Sel.Name) {
				v.add(n, p.Imported().Path()+"."+n.Sel.Name)
			}
		}
	case *ast.CompositeLit:
		if what := v.made(n); what != "" {
			v.add(n, what)
		}
	case *ast.CallExpr:
		v.call(n)
	}
	return v
}

func (v *visitor) add(n ast.Node, what string) {
	v.found = append(v.found, finding{v.pkg, what, v.w.fset.Position(n.Pos()).String()})
}

// pointed reports whether the type just visited is the element of a pointer type.
func (v *visitor) pointed() bool {
	for i := len(v.stack) - 2; i >= 0; i-- {
		switch v.stack[i].(type) {
		case *ast.SelectorExpr, *ast.ParenExpr:
		case *ast.StarExpr:
			return true
		default:
			return false
		}
	}
	return false
}

// made returns the type of a composite literal without a type of its own.
func (v *visitor) made(n *ast.CompositeLit) string {
	if n.Type != nil {
		return "" // found by its name
	}
	kind := v.info.Types[n].Type
	if p, ok := kind.(*types.Pointer); ok {
		kind = p.Elem()
	}
	if named, ok := kind.(*types.Named); ok {
		return v.denied[named.Obj()]
	}
	return ""
}

// call checks that a call listed in given has its option.
func (v *visitor) call(n *ast.CallExpr) {
	option, ok := given()[v.called(n)]
	if !ok {
		return
	}
	for _, arg := range n.Args {
		if c, ok := arg.(*ast.CallExpr); ok && v.called(c) == option {
			return
		}
	}
	v.add(n, v.called(n)+" without "+option)
}

func (v *visitor) called(n *ast.CallExpr) string {
	sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if obj := v.info.Uses[sel.Sel]; obj != nil && obj.Pkg() != nil {
		return obj.Pkg().Path() + "." + obj.Name()
	}
	return ""
}

// comments finds directives that reach unexported members of other packages.
func (v *visitor) comments(f *ast.File) (found []finding) {
	for _, group := range f.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, "//go:linkname") {
				found = append(found, finding{v.pkg, "go:linkname", v.w.fset.Position(c.Pos()).String()})
			}
		}
	}
	return found
}

// lists reports whether dials lists a name of a package or of its counterpart on
// another system.
func lists(path, name string) bool {
	if path == "golang.org/x/sys/windows" || path == "golang.org/x/sys/plan9" {
		path = "golang.org/x/sys/unix"
	}
	return slices.Contains(dials()[path], name)
}

// dialling returns the violations of the dial policy. planted adds the source of one
// file, by package.
func dialling(w *world, planted map[string]string) []string {
	denied, bad := w.denied()
	used := map[string]bool{}
	for path, p := range w.pkgs {
		name, ours := strings.CutPrefix(path, module)
		if !ours || slices.ContainsFunc(dialExempt(), func(e string) bool { return name == e || strings.HasPrefix(name, e+"/") }) {
			continue
		}
		found, trouble := w.inspect(p, denied, planted[name])
		bad = append(bad, trouble...)
		for _, f := range found {
			if _, ok := dialAllowed()[name][f.what]; ok {
				used[name+" "+f.what] = true
				continue
			}
			bad = append(bad, f.String())
		}
		bad = append(bad, others(w, p, name, planted[name], used)...)
	}
	for name, table := range dialAllowed() {
		for what := range table {
			if !used[name+" "+what] {
				bad = append(bad, "dialAllowed lists "+what+" for "+name+", which does not use it")
			}
		}
	}
	for name, table := range networked() {
		for what := range table {
			if !used[name+" "+what] {
				bad = append(bad, "networked lists "+what+" for "+name+", which does not import it")
			}
		}
	}
	slices.Sort(bad)
	return slices.Compact(bad)
}

// others returns the third-party packages that reach the network and that p may not
// import.
func others(w *world, p listed, name, planted string, used map[string]bool) (bad []string) {
	all := map[string]bool{}
	add := func(file string, src any) {
		f, err := parser.ParseFile(token.NewFileSet(), file, src, parser.ImportsOnly)
		if err != nil {
			return // inspect reports it
		}
		for _, spec := range f.Imports {
			if path, err := strconv.Unquote(spec.Path.Value); err == nil {
				all[path] = true
			}
		}
	}
	for _, file := range slices.Concat(p.GoFiles, p.CgoFiles, p.IgnoredGoFiles) {
		if !strings.HasSuffix(file, "_test.go") {
			add(filepath.Join(p.Dir, file), nil)
		}
	}
	if planted != "" {
		add("planted.go", planted)
	}
	for _, path := range slices.Sorted(maps.Keys(all)) {
		first, _, _ := strings.Cut(path, "/")
		if !strings.Contains(first, ".") || strings.HasPrefix(path, module) || strings.HasPrefix(path, "golang.org/x/sys/") {
			continue
		}
		if dep, ok := w.pkgs[path]; ok && !slices.Contains(dep.Deps, "net") {
			continue
		}
		if _, ok := networked()[name][path]; ok {
			used[name+" "+path] = true
			continue
		}
		bad = append(bad, name+" imports "+path+", which reaches the network or is not known")
	}
	return bad
}

// proves R-T7
func TestNobodyDialsButThroughTheEgressFilter(t *testing.T) {
	for _, v := range dialling(loadWorld(t), nil) {
		t.Error(v)
	}
}
