package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The demo asserts what it shows. Its pages fit on screens, and the log has the whole
// output. With KEEP=1 its state is kept, and the command that it ends with opens the page
// on it, as the environment that it wrote has it.
func TestDemoPrintsAtMost150Lines(t *testing.T) {
	t.Parallel()
	temp, screen := runDemo(t, "../scripts/demo", 1000, "KEEP=1")
	kept, err := filepath.Glob(filepath.Join(temp, "*"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept: %q, %v", kept, err)
	}
	file := filepath.Join(kept[0], "env")
	wantIn(t, "the end of the demo", screen, "(. "+file+" && bailiwick up --orchestrator && bailiwick web serve)", "rm -rf "+kept[0])
	printed, err := exec.Command("sh", "-c", ". "+file+" && env").Output()
	must(t, err)
	w := &world{t: t, dir: kept[0], env: strings.Split(strings.TrimSpace(string(printed)), "\n")}
	w.upRuns()
	w.downAtEnd()
	p := w.servePage()
	tab := p.signedIn()
	p.at(tab, "/runs/demo-run")
	wantIn(t, "the run on the page", tab.text("main"), "find", "merge", "done")
	p.quiet(tab)
}

// Likewise the demo of four agent programs, with its scripted model. Its directory is
// removed.
func TestDemoOfAgentsPrintsAtMost150Lines(t *testing.T) {
	t.Parallel()
	clientFile(t) // installs them
	temp, screen := runDemo(t, "../scripts/demo-agent", 300)
	wantIn(t, "the end of the demo", screen, "To look at it in a browser, keep it: make demo-agent KEEP=1")
	if left, err := filepath.Glob(filepath.Join(temp, "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// runDemo runs a demo with more in its environment, whose log must have at least as many
// lines as least. It returns its temporary directory and what the screen showed.
func runDemo(t *testing.T, script string, least int, more ...string) (temp, shown string) {
	t.Helper()
	// Not t.TempDir: a socket's path has at most 107 bytes, and jails must reach
	// what the demo gives them read-only.
	temp, err := os.MkdirTemp("", "demo-") //nolint:usetesting // see above
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(temp)) })
	must(t, os.Chmod(temp, 0o755))
	log := filepath.Join(t.TempDir(), "demo.log")
	cmd := exec.Command(script, bin)
	cmd.Env = append(os.Environ(), "DEMO_LOG="+log, "DEMO_GOCACHE="+filepath.Join(filepath.Dir(bin), "gocache"), "TMPDIR="+temp, "VERBOSE=", "KEEP=", "NO_COLOR=1")
	cmd.Env = append(cmd.Env, more...)
	var screen bytes.Buffer
	cmd.Stdout, cmd.Stderr = &screen, &screen
	err = cmd.Run()
	whole, _ := os.ReadFile(log)
	if err != nil {
		t.Fatalf("%v\n%s\nthe log:\n%s", err, screen.String(), whole)
	}
	if n := strings.Count(screen.String(), "\n"); n > 150 {
		t.Errorf("the demo prints %d lines, want at most 150:\n%s", n, screen.String())
	}
	for i, page := range strings.Split(screen.String(), "\n\n") {
		if n := strings.Count(page, "\n") + 1; n > 24 {
			t.Errorf("page %d has %d lines, want at most 24:\n%s", i, n, page)
		}
	}
	if n := bytes.Count(whole, []byte("\n")); n < least {
		t.Errorf("the log has %d lines, want the whole output", n)
	}
	return temp, screen.String()
}
