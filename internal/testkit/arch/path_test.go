package arch

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// missingPaths returns the paths of the tree in text that no file or directory has. A
// path begins with a directory of the module's root; `*` and `**` stand for any names. A
// Go file between backquotes may be named without its directory.
func missingPaths(text string, tree []string) (missing []string) {
	has := func(name string) bool {
		if strings.ContainsAny(name, "*?[") {
			parts := strings.Split(name, "**")
			for i, p := range parts {
				parts[i] = strings.NewReplacer(`\*`, `[^/]*`, `\?`, `[^/]`).Replace(regexp.QuoteMeta(p))
			}
			pattern := regexp.MustCompile("^" + strings.Join(parts, ".*") + "$")
			return slices.ContainsFunc(tree, pattern.MatchString)
		}
		_, found := slices.BinarySearch(tree, name)
		return found
	}
	rooted := regexp.MustCompile(`(?:^|[\s` + "`" + `("'|=!])(?:\./|\*\*/)?((?:internal|cmd|docs|e2e|scripts|examples|\.ci)/[\w.*?/-]*\w[\w.*?/-]*|(?:api|client|deploy)/[\w/]+\.(?:go|json))`)
	for _, m := range rooted.FindAllStringSubmatch(text, -1) {
		name := strings.TrimSuffix(strings.TrimRight(m[1], ".-/"), "/**")
		if !has(name) && !strings.Contains(name, "/NNNN-") { // the pattern of a name
			missing = append(missing, name)
		}
	}
	for _, m := range regexp.MustCompile("`([a-z][a-z0-9_]*\\.go)`").FindAllStringSubmatch(text, -1) {
		if !slices.ContainsFunc(tree, func(name string) bool { return path.Base(name) == m[1] }) {
			missing = append(missing, m[1])
		}
	}
	return missing
}

// Documents, the Makefile, scripts and the configuration of the linters name files and
// directories: a linter's rule about a directory that was moved passes silently.
func TestNamedPathsExist(t *testing.T) {
	touch(t)
	var tree []string
	if err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == ".git" || d.Name() == ".cache" || d.Name() == "bin" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		tree = append(tree, strings.TrimPrefix(filepath.ToSlash(file), root+"/"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(tree)
	checked := 0
	for _, name := range tree {
		document := path.Ext(name) == ".md" && (!strings.Contains(name, "/") || strings.HasPrefix(name, "docs/") || strings.HasPrefix(name, "examples/"))
		if !document && name != "Makefile" && name != ".golangci.yml" && path.Dir(name) != "scripts" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		checked++
		for _, missing := range missingPaths(string(b), tree) {
			t.Errorf("%s names %s, which does not exist", name, missing)
		}
	}
	if checked < 120 {
		t.Errorf("only %d files were checked", checked)
	}
	// The positive control.
	planted := "See `internal/testkit/arch`, `path_test.go` and ./internal/testkit/*/path_test.go. Not `internal/zebra`, **/docs/zebra/**, `zebra.go`, ./e2e/*/zebra_test.go."
	if got, want := missingPaths(planted, tree), []string{"internal/zebra", "docs/zebra", "e2e/*/zebra_test.go", "zebra.go"}; !slices.Equal(got, want) {
		t.Errorf("the control: found %q missing, want %q", got, want)
	}
}
