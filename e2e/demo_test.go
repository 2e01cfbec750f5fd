package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The demo asserts what it shows. Its pages fit on screens, the log has the
// whole output, and its directory is removed.
func TestDemoPrintsAtMost150Lines(t *testing.T) {
	t.Parallel()
	tryDemo(t, "../scripts/demo", 1000)
}

// Likewise the demo of four agent programs, with its scripted model.
func TestDemoOfAgentsPrintsAtMost150Lines(t *testing.T) {
	t.Parallel()
	clientFile(t) // installs them
	tryDemo(t, "../scripts/demo-agent", 300)
}

// tryDemo runs a demo, whose log must have at least as many lines as least.
func tryDemo(t *testing.T, script string, least int) {
	t.Helper()
	// Not t.TempDir: a socket's path has at most 107 bytes, and jails must reach
	// what the demo gives them read-only.
	temp, err := os.MkdirTemp("", "demo-") //nolint:usetesting // see above
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(temp)) })
	must(t, os.Chmod(temp, 0o755))
	log := filepath.Join(t.TempDir(), "demo.log")
	cmd := exec.Command(script, bin)
	cmd.Env = append(os.Environ(), "DEMO_LOG="+log, "TMPDIR="+temp, "VERBOSE=", "NO_COLOR=1")
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
	if left, err := filepath.Glob(filepath.Join(temp, "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}
