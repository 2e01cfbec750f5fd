package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const commitMsg = "../scripts/commit-msg"

// checkMessage runs the hook on a message, outside a repository, and returns what it
// prints, and whether it accepts the message.
func checkMessage(t *testing.T, message string) (string, bool) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "COMMIT_EDITMSG")
	must(t, os.WriteFile(file, []byte(message), 0o600))
	script, err := filepath.Abs(commitMsg)
	must(t, err)
	cmd := exec.Command(script, file)
	cmd.Dir = filepath.Dir(file)
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

func TestCommitMessagesAreChecked(t *testing.T) {
	t.Parallel()
	for _, good := range []string{
		"evidence: refuse a bundle that hides the end of a run",
		"internal/rule/plan: draw the table of states\n\nA body that says why, as long as it needs to be, even beyond the limit of the summary line.\n",
		"server, client: decode requests strictly",
		"make: address review",
		"# a comment of the editor\n\ndocs: add a glossary\n",
		"Merge branch 'main' into topic",
		"Revert \"docs: add a glossary\"",
		"fixup! docs: add a glossary",
		"docs: " + strings.Repeat("x", 66),
	} {
		if out, ok := checkMessage(t, good); !ok {
			t.Errorf("%q is rejected: %s", good, out)
		}
	}
	for bad, want := range map[string]string{
		"":                                 `want "area: imperative summary"`,
		"Let no row pass by":               `want "area: imperative summary"`,
		"docs:add a glossary":              `want "area: imperative summary"`,
		"Docs: add a glossary":             `want "area: imperative summary"`,
		"docs: ":                           `want "area: imperative summary"`,
		"docs: added a glossary":           `begins with "added"`,
		"docs: fixes the tour":             `begins with "fixes"`,
		"docs: adding a glossary":          `begins with "adding"`,
		"docs: add a glossary.":            "ends with a period",
		"docs: " + strings.Repeat("x", 67): "has 73 characters, want at most 72",
	} {
		if out, ok := checkMessage(t, bad); ok || !strings.Contains(out, want) {
			t.Errorf("%q: accepted %t, output %q, want %q", bad, ok, out, want)
		}
	}
}

// commits is a repository with the script, for tests of its checks of commits.
type commits struct {
	t   *testing.T
	dir string
}

func newCommits(t *testing.T) commits {
	t.Helper()
	c := commits{t, t.TempDir()}
	script, err := os.ReadFile(commitMsg)
	must(t, err)
	c.git("init", "-q", "-b", "main")
	c.write("go.mod", "module example.com/m\n")
	c.write("old/big.go", goLines("old", 900))
	c.git("add", "-A")
	c.git("commit", "-q", "-m", "An older commit of 901 lines without a body")
	c.write("scripts/commit-msg", string(script))
	must(t, os.Chmod(filepath.Join(c.dir, "scripts/commit-msg"), 0o755))
	c.git("add", "-A")
	c.git("commit", "-q", "-m", "make: check commits")
	return c
}

// goLines returns a Go file with a package clause and n lines.
func goLines(pkg string, n int) string {
	var b strings.Builder
	b.WriteString("package " + pkg + "\n")
	for i := range n {
		fmt.Fprintf(&b, "var v%d int\n", i)
	}
	return b.String()
}

func (c commits) write(name, content string) {
	c.t.Helper()
	must(c.t, os.MkdirAll(filepath.Dir(filepath.Join(c.dir, name)), 0o755))
	must(c.t, os.WriteFile(filepath.Join(c.dir, name), []byte(content), 0o600))
}

// run runs a program in the repository and returns its output.
func (c commits) run(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@localhost", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@localhost")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (c commits) git(args ...string) {
	c.t.Helper()
	if out, err := c.run("git", args...); err != nil {
		c.t.Fatalf("git %q: %v: %s", args, err, out)
	}
}

