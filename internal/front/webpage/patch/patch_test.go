package patch

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

func marks(f *File) (list []string) {
	for _, m := range f.Marks {
		list = append(list, m.Text)
	}
	return list
}

// A patch that git wrote: paths of every kind, modes, links and binary files.
func TestPatchesOfGitAreReadCompletely(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) string {
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=t", "-c", "user.email=t@invalid", "-c", "core.quotePath=true"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	write := func(name, text string, mode os.FileMode) {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	git("init", "-q")
	write("a file.txt", "one\ntwo\nthree\n", 0o644)
	write("gone.txt", "old\n", 0o644)
	write("binary", "\x00\x01\x02", 0o644)
	write("run.sh", "echo\n", 0o644)
	write("moved.txt", strings.Repeat("same\n", 20), 0o644)
	git("add", "-A")
	git("commit", "-qm", "one")
	write("a file.txt", "one\n2\nthree\nfour", 0o644)
	write("binary", "\x00\x01\x03", 0o644)
	write("ünï\tcode\n\u202e.txt", "new\n", 0o644)
	write(".github/workflows/ci.yml", "on: push\n", 0o644)
	if err := os.Remove(filepath.Join(dir, "gone.txt")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "run.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	git("mv", "moved.txt", "there.txt")
	git("add", "-A")
	p := Parse([]byte(git("diff", "--cached", "--binary", "--full-index", "-M")))
	if p.Problem != "" || p.Unread != 0 || len(p.Files) != 8 {
		t.Fatalf("%d files, %q", len(p.Files), p.Problem)
	}
	by := map[string]*File{}
	for i := range p.Files {
		f := &p.Files[i]
		if f.Problem != "" {
			t.Errorf("%s: %s", f.Path, f.Problem)
		}
		by[f.Path] = f
	}
	odd := "ünï\tcode\n\u202e.txt"
	for path, want := range map[string]string{
		"a file.txt": "modified +2 -1 []", "gone.txt": "deleted +0 -1 []", "binary": "modified +0 -0 []", "run.sh": "modified +0 -0 [executable]",
		odd: "added +1 -0 [hidden characters]", ".github/workflows/ci.yml": "added +1 -0 [CI]", "link": "added +1 -0 [link]", "there.txt": "renamed +0 -0 []",
	} {
		f := by[path]
		if f == nil {
			t.Errorf("%q is missing", path)
			continue
		}
		if got := fmt.Sprintf("%s +%d -%d %v", f.Change, f.Added, f.Removed, marks(f)); got != want {
			t.Errorf("%q: %s, want %s", path, got, want)
		}
	}
	if by["there.txt"].Old != "moved.txt" || !by["binary"].Binary {
		t.Errorf("renamed from %q, binary %v", by["there.txt"].Old, by["binary"].Binary)
	}
	var lines []string
	for _, l := range by["a file.txt"].Hunks[0].Lines {
		lines = append(lines, fmt.Sprintf("%s %d %d %s", l.Kind, l.Old, l.New, l.text))
	}
	if want := []string{"context 1 1 one", "removed 2 0 two", "added 0 2 2", "context 3 3 three", "added 0 4 four", "note 0 0  No newline at end of file"}; !slices.Equal(lines, want) {
		t.Errorf("%q, want %q", lines, want)
	}
	shown := ""
	for _, part := range by[odd].PathParts() {
		shown += part.Text
	}
	if shown != `ünï\tcode\nU+202E.txt` {
		t.Errorf("the path is shown as %q", shown)
	}
}

const head = "diff --git a/x b/x\nindex 1111111..2222222 100644\n--- a/x\n+++ b/x\n"

// Lines of a file that look like parts of a patch stay lines of the file, and what is
// not a patch is a problem, not another file.
func TestNoLineOfAFileLooksLikeAnotherFile(t *testing.T) {
	p := Parse([]byte(head + "@@ -1,2 +1,3 @@ func\n-diff --git a/y b/y\n+++ b/evil\n+@@ -1 +1 @@\n+diff --git a/z b/z\n---- a/evil\n"))
	if len(p.Files) != 1 || p.Files[0].Problem != "" || p.Files[0].Added != 3 || p.Files[0].Removed != 2 || p.Files[0].Hunks[0].Header != "func" {
		t.Errorf("%+v", p.Files)
	}
	for name, c := range map[string]struct{ text, want string }{
		"text after a hunk":    {head + "@@ -1 +1 @@\n-a\n+b\n+c\n", `not part of a patch: "+c"`},
		"a line of no kind":    {head + "@@ -1 +1 @@\n-a\nb\n+c\n", "not a line of its hunk"},
		"too many removed":     {head + "@@ -1 +1,2 @@\n-a\n-b\n+c\n", "not a line of its hunk"},
		"an end within a hunk": {head + "@@ -1,9 +1 @@\n-a\n", "ends within a hunk"},
		"a broken header":      {head + "@@ -x +1 @@\n-a\n", "not the header of a hunk"},
		"a huge range":         {head + "@@ -1,99999999999999999999 +1 @@\n-a\n", "not the header of a hunk"},
		"another path":         {"diff --git a/x b/x\n--- a/x\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n", "it names two paths"},
		"an unknown header":    {"diff --git a/x b/x\nevil\n", `not part of a patch: "evil"`},
	} {
		p := Parse([]byte(c.text))
		if len(p.Files) != 1 || !strings.Contains(p.Files[0].Problem, c.want) {
			t.Errorf("%s: %d files, problem %q, want %q", name, len(p.Files), p.Files[0].Problem, c.want)
		}
	}
	if p := Parse([]byte("hello\n" + head)); !strings.Contains(p.Problem, `"hello"`) || len(p.Files) != 1 {
		t.Errorf("text before: %q", p.Problem)
	}
	if p := Parse(nil); len(p.Files) != 0 || p.Problem != "" {
		t.Errorf("nothing: %+v", p)
	}
}

// What hides is counted and marked. Control: the same text without it has no mark.
func TestHiddenCharactersAreMarked(t *testing.T) {
	for line, want := range map[string]int{
		"if ok { // \u202e } evil\u2066": 2,
		"a\u200bb":                       1,
		"\xff":                           1,
		"windows\r":                      0,
		"таблица\tnaïve":                 0,
	} {
		p := Parse([]byte(head + "@@ -0,0 +1 @@\n+" + line + "\n"))
		f := &p.Files[0]
		if f.Hidden != want || slices.Contains(marks(f), "hidden characters") != (want > 0) || f.Problem != "" {
			t.Errorf("%q: %d hidden, marks %q, problem %q", line, f.Hidden, marks(f), f.Problem)
		}
	}
}

func TestPathsThatRunCodeAreMarked(t *testing.T) {
	for path, want := range map[string]string{
		".github/workflows/x.yml": "CI", "sub/.GitHub/Workflows/x.yml": "CI", "Jenkinsfile": "CI", "web/package-lock.json": "dependencies", "requirements-dev.txt": "dependencies",
		"a/App.csproj": "dependencies", "Dockerfile.prod": "build", "CLAUDE.md": "agent", ".vscode/tasks.json": "agent", "main.go": "", "docs/package.json.md": "", "workflows/x.yml": "",
	} {
		got := ""
		for _, m := range marksOf(rules(), path) {
			got += m.Text
		}
		if got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// The digest is of the file's part of the patch: it changes with the part and not with
// the other files.
func TestTheDigestIsOfTheFilesPart(t *testing.T) {
	other := strings.ReplaceAll(head, "x", "y") + "@@ -1 +1 @@\n-a\n+b\n"
	one := head + "@@ -1 +1 @@\n-a\n+b\n"
	alone, both, changed := Parse([]byte(one)), Parse([]byte(other+one)), Parse([]byte(strings.Replace(one, "+b", "+c", 1)))
	if alone.Files[0].Digest != api.DigestOf([]byte(one)) || both.Files[1].Digest != alone.Files[0].Digest || changed.Files[0].Digest == alone.Files[0].Digest {
		t.Error("digests differ from the parts of the patch")
	}
}

// A large patch is bounded: what is left out is counted, large files are folded.
func TestLargePatchesAreBounded(t *testing.T) {
	big := head + fmt.Sprintf("@@ -0,0 +1,%d @@\n", MaxLines+10) + strings.Repeat("+x\n", MaxLines+10)
	p := Parse([]byte(big + strings.ReplaceAll(head, "x", "y") + "@@ -0,0 +1 @@\n+x\n"))
	if f := &p.Files[0]; f.Omitted != 10 || f.Added != MaxLines+10 || !f.Folded || f.Problem != "" {
		t.Errorf("%d omitted, %d added, folded %v, %q", f.Omitted, f.Added, f.Folded, f.Problem)
	}
	if f := &p.Files[1]; f.Path != "y" || f.Omitted != 1 || f.Folded {
		t.Errorf("%+v", f)
	}
	p = Parse([]byte(head + fmt.Sprintf("@@ -0,0 +1,%d @@\n", 8*MaxLines) + strings.Repeat("+\n", 8*MaxLines)))
	if f := &p.Files[0]; f.Omitted != 7*MaxLines || cap(f.Hunks[0].Lines) > 2*MaxLines {
		t.Errorf("%d omitted, room for %d lines is allocated", f.Omitted, cap(f.Hunks[0].Lines))
	}
	p = Parse(append([]byte(head+"@@ -0,0 +1 @@\n+"), bytes.Repeat([]byte("é"), MaxPatch)...))
	if l := p.Files[0].Hunks[0].Lines[0]; p.Unread == 0 || l.Cut() == 0 || len(l.Parts()) != 1 {
		t.Errorf("unread %d, cut %d", p.Unread, l.Cut())
	}
	if p = Parse(bytes.Repeat([]byte("diff --git a/x b/x\n"), MaxFiles+1)); len(p.Files) != MaxFiles || p.Unread != 19 {
		t.Errorf("%d files, %d unread", len(p.Files), p.Unread)
	}
}

// FuzzParse: every byte of a patch belongs to a file, a problem or what is counted as
// unread, and nothing is shown that hides.
func FuzzParse(f *testing.F) {
	f.Add([]byte(head + "@@ -1,2 +1,3 @@\n a\n-b\n+c\n+d\n\\ No newline at end of file\n"))
	f.Add([]byte("diff --git \"a/\\303\\274\" \"b/\\303\\274\"\nnew file mode 100755\nGIT binary patch\nliteral 3\nKcmZ\n\n"))
	f.Add([]byte("diff --git a/a b/b\nsimilarity index 90%\nrename from a\nrename to b\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p := Parse(text)
		added, removed := 0, 0
		for i := range p.Files {
			file := &p.Files[i]
			for _, h := range file.Hunks {
				for _, l := range h.Lines {
					switch l.Kind {
					case KindAdded:
						added++
					case KindRemoved:
						removed++
					case KindContext, KindNote:
					}
					if bytes.ContainsRune(l.text, '\n') {
						t.Fatalf("a line with an end: %q", l.text)
					}
				}
			}
			for _, part := range slices.Concat(file.PathParts(), file.OldParts()) {
				if strings.ContainsAny(part.Text, "\n\t\u202e\x1b") {
					t.Fatalf("the path shows %q", part.Text)
				}
			}
		}
		if added != p.Added || removed != p.Removed {
			t.Fatalf("%d added and %d removed, the lines have %d and %d", p.Added, p.Removed, added, removed)
		}
	})
}
