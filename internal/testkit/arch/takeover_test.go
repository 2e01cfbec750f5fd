package arch

import (
	"fmt"
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
	return []string{"define", "widen", "start", "approve", "read a secret", "read work", "rewrite the log", "forge evidence"}
}

// takeoverProblems checks the section of the takeover table: each cell is `no`, `yes` or
// `until …` with the letters of its proofs, or `open`; each proof names tests; the text
// says how many cells are open.
func takeoverProblems(section string) (problems []string) {
	proofs, used := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(section) {
		if m := regexp.MustCompile(`^\| ([A-Z]+\d+) \| .*\b(?:Test|Fuzz)[A-Z]\w*`).FindStringSubmatch(line); m != nil {
			proofs[m[1]] = true
		}
	}
	cell := regexp.MustCompile(`^(?:no|yes|until [^,]+)((?: [A-Z]+\d+)+)$`)
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
				for id := range strings.FieldsSeq(m[1]) {
					used[id] = true
					if !proofs[id] {
						problems = append(problems, where+": no proof "+id)
					}
				}
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
	if problems := takeoverProblems(section); problems != nil {
		t.Fatal(strings.Join(problems, "\n"))
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
		if changed == section || takeoverProblems(changed) == nil {
			t.Errorf("control: %s is not found", what)
		}
	}
}
