package catalogdiff

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
)

// shelf is a set with capability tools, whose files have these contents.
func shelf(files map[string]string, subagents ...api.Subagent) (*catalog.Set, Contents) {
	set, held := catalog.NewSet(), map[api.Digest][]byte{}
	c := api.Capability{Name: "tools"}
	for path, text := range files {
		mode := uint32(0o644)
		if name, ok := strings.CutSuffix(path, "*"); ok { // executable
			path, mode = name, 0o755
		}
		f := api.File{Path: path, Mode: mode, Size: int64(len(text)), Digest: api.DigestOf([]byte(text))}
		c.Files, held[f.Digest] = append(c.Files, f), []byte(text)
	}
	set.Capabilities["tools"] = c
	for _, s := range subagents {
		set.Subagents[s.Name] = s
	}
	return set, func(f api.File) ([]byte, error) {
		if b, ok := held[f.Digest]; ok {
			return b, nil
		}
		return nil, errors.New("no such blob")
	}
}

func fixer() api.Subagent {
	return api.Subagent{Name: "fixer", Capabilities: []api.Name{"tools"}, Command: api.Command{"sh", "fix.sh"}, Verify: &api.Verify{Command: api.Command{"sh", "-c", "cd . && ./check.sh --all"}}}
}

// Each added or changed file that an agent or a verify runs, and what such a file may
// load, is a line that widens authority. Control: the same files without a change, and a
// changed text of a capability that nothing of is run, have none.
//
// proves R-P2, R-C6
func TestChangedProgramsAreLines(t *testing.T) {
	reader := api.Subagent{Name: "fixer", Capabilities: []api.Name{"tools"}, Agent: "codex"}
	for name, c := range map[string]struct {
		old, now map[string]string
		who      api.Subagent
		want     string
	}{
		"verify":              {map[string]string{"check.sh": "a", "fix.sh": "f"}, map[string]string{"check.sh": "b", "fix.sh": "f"}, fixer(), "changed file check.sh: the verify of subagent fixer runs it"},
		"agent":               {map[string]string{"fix.sh": "a"}, map[string]string{"fix.sh": "b"}, fixer(), "changed file fix.sh: the agent of subagent fixer runs it"},
		"new":                 {map[string]string{"fix.sh": "a"}, map[string]string{"fix.sh": "a", "check.sh": "b"}, fixer(), "new file check.sh: the verify of subagent fixer runs it"},
		"loaded":              {map[string]string{"check.sh": "a", "lib.py": "a"}, map[string]string{"check.sh": "a", "lib.py": "b"}, fixer(), "changed file lib.py: check.sh is run and can load it"},
		"executable":          {map[string]string{"tool*": "a"}, map[string]string{"tool*": "b"}, reader, "changed file tool: the agent of subagent fixer can run it"},
		"now executable":      {map[string]string{"tool": "a"}, map[string]string{"tool*": "a"}, reader, "now executable file tool: the agent of subagent fixer can run it"},
		"nothing changed":     {map[string]string{"check.sh": "a"}, map[string]string{"check.sh": "a"}, fixer(), ""},
		"named by no word":    {map[string]string{"Makefile": "a"}, map[string]string{"Makefile": "b"}, making(), "changed file Makefile: the verify of subagent fixer can load it"},
		"settings":            {map[string]string{".claude/settings.json": "a"}, map[string]string{".claude/settings.json": "b"}, reader, "changed file .claude/settings.json: the agent of subagent fixer can load it"},
		"removed":             {map[string]string{"check.sh": "a", "fix.sh": "f"}, map[string]string{"fix.sh": "f"}, fixer(), "removed file check.sh: the verify of subagent fixer runs it, and would run one of the source in its place"},
		"text removed":        {map[string]string{"SKILL.md": "a", "fix.sh": "f"}, map[string]string{"fix.sh": "f"}, fixer(), ""},
		"text for people":     {map[string]string{"SKILL.md": "a"}, map[string]string{"SKILL.md": "b"}, reader, ""},
		"nobody has it":       {map[string]string{"tool*": "a"}, map[string]string{"tool*": "b"}, api.Subagent{Name: "fixer"}, ""},
		"absolute, workspace": {map[string]string{"x/t.py": "a"}, map[string]string{"x/t.py": "b"}, api.Subagent{Name: "fixer", Capabilities: []api.Name{"tools"}, Command: api.Command{"python3", "/workspace/x/../x/t.py"}}, "changed file x/t.py: the agent"},
		"value of an option":  {map[string]string{"rules.json": "a"}, map[string]string{"rules.json": "b"}, api.Subagent{Name: "fixer", Capabilities: []api.Name{"tools"}, Command: api.Command{"lint", "--rules=rules.json"}}, "changed file rules.json: the agent"},
	} {
		before, _ := shelf(c.old, c.who)
		after, _ := shelf(c.now, c.who)
		var lines []string
		for _, w := range Compare(before, after).Widens {
			lines = append(lines, w.What)
		}
		if got := strings.Join(lines, "\n"); c.want == "" && got != "" || !strings.Contains(got, c.want) || len(lines) > 1 {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// making is a subagent whose verify finds its files itself.
func making() api.Subagent {
	return api.Subagent{Name: "fixer", Capabilities: []api.Name{"tools"}, Agent: "codex", Verify: &api.Verify{Command: api.Command{"make", "check"}}}
}

// A verify that loses the capability with its check would run that of the source. The
// controls: a capability without that file is taken away, and nothing is.
//
// proves R-P2, R-C6
func TestACheckThatIsTakenAwayIsALine(t *testing.T) {
	bare := fixer()
	bare.Capabilities = nil
	for name, c := range map[string]struct {
		files map[string]string
		now   api.Subagent
		want  string
	}{
		"check":    {map[string]string{"check.sh": "a"}, bare, "no longer has file check.sh of capability tools: the verify runs it, and would run one of the source in its place"},
		"text":     {map[string]string{"SKILL.md": "a"}, bare, ""},
		"the same": {map[string]string{"check.sh": "a"}, fixer(), ""},
	} {
		before, _ := shelf(c.files, fixer())
		after, _ := shelf(c.files, c.now)
		var lines []string
		for _, w := range Compare(before, after).Widens {
			lines = append(lines, w.What)
		}
		if got := strings.Join(lines, "\n"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// shownFiles returns what is shown of each file.
func shownFiles(old, now map[string]string) map[string]api.FieldChange {
	before, was := shelf(old, fixer())
	after, is := shelf(now, fixer())
	d := api.CatalogDiff{Changes: []api.ArtifactChange{{Op: api.OpChange, Ref: "capability/tools"}}}
	for path := range now {
		d.Changes[0].Fields = append(d.Changes[0].Fields, api.FieldChange{Op: api.OpChange, Field: "files/" + path})
	}
	ShowContents(d, before, after, was, is)
	all := map[string]api.FieldChange{}
	for _, f := range d.Changes[0].Fields {
		all[strings.TrimPrefix(f.Field, "files/")] = f
	}
	return all
}

// A changed text is shown as the lines that differ, whatever its ends of lines are. What
// cannot be shown is named, with the reason, and never left out in silence.
//
// proves R-P2
func TestChangedContentIsShownOrSaid(t *testing.T) {
	many := strings.Repeat("line\n", 20000)
	got := shownFiles(map[string]string{"plain": "a\nb\nc\n", "end": "a", "crlf": "a\r\nb\r\n", "binary": "a", "latin1": "a", "big": "a", "long": "a\n", "line": "x", "same": "a"},
		map[string]string{"plain": "a\nB\nc\n", "end": "b", "crlf": "a\nb\n", "binary": "\x00ELF", "latin1": "M\xfcller", "big": strings.Repeat("x", MaxContent+1), "long": many, "line": strings.Repeat("y", MaxFileDiff), "same": "a", "added": "one\ntwo\n"})
	for path, want := range map[string]api.FieldChange{
		"plain":  {Text: "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"},
		"end":    {Text: "@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n"},
		"crlf":   {Text: "@@ -1,2 +1,2 @@\n-a\r\n-b\r\n+a\n+b\n"},
		"added":  {Text: "@@ -0,0 +1,2 @@\n+one\n+two\n"},
		"binary": {Unshown: "it is binary"},
		"latin1": {Unshown: "it is no UTF-8 text"},
		"big":    {Unshown: fmt.Sprintf("it is larger than %d bytes", MaxContent)},
		"same":   {Unshown: "its content has not changed"},
	} {
		if f := got[path]; f.Text != want.Text || f.Unshown != want.Unshown {
			t.Errorf("%s: %q, %q", path, f.Text, f.Unshown)
		}
	}
	for _, path := range []string{"long", "line"} {
		if f := got[path]; len(f.Text) > MaxFileDiff || !strings.Contains(f.Unshown, "too long") || f.Text != "" && !strings.HasSuffix(f.Text, "\n") {
			t.Errorf("%s: %d bytes, %q", path, len(f.Text), f.Unshown)
		}
	}
}

// Content with another digest than the catalog names is not shown: a reader of files may
// be wrong, or the file changes meanwhile. Control: with the digest it is shown.
func TestContentHasItsDigest(t *testing.T) {
	before, was := shelf(map[string]string{"check.sh": "a\n"})
	after, is := shelf(map[string]string{"check.sh": "b\n"})
	for _, c := range []struct {
		is   Contents
		want string
	}{
		{is, ""},
		{func(api.File) ([]byte, error) { return []byte("c\n"), nil }, "it cannot be read: its content has another digest"},
		{func(api.File) ([]byte, error) { return nil, errors.New("gone") }, "it cannot be read: gone"},
	} {
		d := Compare(before, after)
		d.Changes = []api.ArtifactChange{{Op: api.OpChange, Ref: "capability/tools", Fields: []api.FieldChange{{Op: api.OpChange, Field: "files/check.sh"}}}}
		ShowContents(d, before, after, was, c.is)
		if f := d.Changes[0].Fields[0]; f.Unshown != c.want || (f.Text == "") != (c.want != "") {
			t.Errorf("%q, %q, want %q", f.Text, f.Unshown, c.want)
		}
	}
}

// The work and the text are bounded over all files, and the worst texts for a diff take
// no time that grows with the square of their lines.
func TestContentsAreBounded(t *testing.T) {
	old, now := map[string]string{}, map[string]string{}
	for i := range 100 {
		var a, b strings.Builder
		for j := range 20000 {
			fmt.Fprintln(&a, j%7)
			fmt.Fprintln(&b, j%11)
		}
		old[fmt.Sprint(i)], now[fmt.Sprint(i)] = a.String()+fmt.Sprint(i), b.String()+fmt.Sprint(i)
	}
	from := time.Now()
	got := shownFiles(old, now)
	size, said := 0, 0
	for _, f := range got {
		size += len(f.Text)
		if f.Unshown != "" {
			said++
		}
	}
	if took := time.Since(from); size > MaxDiffs || said != len(got) || took > 30*time.Second {
		t.Errorf("%d bytes of %d files, %d said, in %s", size, len(got), said, took)
	}
}
