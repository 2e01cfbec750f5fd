package e2e

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// The first hour of an engineer, a developer and an auditor goes as its transcript
// shows: testdata/firsthour plays it. go test ./e2e -run TestFirstHour -update
// writes the transcript anew.
func TestFirstHour(t *testing.T) {
	t.Parallel()
	const transcript = "testdata/firsthour.txt"
	w := newGuideWorld(t)
	script, err := os.ReadFile("testdata/firsthour")
	must(t, err)
	w.write("firsthour", string(script), 0o755)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.path("firsthour"), w.path("home/examples"))
	cmd.Dir, cmd.Env = w.path("home"), w.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := w.outputLines(string(out))
	if *updateGuides {
		must(t, os.WriteFile(transcript, []byte(strings.Join(got, "\n")+"\n"), 0o644)) //nolint:gosec // a document
		return
	}
	text, err := os.ReadFile(transcript)
	must(t, err)
	want := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) || !lineMatches(want[i], got[i]) {
			t.Fatalf("line %d differs from %s; the transcript is now\n%s", i+1, transcript, strings.Join(got, "\n"))
		}
	}
}
