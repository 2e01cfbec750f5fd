package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What documents say about the programs is so: how many there are, and what the
// front door links.
func TestDocumentsNameTheProgramsAndTheirClosure(t *testing.T) {
	text := func(name string) string {
		b, err := os.ReadFile(filepath.Join("../../..", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	_, rest, ok := strings.Cut(text("docs/architecture.md"), "all it links of this module is ")
	row, _, _ := strings.Cut(rest, " |")
	if want := closure()["cmd/bailiwick"]; !ok || !slices.Equal(quotedNames(row), want) {
		t.Errorf("docs/architecture.md: the front door links %q, want %q", quotedNames(row), want)
	}
	programs, err := filepath.Glob("../../../cmd/*")
	if err != nil || len(programs) != 11 {
		t.Fatalf("programs: %q, %v", programs, err)
	}
	for _, name := range []string{"CONTRIBUTING.md", "docs/start.md"} {
		if !strings.Contains(text(name), "eleven programs") {
			t.Errorf("%s does not say that there are eleven programs", name)
		}
	}
	if got := quotedNames("`a`, `b/c`"); !slices.Equal(got, []string{"a", "b/c"}) {
		t.Errorf("quotedNames: %q", got)
	}
}

// quotedNames lists what a text has between backquotes.
func quotedNames(text string) (names []string) {
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	return names
}
