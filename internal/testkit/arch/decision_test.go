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

// decisionForm returns what is wrong with the form of a decision record: its title with
// its number, its status with a date, and its fields in order.
func decisionForm(file, text string) (bad []string) {
	head := regexp.MustCompile(`^# ` + file[:4] + `: [^\n]+\n\nStatus: accepted \d{4}-\d\d-\d\d\.[^\n]*\n\n\*\*Context\.\*\*`)
	if !head.MatchString(text) {
		bad = append(bad, "wants a title with its number, a status with a date, and the context")
	}
	var fields []string
	for _, m := range regexp.MustCompile(`(?m)^(?:#{2,} .*|\*\*([A-Z][^*\n]*)\.?\*\*)`).FindAllStringSubmatch(text, -1) {
		fields = append(fields, strings.TrimSuffix(m[1], "."))
	}
	want := []string{"Context", "Decision", "Consequences", "Proof"}
	if slices.Contains(fields, "Alternatives") {
		want = slices.Insert(want, 2, "Alternatives")
	}
	if !slices.Equal(fields, want) {
		bad = append(bad, fmt.Sprintf("has the fields %q, want %q", fields, want))
	}
	if _, proof, _ := strings.Cut(text, "\n**Proof.**"); !regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]|^ No test`).MatchString(proof) {
		bad = append(bad, "its proof names no test; say \"No test\" where there is nothing to test")
	}
	return bad
}

// decisionIndex returns what is wrong with an index of records: each is there once,
// under its title.
func decisionIndex(index string, titles map[string]string) (bad []string) {
	listed := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^\| \[(\d{4})\]\(([^)]+)\) \| (.*) \|$`).FindAllStringSubmatch(index, -1) {
		number, file, title := m[1], m[2], m[3]
		listed[file]++
		if title != titles[file] || !strings.HasPrefix(file, number) {
			bad = append(bad, fmt.Sprintf("lists %s as %q, its title is %q", file, title, titles[file]))
		}
	}
	for file := range titles {
		if listed[file] != 1 {
			bad = append(bad, fmt.Sprintf("lists %s %d times, want once", file, listed[file]))
		}
	}
	return bad
}

// The records of decisions have one form, and the index lists each under its subject.
func TestDecisionsHaveOneFormAndAnIndex(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "docs/decisions/0*.md"))
	if err != nil || len(files) < 100 {
		t.Fatalf("%d records: %v", len(files), err)
	}
	titles := map[string]string{}
	for _, path := range append(files, filepath.Join(root, "docs/decisions/README.md")) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name, bad := filepath.Base(path), []string(nil)
		if name == "README.md" { // the last
			bad = decisionIndex(string(b), titles)
		} else {
			line, _, _ := strings.Cut(string(b), "\n")
			_, titles[name], _ = strings.Cut(line, ": ")
			bad = decisionForm(name, string(b))
		}
		for _, problem := range bad {
			t.Errorf("docs/decisions/%s: %s", name, problem)
		}
	}
}

// The positive control.
func TestPlantedDecisionsAreRefused(t *testing.T) {
	const good = "# 0007: A jail\n\nStatus: accepted 2026-11-21.\n\n**Context.** A.\n\n**Decision.** B.\n\n**Consequences.** C.\n\n**Proof.** `TestNamedTestsExist`.\n"
	if bad := decisionForm("0007-a-jail.md", good); len(bad) > 0 {
		t.Errorf("a record in the form: %q", bad)
	}
	for _, c := range []struct{ old, new string }{
		{"# 0007:", "# 7."},
		{"0007", "0008"},
		{"Status: accepted 2026-11-21.\n\n", ""},
		{" 2026-11-21", ""},
		{"**Consequences.** C.\n\n", ""},
		{"**Decision.** B.\n\n**Consequences.** C.", "**Consequences.** C.\n\n**Decision.** B."},
		{"**Context.**", "## Context\n\n"},
		{"**Proof.**", "**Limits.** D.\n\n**Proof.**"},
		{"`TestNamedTestsExist`", "the tests"},
	} {
		if bad := decisionForm("0007-a-jail.md", strings.ReplaceAll(good, c.old, c.new)); len(bad) == 0 {
			t.Errorf("a record with %q for %q passes", c.new, c.old)
		}
	}
	titles := map[string]string{"0001-a.md": "A", "0002-b.md": "B"}
	a, b := "| [0001](0001-a.md) | A |\n", "| [0002](0002-b.md) | B |\n"
	if bad := decisionIndex("## One\n\n"+a+"\n## Two\n\n"+b, titles); len(bad) > 0 {
		t.Errorf("a complete index: %q", bad)
	}
	for _, index := range []string{a, a + b + a, a + strings.ReplaceAll(b, "B", "C"), a + b + strings.ReplaceAll(a, "0001", "0003")} {
		if len(decisionIndex(index, titles)) == 0 {
			t.Errorf("the index %q passes", index)
		}
	}
}
