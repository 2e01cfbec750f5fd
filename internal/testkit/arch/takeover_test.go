package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The takeover table of docs/threats.md has a row for each part that may be taken over
// and a column for each asset.
func takenOver() []string {
	return []string{
		"a person's account", "AI client", "MCP program", "page", "service account", "worker", "tool server",
		"database", "backup", "one operator key", "one deploy key", "root",
	}
}

func takenAssets() []string {
	return []string{"define", "widen", "replay", "start", "approve", "read a secret", "read work", "rewrite the log", "forge evidence"}
}

// taken is a cell of the takeover table.
type taken struct{ mode, row, asset string }

// declared is the cells that tests declare: by cell the word, by the names of tests.
type declared map[taken]map[string]string

// declarations reads what a test declares above it, such as
//
//	// takeover system, page; worker: no define, widen
//
// for both modes "takeover both modes, …". A line holds for each of its rows and assets.
func declarations(test, comment string) (cells map[taken]string, problems []string) {
	cells = map[taken]string{}
	for line := range strings.Lines(comment) {
		said, ok := strings.CutPrefix(strings.TrimSpace(line), "takeover ")
		if !ok {
			continue
		}
		m := regexp.MustCompile(`^(same-user|system|both modes), ([^:]+): (no|yes|until) (.+)$`).FindStringSubmatch(said)
		if m == nil {
			problems = append(problems, fmt.Sprintf("%s: %q is no cells of the takeover table", test, said))
			continue
		}
		modes := []string{m[1]}
		if m[1] == "both modes" {
			modes = []string{"same-user", "system"}
		}
		for _, mode := range modes {
			for row := range strings.SplitSeq(m[2], "; ") {
				for asset := range strings.SplitSeq(m[4], ", ") {
					if !slices.Contains(takenOver(), row) || !slices.Contains(takenAssets(), asset) {
						problems = append(problems, fmt.Sprintf("%s: the takeover table has no cell %q of %q", test, asset, row))
					}
					cells[taken{mode, row, asset}] = m[3]
				}
			}
		}
	}
	return cells, problems
}

// declaredCells reads the declarations of all tests of the module, and the tests whose text
// starts the programs of an installation in mode system.
func declaredCells(t *testing.T) (all declared, installed map[string]bool, problems []string) {
	t.Helper()
	all, installed = declared{}, map[string]bool{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/testdata/") || strings.Contains(path, "/.cache/") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), "\n// takeover ") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Doc == nil {
				continue
			}
			cells, wrong := declarations(fn.Name.Name, fn.Doc.Text())
			problems = append(problems, wrong...)
			for cell, word := range cells {
				if all[cell] == nil {
					all[cell] = map[string]string{}
				}
				all[cell][fn.Name.Name] = word
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					if name, ok := call.Fun.(*ast.Ident); ok && (name.Name == "newTeam" || name.Name == "newTeamPage") {
						installed[fn.Name.Name] = true
					}
				}
				return true
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, installed, problems
}

// onAMachine reports whether a cell of mode system needs a test with the installed programs
// under their accounts: those that the mode exists for.
func onAMachine(c taken) bool {
	return c.mode == "system" && slices.Contains([]string{"a person's account", "AI client", "page", "service account"}, c.row) &&
		slices.Contains([]string{"define", "widen", "replay", "approve", "read a secret"}, c.asset)
}

// undeclared returns what keeps a cell from being shown by its proofs, a list of the names of
// tests for each.
func undeclared(c taken, word string, proofs map[string][]string, all declared, installed map[string]bool) (problems []string) {
	where, machine := fmt.Sprintf("mode %s: %s: %s", c.mode, c.row, c.asset), false
	var named []string
	for id, tests := range proofs {
		shown := false
		for _, test := range tests {
			shown = shown || all[c][test] == word
			machine = machine || all[c][test] == word && installed[test]
		}
		named = append(named, tests...)
		if !shown {
			problems = append(problems, fmt.Sprintf("%s: no test of proof %s declares %q", where, id, word))
		}
	}
	for test, said := range all[c] {
		if said != word || !slices.Contains(named, test) {
			problems = append(problems, fmt.Sprintf("%s: the table says %s, and %s declares %s", where, word, test, said))
		}
	}
	if onAMachine(c) && !machine {
		problems = append(problems, where+": no test of it runs an installation in mode system")
	}
	return problems
}

