package arch

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// phrase is a wording that the project does not use, with what to say instead
// and a sentence in which the check must find it.
type phrase struct {
	pattern string
	instead string
	planted string
}

// phrases lists the wordings that a reader has to translate back into the terms of
// the field. A space in a pattern matches across the lines of a comment, too. A
// pattern must not match ordinary English.
func phrases() []phrase {
	return []phrase{
		{`\b(?:goes|go|gone|went) on\b`, "continues, resumes, proceeds", "The run goes on after a restart."},
		{`\bthere (?:is|are|was|were) none\b`, "not found, no such X, not configured; for a value: empty, zero, nil", "It is empty where there is none."},
		{`\b[Ww]hoever\b`, "the caller, the owner, anyone who", "Whoever has the key signs."},
		{`\b[Ww]ho (?:asks|calls)\b`, "the caller", "It depends on who asks."},
		{`\bheld against\b`, "compared with, verified against", "The leaf is held against the row."},
		{`\b[Hh]old(?:s|ing)? .*\bagainst\b`, "compares X with Y, verifies X against Y", "It holds the leaf against the row."},
		{`\b(?:is|are|was|were) looked for\b`, "poll for, search for", "How often it is looked for completions."},
		{`\b(?:came|comes?) to its end\b`, "ended, finished, exited", "The worker came to its end."},
		{`\bof which\b`, "split the sentence, or repeat the noun", "Two plans, of which one is stored."},
		{`\b(?:is|are) none\b`, "is not a X, is invalid; are missing", "An error if the plan is none."},
		{`\bthere twice\b`, "duplicate", "The key is there twice."},
		{`\b(?:that|which|where|as|what) nobody\b`, "say who may not, or use the passive", "A token that nobody knows."},
		{`\b[Ss]omebody (?:else|has|is|was)\b`, "another principal, another process", "The lease is somebody else's."},
		{`\bis known of\b`, "is recorded, is persisted", "So that it is known of in time."},
		{`\bwith(?:out)? a word\b`, "silently", "It passes without a word."},
		{`\bsomething that cannot be(?:[.,;:]| (?:has )?happen)`, "an invariant was violated", "It logs something that cannot be."},
		{`\bwas faster\b`, "conflict: already exists with different content", "Another request was faster."},
		{`\btime is over\b`, "expired, timed out", "A token whose time is over."},
		// Pronouns in the place of nouns.
		{`\bof before\b`, "earlier, older than X", "A key of before the rotation."},
		{`\bin the words of\b`, "worded like X, as X wrote it", "An error in the words of its caller."},
		{`\b(?:is|are) not (?:that|those) of\b`, "differs from, belongs to another X", "Its plan is not that of the schedule."},
		{`\bdiffers? from (?:that|those) of\b`, "differs from X, or repeat the noun", "Its limits differ from those of the target."},
		{`\bnobody was asked\b`, "no approval was requested", "Denied, but nobody was asked."},
		// Dated words.
		{`\botherwise than\b`, "differs from, in another way than", "It is defined otherwise than its pin."},
		{`\banew\b`, "again, recreated, starts over", "The file is made anew."},
		{`\bdearer\b`, "more expensive", "It asks for a dearer model."},
		{`\b(?:reads?|answer(?:s|ed)|refused|handled) alike\b`, "in the same way, get the same answer", "The two read alike."},
		{`\bas far as\b`, "if, where, the part of X that", "It is read as far as it can be."},
		{`\bbeside that of\b`, "compared with, next to", "Its time, beside that of another."},
		// Things that are told, and people who are told something.
		{`\bis said\b`, "is reported, is named, is printed", "What is left out is said."},
		{`\b(?:is|are) the word of\b`, "X reports, X asserts", "What this page shows is the word of the service."},
		{`\bservice's word\b`, "the service asserts", "It is the service's word."},
		{`\bha(?:s|ve) people (?:asked|approve|decide)\b`, "requests an approval", "The engine has people asked."},
		{`\bsaid hello\b`, "completed the handshake", "A server that has said hello."},
	}
}

// language finds phrases in texts.
type language struct {
	phrases  []phrase
	patterns []*regexp.Regexp
	any      *regexp.Regexp // matches if one of patterns does
}

func newLanguage() language {
	l := language{phrases: phrases()}
	var all []string
	for _, p := range l.phrases {
		pattern := strings.ReplaceAll(p.pattern, " ", `(?:[ \t]+|[ \t]*\n[ \t]*(?://|#)?[ \t]*)`)
		l.patterns = append(l.patterns, regexp.MustCompile(pattern))
		all = append(all, pattern)
	}
	l.any = regexp.MustCompile(strings.Join(all, "|"))
	return l
}

// find returns the phrases in a text, each with FILE:LINE and what to say instead.
func (l language) find(name, text string) (findings []string) {
	if !l.any.MatchString(text) {
		return nil
	}
	for i, pattern := range l.patterns {
		for _, at := range pattern.FindAllStringIndex(text, -1) {
			line := 1 + strings.Count(text[:at[0]], "\n")
			findings = append(findings, fmt.Sprintf("%s:%d: %q: say instead: %s", name, line, text[at[0]:at[1]], l.phrases[i].instead))
		}
	}
	return findings
}

// inPlainWords reports whether a file must pass the check. Decision records and the
// changelog are history, and test data may quote anything.
func inPlainWords(name string) bool {
	if slices.Contains([]string{"README.md", "CONTRIBUTING.md", "Makefile"}, name) {
		return true
	}
	for _, excluded := range []string{"docs/decisions/", "e2e/testdata/", "internal/testkit/arch/language_test.go"} {
		if strings.HasPrefix(name, excluded) {
			return false
		}
	}
	return filepath.Ext(name) == ".go" || strings.HasPrefix(name, "docs/") && filepath.Ext(name) == ".md" ||
		strings.HasPrefix(name, "examples/") || strings.HasPrefix(name, "scripts/")
}

func TestTheProjectIsWrittenInPlainWords(t *testing.T) {
	words, checked := newLanguage(), 0
	if err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(filepath.ToSlash(file), root+"/")
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case !d.Type().IsRegular() || !inPlainWords(name):
			return nil
		}
		b, err := os.ReadFile(file)
		checked++
		for _, f := range words.find(name, string(b)) {
			t.Error(f)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if checked < 500 {
		t.Errorf("only %d files were checked", checked)
	}
}

// The positive control: each phrase is found in its planted sentence, on its line,
// and a text in the project's terms passes.
func TestPlantedPhrasesAreFound(t *testing.T) {
	const clean = `// Resume continues the dispatch of the caller under its lease.
// It returns ErrNotFound if there is no such dispatch, and a conflict if the id
// already exists with different content. The engine compares the digest with the
// manifest, verifies the signature against the trust root, retries after a timeout
// and polls for completions. Hold the lock while you append: one writer at a time.
// Some of the keys are nonexistent; going once, gone twice; whose list is nonempty.
`
	words := newLanguage()
	if got := words.find("clean.go", clean); len(got) > 0 {
		t.Errorf("findings in a clean text: %q", got)
	}
	if got := words.find("split.go", "// The run goes\n\t// on after a restart.\n"); len(got) != 1 || !strings.HasPrefix(got[0], "split.go:1: ") {
		t.Errorf("across two lines of a comment the check finds %q", got)
	}
	for _, p := range phrases() {
		got := words.find("planted.go", clean+"// "+p.planted+"\n")
		if want := "planted.go:7: "; len(got) == 0 || !strings.HasPrefix(got[0], want) {
			t.Errorf("%s: in %q the check finds %q", p.pattern, p.planted, got)
		}
	}
}
