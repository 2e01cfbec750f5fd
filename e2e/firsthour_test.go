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
// rewrites the transcript, without the lines "…" that stand for the line "sealed", which
// only a slow machine prints. Put them back.
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
	text, err := os.ReadFile(transcript)
	must(t, err)
	want := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	switch {
	case outputMatches(want, got):
	case *updateGuides:
		must(t, os.WriteFile(transcript, []byte(strings.Join(got, "\n")+"\n"), 0o644)) //nolint:gosec // a document
	default:
		t.Errorf("the transcript differs from %s:%d; it is now\n%s", transcript, firstDifference(want, got), strings.Join(got, "\n"))
	}
}

// firstDifference is the number of the first line of a transcript that output
// does not match.
func firstDifference(want, got []string) int {
	i := 0
	for _, line := range got {
		for i+1 < len(want) && want[i] == "…" && lineMatches(want[i+1], line) {
			i++
		}
		switch {
		case i == len(want) || want[i] != "…" && !lineMatches(want[i], line):
			return i + 1
		case want[i] != "…":
			i++
		}
	}
	return i + 1
}