// takeoverProblems checks the section of the takeover table: each cell is `no`, `yes` or
// `until …` with the letters of its proofs, or `open`; each proof names tests; the text
// says how many cells are open. Each proof of a cell has a test that declares the cell, and no
// test declares a cell otherwise.
func takeoverProblems(section string, all declared, installed map[string]bool) (problems []string) {
	proofs, used := map[string][]string{}, map[string]bool{}
	for line := range strings.Lines(section) {
		if m := regexp.MustCompile(`^\| ([A-Z]+\d+) \| .*\b(?:Test|Fuzz)[A-Z]\w*`).FindStringSubmatch(line); m != nil {
			proofs[m[1]] = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w*`).FindAllString(line, -1)
		}
	}
	cell := regexp.MustCompile(`^(?:no|yes|until [a-z ]+[a-z])((?: [A-Z]+\d+)+)$`)
	for _, mode := range []string{"same-user", "system"} {
		_, rest, ok := strings.Cut(section, "### Mode `"+mode+"`\n")
		if !ok {
			problems = append(problems, "no table of mode "+mode)
			continue
		}
		table, _, _ := strings.Cut(rest, "\n### ")
		var rows []string
		open := 0
		for line := range strings.Lines(table) {
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			if !slices.Contains(takenOver(), cells[0]) {
				if strings.HasPrefix(line, "| taken over") && !slices.Equal(cells[1:], takenAssets()) {
					problems = append(problems, fmt.Sprintf("mode %s: columns %q", mode, cells[1:]))
				}
				continue
			}
			rows = append(rows, cells[0])
			if len(cells) != len(takenAssets())+1 {
				problems = append(problems, fmt.Sprintf("mode %s: %s: %d cells", mode, cells[0], len(cells)-1))
				continue
			}
			for i, text := range cells[1:] {
				where := fmt.Sprintf("mode %s: %s: %s", mode, cells[0], takenAssets()[i])
				if text == "open" {
					open++
					continue
				}
				m := cell.FindStringSubmatch(text)
				if m == nil {
					problems = append(problems, fmt.Sprintf("%s: %q names no test", where, text))
					continue
				}
				word, of := strings.Fields(text)[0], map[string][]string{}
				for id := range strings.FieldsSeq(m[1]) {
					used[id], of[id] = true, proofs[id]
					if proofs[id] == nil {
						problems = append(problems, where+": no proof "+id)
					}
				}
				problems = append(problems, undeclared(taken{mode, cells[0], takenAssets()[i]}, word, of, all, installed)...)
			}
		}
		if !slices.Equal(rows, takenOver()) {
			problems = append(problems, fmt.Sprintf("mode %s: rows %q", mode, rows))
		}
		if want := fmt.Sprintf("%d of %d cells are open", open, len(takenOver())*len(takenAssets())); !strings.Contains(table, want) {
			problems = append(problems, fmt.Sprintf("mode %s: the text does not say: %s", mode, want))
		}
	}
	for id := range proofs {
		if !used[id] {
			problems = append(problems, "no cell has proof "+id)
		}
	}
	return problems
}

// TestNamedTestsExist checks that the tests exist.
//
// proves R-P3
func TestEachCellOfTheTakeoverTableNamesATest(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "docs/threats.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(b), "\n## What each takeover gives\n")
	section, _, _ = strings.Cut(section, "\n## ")
	all, installed, problems := declaredCells(t)
	if problems = append(problems, takeoverProblems(section, all, installed)...); problems != nil {
		t.Fatal(strings.Join(problems, "\n"))
	}
	for what, change := range map[string]func(c taken, tests map[string]string) (taken, map[string]string){
		"a cell that no test declares": func(c taken, _ map[string]string) (taken, map[string]string) { return c, nil },
		"a test that declares otherwise": func(c taken, _ map[string]string) (taken, map[string]string) {
			return c, map[string]string{"TestOther": "yes"}
		},
		"a cell whose test declares yes": func(c taken, tests map[string]string) (taken, map[string]string) { return c, said(tests, "yes") },
		"a test that shows the other mode": func(c taken, tests map[string]string) (taken, map[string]string) {
			return taken{"same-user", c.row, c.asset}, tests
		},
	} {
		changed, c := maps.Clone(all), taken{"system", "service account", "replay"}
		delete(changed, c)
		to, tests := change(c, all[c])
		changed[to] = tests
		if takeoverProblems(section, changed, installed) == nil {
			t.Errorf("control: %s is not found", what)
		}
	}
	if takeoverProblems(section, all, map[string]bool{}) == nil {
		t.Error("control: cells without an installation in mode system are not found")
	}
	for what, change := range map[string][2]string{
		"a cell without a proof":       {"| yes A1 |", "| yes |"},
		"a cell with another word":     {"| yes A1 |", "| maybe A1 |"},
		"a proof that is not listed":   {"| yes A1 |", "| yes Z9 |"},
		"a proof without a test":       {"`e2e`: `TestOneAccount", "`e2e`: `One"},
		"a row that is missing":        {"\n| root |", "\n| boot |"},
		"a column that is missing":     {"| forge evidence |", "| forge |"},
		"an open cell that is hidden":  {"cells are open", "cells"},
		"a cell that is quietly empty": {"| yes A1 |", "| open |"},
	} {
		changed := strings.Replace(section, change[0], change[1], 1)
		if changed == section || takeoverProblems(changed, all, installed) == nil {
			t.Errorf("control: %s is not found", what)
		}
	}
}

// said returns what tests declare with another word.
func said(tests map[string]string, word string) map[string]string {
	other := maps.Clone(tests)
	for test := range other {
		other[test] = word
	}
	return other
}