// A commit changes at most 600 lines of Go, and a large one says why; what only moves
// does not count. The hook finds it before the commit, and --new after it.
func TestTheSizeOfCommitsIsChecked(t *testing.T) {
	t.Parallel()
	imports := "package b\n\nimport (\n" + strings.Repeat("\t\"example.com/m/internal/a\"\n", 700) + ")\n"
	for name, test := range map[string]struct {
		files map[string]string
		body  string
		want  string // empty: accepted
	}{
		"150 lines without a body":       {files: map[string]string{"a.go": goLines("a", 149)}},
		"600 lines with a body":          {files: map[string]string{"a.go": goLines("a", 599)}, body: "Because."},
		"many lines of another language": {files: map[string]string{"a.txt": goLines("a", 2000)}},
		"imports of this module":         {files: map[string]string{"b.go": imports}},
		"151 lines without a body":       {files: map[string]string{"a.go": goLines("a", 150)}, want: "changes 151 lines of Go and has no body"},
		"601 lines":                      {files: map[string]string{"a.go": goLines("a", 600)}, body: "Because.", want: "changes 601 lines of Go, want at most 600"},
		"601 lines in two files":         {files: map[string]string{"a.go": goLines("a", 299), "b.go": goLines("b", 300)}, body: "Because.", want: "changes 601 lines"},
		"imports of another module":      {files: map[string]string{"b.go": strings.ReplaceAll(imports, "example.com/m/", "example.com/n/")}, body: "Because.", want: "want at most 600"},
	} {
		c := newCommits(t)
		for file, content := range test.files {
			c.write(file, content)
		}
		c.git("add", "-A")
		message := "docs: add it\n\n" + test.body + "\n"
		c.write(".git/MESSAGE", "# the editor's\n"+message)
		hook, hookErr := c.run("scripts/commit-msg", ".git/MESSAGE")
		c.git("commit", "-q", "-m", message)
		later, laterErr := c.run("scripts/commit-msg", "--new")
		for by, got := range map[string]struct {
			out string
			err error
		}{"the hook": {hook, hookErr}, "--new": {later, laterErr}} {
			if test.want == "" && got.err != nil || test.want != "" && (got.err == nil || !strings.Contains(got.out, test.want)) {
				t.Errorf("%s: %s: %v %q, want %q", name, by, got.err, got.out, test.want)
			}
		}
	}
	// A file that moves counts with the lines that change, and a revert passes.
	c := newCommits(t)
	c.git("mv", "old", "new")
	c.write("new/big.go", strings.Replace(goLines("old", 900), "package old", "package young", 1))
	c.git("add", "-A")
	c.git("commit", "-q", "-m", "new: move the package")
	c.write("a.go", goLines("a", 900))
	c.git("add", "-A")
	c.git("commit", "-q", "-m", "Revert \"a: remove it\"")
	if out, err := c.run("scripts/commit-msg", "--new"); err != nil {
		t.Errorf("a move or a revert is refused: %s", out)
	}
}

// The range check finds a bad message among new commits, leaves older ones
// alone, and works in a clone whose history is cut.
func TestOnlyNewCommitsAreChecked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script, err := os.ReadFile(commitMsg)
	must(t, err)
	run := func(repo, name string, args ...string) (string, error) { return commits{t, repo}.run(name, args...) }
	git := commits{t, dir}.git
	git("init", "-q", "-b", "main")
	git("commit", "-q", "--allow-empty", "-m", "An older style")
	must(t, os.Mkdir(filepath.Join(dir, "scripts"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "scripts/commit-msg"), script, 0o755))
	git("add", "-A")
	git("commit", "-q", "-m", "Another of them, which adds the script")
	git("commit", "-q", "--allow-empty", "-m", "docs: add a glossary")
	if out, err := run(dir, "scripts/commit-msg", "--new"); err != nil {
		t.Errorf("older commits are checked: %s", out)
	}
	git("commit", "-q", "--allow-empty", "-m", "Added stuff")
	if out, err := run(dir, "scripts/commit-msg", "--new"); err == nil || !strings.Contains(out, "Added stuff") {
		t.Errorf("a bad new commit passes: %s", out)
	}
	shallow := filepath.Join(t.TempDir(), "shallow")
	git("clone", "-q", "--depth", "1", "file://"+dir, shallow)
	if out, err := run(shallow, "scripts/commit-msg", "--new"); err != nil {
		t.Errorf("a shallow clone: %s", out)
	}
	if out, err := run(shallow, "scripts/commit-msg", "--install"); err != nil {
		t.Fatalf("install: %s", out)
	}
	if out, err := run(shallow, "git", "commit", "-q", "--allow-empty", "-m", "Added stuff"); err == nil || !strings.Contains(out, "imperative summary") {
		t.Errorf("the installed hook accepts a bad message: %s", out)
	}
	if out, err := run(shallow, "git", "commit", "-q", "--allow-empty", "-m", "docs: add stuff"); err != nil {
		t.Errorf("the installed hook rejects a good message: %s", out)
	}
}
