package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const commitMsg = "../scripts/commit-msg"

// checkMessage runs the hook on a message and returns what it prints, and
// whether it accepts the message.
func checkMessage(t *testing.T, message string) (string, bool) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "COMMIT_EDITMSG")
	must(t, os.WriteFile(file, []byte(message), 0o600))
	out, err := exec.Command(commitMsg, file).CombinedOutput()
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

// The range check finds a bad message among new commits, leaves older ones
// alone, and works in a clone whose history is cut.
func TestOnlyNewCommitsAreChecked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script, err := os.ReadFile(commitMsg)
	must(t, err)
	run := func(repo, name string, args ...string) (string, error) {
		cmd := exec.Command(name, args...)
		cmd.Dir = repo
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@localhost", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@localhost")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	git := func(args ...string) {
		t.Helper()
		if out, err := run(dir, "git", args...); err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
	}
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
