package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// What users look for after a night: the failed runs and tasks, what they wrote,
// and what waits for a person. A failed run waits until its owner has looked at
// it, also after a restart.
func TestTheMorningAfter(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, ordinaryUID)
	w.submit(planned("bad", shellTask("fine", "echo fine; echo data > outputs/data.txt; echo TWO > b.txt"), shellTask("broken", "echo one; echo two; exit 3"), shellTask("after", "true", after("broken"))))
	good := planned("good", shellTask("a", "echo ONE > a.txt; mkdir -p outputs/deep; echo deep > outputs/deep/report.md"))
	good.Labels = map[api.Name]string{"team": "web", "kind": "nightly"}
	w.submit(good)
	w.submit(planned("held", shellTask("a", awaitGate("never"))))
	w.awaitSettled("bad")
	w.awaitSettled("good")
	w.begunTask("held", "a")
	names := func(args ...string) string {
		return strings.Join(strings.Fields(w.chosen(w.must(append([]string{"run", "list", "-o", "name"}, args...)...))), " ")
	}
	for args, want := range map[string]string{
		"": "held good bad", "--state failed": "bad", "--state settled": "good bad", "--state open": "held", "--subagent sh --state done": "good", "--subagent typed": "",
		"--queue default --since 1h": "held good bad", "--since 2099-01-01": "", "--principal " + w.me(): "held good bad", "--principal local:other": "", "--label team=web": "good", "--label team=web --label kind=other": "", "--last 1": "held", "--last 2 --after held": "good bad",
	} {
		if got := names(strings.Fields(args)...); got != want {
			t.Errorf("run list %s: %q, want %q", args, got, want)
		}
	}
	if text := w.must("run", "list"); !strings.Contains(text, "kind=nightly, team=web") {
		t.Errorf("%s", text)
	}
	w.refused(1, []string{"not found"}, "run", "list", "--after", "unknown")
	if text := w.must("waiting"); !strings.Contains(text, "failed      run bad") || strings.Contains(text, "good") || strings.Contains(text, "held") {
		t.Errorf("%s", text)
	}
	kill(t, w.status().PID)
	w.upRuns()
	if ids := w.chosen(w.must("waiting", "-o", "name")); ids != "bad\n" {
		t.Errorf("%q", ids)
	}
	if text := w.must("run", "show", "bad", "--failed"); !strings.Contains(text, "\nbroken ") || strings.Contains(text, "\nfine ") {
		t.Errorf("%s", text)
	}
	if ids := w.must("waiting", "-o", "name"); ids != "" {
		t.Errorf("the run was shown, and waits: %q", ids)
	}
	if log := w.must("run", "logs", "bad", "--failed", "--tail", "1"); log != "broken | two\n" {
		t.Errorf("%q", log)
	}
	if text := w.must("run", "outputs", "bad"); !strings.Contains(text, "fine  data.txt  5 bytes") {
		t.Errorf("%s", text)
	}
	w.must("run", "outputs", "good", "--dir", w.path("results"))
	if b, err := os.ReadFile(w.path("results", "a", "deep", "report.md")); err != nil || string(b) != "deep\n" {
		t.Errorf("%q, %v", b, err)
	}
	w.refused(1, []string{"not overwritten"}, "run", "outputs", "good", "--dir", w.path("results"))
	w.must("run", "outputs", "good", "--dir", w.path("results"), "--force")
	w.refused(1, []string{"run good is done: there is nothing to pause"}, "run", "pause", "good")
	w.refused(1, []string{"run bad is failed: there is nothing to cancel"}, "run", "cancel", "bad")

	w.must("run", "apply", "good", "--repo", w.path("repo"))
	w.must("run", "apply", "bad", "fine", "--repo", w.path("repo"), "--branch", "side")
	for path, want := range map[string]string{"repo/a.txt": "ONE\n", "repo/b.txt": "two\n"} {
		if b, err := os.ReadFile(w.path(path)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", path, b, err)
		}
	}
	w.refused(1, []string{"has changes of its own where the patch applies: a.txt", "nothing was written"}, "run", "apply", "good", "--repo", w.path("repo"))
	dispatch := string(task(t, w.run("bad"), "fine").DispatchID)
	w.must("dispatch", "apply", dispatch, "--repo", w.path("repo"))
	if b, err := os.ReadFile(w.path("repo/b.txt")); err != nil || string(b) != "TWO\n" {
		t.Errorf("%q, %v", b, err)
	}
	// A patch of one dispatch conflicts with the commit, and with no other patch.
	w.write("repo/b.txt", "mine\n", 0o644)
	w.git("repo", "commit", "-qam", "mine")
	if out := w.try("dispatch", "apply", dispatch, "--repo", w.path("repo")); out.status != 1 || !strings.Contains(out.stdout, "  b.txt\n") || strings.Contains(out.stdout, "also changed by") {
		t.Errorf("a conflict of one dispatch: %s", out)
	}
	// On a narrow terminal no row of a list is continued on the next line.
	for _, line := range []string{"run list", "dispatch list", "queue list", "principal list", "run outputs bad", "run patch bad", "catalog list"} {
		s := w.onTerminal(60, strings.Fields(line)...)
		if status := s.end(); status != 0 || s.text() == "" {
			t.Errorf("%s: exit status %d, %q", line, status, s.text())
		}
		for row := range strings.Lines(s.text()) {
			if row = strings.TrimRight(row, "\r\n"); len(row) > 60 && !strings.Contains(row, "bailiwick ") {
				t.Errorf("%s: %d columns: %q", line, len(row), row)
			}
		}
	}
	w.must("run", "cancel", "held")
	if text := w.chosen(w.must("run", "cancel", "held")); text != "run held is already cancelled\n" {
		t.Errorf("%q", text)
	}
	if done := w.refused(1, nil, "run", "wait", "held", "good", "-o", "name"); w.chosen(done.stdout) != "held\ngood\n" {
		t.Errorf("%q", done.stdout)
	}
}

// An answer that goes into a program which stops reading ends silently, in
// every locale; nothing of it is an escape sequence.
func TestOutputIntoHeadEndsQuietly(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	w.submit(planned("r-head", shellTask("a", "seq 1 50000")))
	w.awaitSettled("r-head")
	dispatch := string(task(t, w.run("r-head"), "a").DispatchID)
	for _, line := range []string{"run list", "run show r-head", "run logs r-head", "run watch r-head", "run wait r-head", "dispatch list", "dispatch show " + dispatch, "dispatch logs " + dispatch, "audit list", "audit list -o jsonl", "run list -o json", "waiting", "status"} {
		cmd := w.command("sh", "-c", `exec 3>&1; { "$0" "$@" 2>&3; } | head -c 1 >/dev/null`)
		cmd.Args = append(cmd.Args, append([]string{filepath.Join(bin, "bailiwick")}, strings.Fields(line)...)...)
		cmd.Env = append(cmd.Env, "LC_ALL=C", "LANG=C")
		if out, err := cmd.CombinedOutput(); err != nil || strings.ContainsAny(string(out), "\x1b") || strings.Contains(string(out), "pipe") {
			t.Errorf("%s | head: %v, %q", line, err, out)
		}
		if d := w.try(strings.Fields(line)...); strings.ContainsAny(d.stdout, "\x1b") {
			t.Errorf("%s: %q", line, d.stdout)
		}
	}
}
