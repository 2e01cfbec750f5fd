package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// missingTests returns the names of tests, benchmarks and fuzz targets in text that
// are not prefixes of a declared name: -run accepts a prefix, and so do documents.
func missingTests(text string, declared []string) (missing []string) {
	for _, name := range regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w*`).FindAllString(text, -1) {
		if !slices.ContainsFunc(declared, func(d string) bool { return strings.HasPrefix(d, name) }) {
			missing = append(missing, name)
		}
	}
	return missing
}

// Documents, scripts, the Makefile and other tests name tests as proofs and run them
// by name: go test -run passes silently if no test matches.
func TestNamedTestsExist(t *testing.T) {
	touch(t)
	files := []string{"Makefile", "README.md", "CONTRIBUTING.md"}
	var declared []string
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z]\w*)\(`)
	if err := filepath.WalkDir(root, func(name string, d os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		if filepath.Base(name) != "reference_test.go" { // it has the control
			files = append(files, strings.TrimPrefix(name, root+"/"))
		}
		b, err := os.ReadFile(name)
		for _, m := range function.FindAllStringSubmatch(string(b), -1) {
			declared = append(declared, m[1])
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"scripts/*", "docs/*.md", "docs/*/*.md", "examples/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			files = append(files, strings.TrimPrefix(file, root+"/"))
		}
	}
	for _, file := range files {
		b, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range missingTests(string(b), declared) {
			t.Errorf("%s names %s, and no test has that name", file, name)
		}
	}
	if got := missingTests("go test -run 'TestNamed|TestZebra'", declared); !slices.Equal(got, []string{"TestZebra"}) {
		t.Errorf("the control: found %q missing, want TestZebra", got)
	}
}
