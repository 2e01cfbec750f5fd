package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var flagName = regexp.MustCompile(`--[a-z][a-z-]+`)

// The command reference covers every verb and flag of the man pages, and names
// no flag that does not exist.
func TestReferenceHasEveryVerbAndFlag(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.must("man", w.path("man"))
	pages, err := filepath.Glob(w.path("man/*.1"))
	if must(t, err); len(pages) < 50 {
		t.Fatalf("%d man pages", len(pages))
	}
	verifier, err := os.ReadFile(w.path("man/bailiwick-verify.1"))
	must(t, err)
	for _, want := range []string{".SH SYNOPSIS\n.B bailiwick-verify FILE --trust FILE", "--require CLAIM", "Exit status:"} {
		if !strings.Contains(strings.ReplaceAll(string(verifier), `\-`, "-"), want) {
			t.Errorf("the page of bailiwick-verify lacks %q:\n%s", want, verifier)
		}
	}
	front, err := os.ReadFile("../docs/cli.md")
	must(t, err)
	files, err := filepath.Glob("../docs/cli/*.md")
	must(t, err)
	reference := map[string]string{}
	var known []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		reference[file] = string(text)
	}
	for _, program := range []string{"bailiwickd", "bailiwick-verify", "bailiwick-mcp"} {
		for _, args := range [][]string{{"--help"}, {"serve", "--help"}, {"key", "show", "--help"}, {"key", "create", "--help"}} {
			d := w.exec(filepath.Join(bin, program), args...)
			known = append(known, strings.Fields(flagDashes.ReplaceAllString(d.stdout+d.stderr, " --"))...)
		}
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		must(t, err)
		plain := strings.ReplaceAll(string(text), `\-`, "-")
		flags := flagName.FindAllString(plain, -1)
		known = append(known, flags...)
		_, synopsis, _ := strings.Cut(plain, "\n.B ")
		synopsis, _, _ = strings.Cut(synopsis, "\n")
		verb := verbOf(synopsis)
		if strings.HasPrefix(synopsis, "bailiwickd ") && verb != "" {
			verb = "bailiwickd " + verb // bailiwick has no verb for these
		}
		if verb == "" || strings.Contains(verb, "completion") {
			continue
		}
		_, options, _ := strings.Cut(plain, "\n.SH OPTIONS\n")
		options, _, _ = strings.Cut(options, "\n.SH ")
		for _, missing := range lacks(verb, flagName.FindAllString(flagDescriptions.ReplaceAllString(options, "$1"), -1), string(front), reference) {
			t.Errorf("%s: the reference lacks %s", filepath.Base(page), missing)
		}
	}
	for file, text := range reference {
		for _, flag := range flagName.FindAllString(blocks.ReplaceAllString(text, ""), -1) {
			if !slices.Contains(known, flag) {
				t.Errorf("%s: no program has the flag %s", file, flag)
			}
		}
	}
	if len(lacks("dispatch run", []string{"--source", "--sauce"}, string(front), reference)) != 1 || len(lacks("dispatch runs", nil, string(front), reference)) != 1 {
		t.Error("a missing flag, or a missing verb, is not reported")
	}
}

var (
	blocks           = regexp.MustCompile("(?s)```.*?```")
	flagDashes       = regexp.MustCompile(`\s--?`)
	flagDescriptions = regexp.MustCompile(`(?m)^(.{0,40}?--[a-z-]+).*$`) // descriptions may mention flags of other verbs
)

// verbOf extracts a verb, such as "dispatch run", from a synopsis; "" for a
// noun alone.
func verbOf(synopsis string) string {
	words := []string{}
	for _, word := range strings.Fields(synopsis)[1:] {
		if word == "[command]" {
			return ""
		}
		if strings.ToLower(word) != word || strings.ContainsAny(word, "[<") {
			break
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// lacks lists what the reference omits: the verb, or flags on the verb's page.
func lacks(verb string, flags []string, front string, reference map[string]string) (missing []string) {
	named := regexp.MustCompile("`" + verb + "[ `]")
	missing = append(flags, "`"+verb+"`")
	for _, text := range reference {
		if !named.MatchString(text) {
			continue
		}
		var here []string
		for _, flag := range flags {
			if flag != "--help" && !strings.Contains(text, flag) && !strings.Contains(front, flag) {
				here = append(here, flag)
			}
		}
		if len(here) < len(missing) { // other pages may mention the verb
			missing = here
		}
	}
	return missing
}
