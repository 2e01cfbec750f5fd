package e2e

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// commandTree is the verbs of all programs with their flags, from the man pages. A verb
// that another program carries out has that program's flags.
type commandTree map[string][]string

func readCommands(t *testing.T, dir string) commandTree {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if must(t, err); len(pages) < 50 {
		t.Fatalf("%d man pages", len(pages))
	}
	tree := commandTree{"": {"--help", "--version"}}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		must(t, err)
		plain := strings.ReplaceAll(string(text), `\-`, "-")
		_, synopsis, _ := strings.Cut(plain, "\n.B ")
		synopsis, _, _ = strings.Cut(synopsis, "\n")
		_, options, _ := strings.Cut(plain, "\n.SH OPTIONS")
		options, _, _ = strings.Cut(options, "\n.SH EXAMPLE")
		var words []string
		for _, word := range strings.Fields(synopsis)[1:] {
			if strings.ContainsAny(word, "[<") || strings.HasPrefix(word, "-") || strings.ToLower(word) != word {
				break
			}
			words = append(words, word)
		}
		verb := strings.Join(words, " ")
		tree[verb] = append(tree[verb], flagName.FindAllString(options, -1)...)
	}
	tree["up"] = append(tree["up"], tree["start"]...)
	return tree
}

// noun reports whether a command has verbs.
func (c commandTree) noun(path string) bool {
	for other := range c {
		if strings.HasPrefix(other, path+" ") {
			return true
		}
	}
	return path == ""
}

var (
	hinted = regexp.MustCompile("(?:^|[^a-z/-])bailiwick(?:d|-deploy)? ([a-z][a-z-]*(?: [^\\s;,()\"`]+)*)")
	word   = regexp.MustCompile(`^[a-z][a-z-]*$`)
)

// prose are words after the name of a program in sentences about it.
func prose() []string {
	return []string{"and", "call", "defines", "enrolment", "failpoints", "form", "index", "made", "make", "may", "reach", "starts"}
}

// wrongCommands returns what is wrong with the commands that a text names. A command ends
// at a semicolon, a comma, a bracket, a quote or the end of the line.
func (c commandTree) wrongCommands(text string) (found []string) {
	for _, m := range hinted.FindAllStringSubmatch(text, -1) {
		path, words := "", strings.Fields(m[1])
		for len(words) > 0 {
			next := strings.TrimSpace(path + " " + strings.TrimRight(words[0], ".:"))
			if _, ok := c[next]; !ok {
				break
			}
			path, words = next, words[1:]
		}
		switch {
		case path == "" && slices.Contains(prose(), words[0]):
		case path == "":
			found = append(found, fmt.Sprintf("no command %q: bailiwick %s", words[0], m[1]))
		case len(words) > 0 && c.noun(path) && word.MatchString(words[0]):
			found = append(found, fmt.Sprintf("%s has no verb %q: bailiwick %s", path, words[0], m[1]))
		}
		for _, w := range words {
			if path == "" {
				break
			}
			if flag := flagName.FindString(w); flag != "" && strings.HasPrefix(w, "--") && !slices.Contains(c[path], flag) && !slices.Contains(c[""], flag) {
				found = append(found, fmt.Sprintf("%s has no flag %s: bailiwick %s", path, flag, m[1]))
			}
		}
	}
	return found
}

// Every command that a message, a hint, a help text or the page names exists, with the
// flags that it names.
func TestHintsNameCommandsThatExist(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.must("man", w.path("man"))
	tree := readCommands(t, w.path("man"))
	checked := 0
	check := func(file, text string) {
		checked += len(hinted.FindAllString(text, -1))
		for _, wrong := range tree.wrongCommands(text) {
			t.Errorf("%s: %s", file, wrong)
		}
	}
	for _, top := range []string{"api", "client", "cmd", "deploy", "internal"} {
		must(t, filepath.WalkDir(filepath.Join("..", top), func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(file, "_test.go") || strings.Contains(file, "/testdata/") {
				return err
			}
			switch filepath.Ext(file) {
			case ".html", ".js":
				text, err := os.ReadFile(file)
				check(file, string(text))
				return err
			case ".go":
				f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
				if err != nil {
					return err
				}
				ast.Inspect(f, func(n ast.Node) bool {
					if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
						text, _ := strconv.Unquote(lit.Value)
						check(file, text)
					}
					return true
				})
			}
			return nil
		}))
	}
	if checked < 300 {
		t.Errorf("%d commands were found", checked)
	}
	// Controls: a verb that was removed, a flag of another verb, and hints that stand.
	for text, want := range map[string]int{
		"see: bailiwick dispatch output d-1": 1, "run: bailiwick frobnicate": 1, "see: bailiwick dispatch list --threshold 2; or wait": 1,
		"see: bailiwick audit list --kind dispatch.denied; or bailiwick run retry RUN --form TASK": 1,
		"see: bailiwick dispatch list --last 10; run: bailiwick up --orchestrator":                 0, "see: bailiwick dispatch outputs %s, then": 0,
	} {
		if got := tree.wrongCommands(text); len(got) != want {
			t.Errorf("control: %q: %q", text, got)
		}
	}
}
