package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// listed is a package of any module, as go list reports it.
type listed struct {
	ImportPath, Dir, Export                          string
	Standard                                         bool
	GoFiles, CgoFiles, IgnoredGoFiles, Deps, Imports []string

	instead map[string]string // the files that an overlay puts in the place of others
}

// list returns the packages of the module and all that they import, by path.
func list(t *testing.T, flags ...string) map[string]listed {
	t.Helper()
	args := append([]string{"list", "-deps", "-json=ImportPath,Dir,Export,Standard,GoFiles,CgoFiles,IgnoredGoFiles,Deps,Imports"}, flags...)
	cmd := exec.Command("go", append(args, module+"...")...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]listed{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
}

// once holds what loaded returns: go list takes seconds, and no test changes a file.
var once map[string]listed

// loaded returns the packages as they are, with export data. The caller does not change them.
func loaded(t *testing.T) map[string]listed {
	t.Helper()
	if once == nil {
		once = list(t, "-export")
	}
	return once
}

// plant returns the packages as they would be with one more file.
func plant(t *testing.T, file, content string) map[string]listed {
	t.Helper()
	all := maps.Clone(loaded(t))
	p := all[module+path.Dir(file)]
	p.ImportPath = module + path.Dir(file)
	p.Imports = slices.Concat(p.Imports, imports(t, file, content))
	all[p.ImportPath] = p
	return all
}

// graph returns the packages of the module by their path in it, with the imports of
// files that build constraints exclude, and their closures.
func graph(t *testing.T, all map[string]listed) map[string]listed {
	t.Helper()
	pkgs := map[string]listed{}
	for full, p := range all {
		name, ours := strings.CutPrefix(full, module)
		if !ours {
			continue
		}
		for _, file := range p.IgnoredGoFiles {
			if !strings.HasSuffix(file, "_test.go") {
				file = filepath.Join(p.Dir, file)
				if instead, ok := p.instead[file]; ok {
					file = instead
				}
				p.Imports = slices.Concat(p.Imports, imports(t, file, nil))
			}
		}
		pkgs[name] = p
	}
	for name, p := range pkgs {
		p.Deps = slices.Sorted(maps.Keys(reach(pkgs, all, p)))
		pkgs[name] = p
	}
	return pkgs
}

// reach returns the import closure of p, including excluded files.
func reach(pkgs, all map[string]listed, p listed) map[string]bool {
	seen := map[string]bool{}
	for queue := slices.Clone(p.Imports); len(queue) > 0; queue = queue[1:] {
		imp := queue[0]
		if seen[imp] {
			continue
		}
		seen[imp] = true
		if name, ours := strings.CutPrefix(imp, module); ours {
			queue = append(queue, pkgs[name].Imports...)
			continue
		}
		for _, dep := range all[imp].Deps {
			seen[dep] = true
		}
	}
	return seen
}

// overlay writes planted files to a temporary directory and returns an overlay file
// that places them in the module, and where they are by the place that they take.
func overlay(t *testing.T, planted map[string]string) (file string, instead map[string]string) {
	t.Helper()
	abs := map[string]string{}
	dir := t.TempDir()
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range planted {
		file := filepath.Join(dir, strconv.Itoa(len(abs))+".go")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		abs[filepath.Join(top, name)] = file
	}
	b, err := json.Marshal(map[string]any{"Replace": abs})
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return file, abs
}

// imports returns what a file imports. Its content is src, if that is not nil.
func imports(t *testing.T, file string, src any) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, src, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, spec := range f.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, p)
	}
	return paths
}
