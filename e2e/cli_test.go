package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Every verb, with its exit status and output: the answer on standard output,
// everything else on standard error.
func TestEveryVerbAnswersAsDocumented(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(
		subagent{name: "edit", script: "echo hello log; mkdir -p outputs/sub; echo x > outputs/sub/x.txt; echo two > a.txt"},
		subagent{name: "fails", script: "exit 3"},
		subagent{name: "sleeps", script: "echo begun; sleep 300"},
	)
	w.up()
	d := w.dispatch("edit", "--source", "repo", "--id", "the-dispatch")
	wantEnd(t, d, api.EventFinished, "")
	must(t, os.WriteFile(w.path("in.json"), []byte(`{"from":"file"}`), 0o644))
	socket, doctor, mode := w.named(w.path("run/bailiwick/api.sock")), "trust root", api.ModeSameUser
	if w.on != nil {
		doctor, mode = "trust and settings", api.ModeSystem
	}
	for _, c := range []struct {
		line   string
		status int
		out    []string // on standard output; nil means empty
		errs   []string // on standard error; nil means any
	}{
		{"help", 0, []string{"dispatch", "audit", "catalog", "Usage:"}, nil},
		{"--help", 0, []string{"Usage:"}, nil},
		{"help dispatch run", 0, []string{"--source", "Usage:"}, nil},
		{"dispatch", 0, []string{"logs", "outputs", "Usage:"}, nil},
		{"audit --help", 0, []string{"list", "watch"}, nil},
		{"version", 0, []string{"bailiwick "}, nil},
		{"--version", 0, []string{"bailiwick "}, nil},
		{"completion bash", 0, []string{"bailiwick"}, nil},
		{"completion zsh", 0, []string{"bailiwick"}, nil},
		{"completion fish", 0, []string{"bailiwick"}, nil},
		{"doctor", 0, []string{"git", doctor, mode, "ok "}, nil},
		{"status", 0, []string{"ready", "revision 1", "1 of 1", socket, "1 finished"}, nil},
		{"status -o json", 0, []string{`"ready": true`, `"mode": "` + mode + `"`, socket}, nil},
		{"--socket " + socket + " status -o jsonl", 0, []string{`"ready":true`}, nil},
		{"can " + w.me() + " dispatch edit --source repo", 0, []string{"yes: " + w.me() + " may dispatch edit", "grant:"}, nil},
		{"can " + w.me() + " dispatch edit -o json", 0, []string{`"allowed": true`}, nil},
		{"can agent:nobody dispatch edit", 3, []string{"no: agent:nobody may not dispatch edit", "grant"}, nil},
		{"can " + w.me() + " dispatch edit --source other", 3, []string{"no:", `"other"`}, nil},
		{"can " + w.me() + " dispatch edit --target other --env other --capability other", 3, []string{"no:"}, nil},
		{"can " + w.me() + " destroy edit", 1, nil, []string{`"destroy"`, "dispatch"}},
		{"can root dispatch edit", 1, nil, []string{`"root"`, "local:"}},
		{"dispatch run edit --source repo --input @" + w.path("in.json"), 0, []string{"finished", "a.txt", "patch", "usage", "next"}, []string{"accepted", "hello log"}},
		{"dispatch run edit -q -o name", 0, []string{"d-"}, nil},
		{"dispatch run fails -q", 1, []string{"failed: agent", "exit status 3"}, nil},
		{"dispatch run other", 3, nil, []string{`"other"`, "hint:", "log entry: #"}},
		{"dispatch run edit --set x", 1, nil, []string{"KEY=TEXT"}},
		{"dispatch run", 1, nil, []string{"arg"}},
		{"dispatch run sleeps --source repo --wait 2s --id sleeper", 8, nil, []string{"sleeper", "continues", "dispatch logs -f sleeper"}},
		{"dispatch show sleeper", 0, []string{"started"}, nil},
		{"dispatch outputs sleeper", 8, nil, []string{"has not ended"}},
		{"dispatch patch sleeper", 1, nil, []string{"has no patch"}},
		{"dispatch logs sleeper", 0, []string{"begun\n"}, nil},
		{"dispatch cancel sleeper --reason enough", 0, []string{"cancelled", "by " + w.me()}, nil},
		{"dispatch cancel sleeper", 0, []string{"cancelled"}, nil},
		{"dispatch cancel the-dispatch", 0, []string{"finished"}, nil},
		{"dispatch show the-dispatch", 0, []string{"the-dispatch finished", "role transform, tier reversible", "sha256:", "sub/x.txt"}, nil},
		{"dispatch show the-dispatch -o json", 0, []string{`"state": "finished"`}, nil},
		{"dispatch show the-dispatch -o name", 0, []string{"the-dispatch\n"}, nil},
		{"dispatch show no-such-dispatch", 1, nil, []string{"no-such-dispatch", "dispatch list"}},
		{"dispatch show NO", 1, nil, []string{"dispatch id"}},
		{"dispatch list", 0, []string{"ID", "STATE", "the-dispatch", "sleeper", "cancelled", "failed: agent"}, nil},
		{"dispatch list --last 1 -o name", 0, []string{"\n"}, nil},
		{"dispatch list --last 0", 1, nil, []string{"--last 0"}},
		{"dispatch list -o jsonl", 0, []string{`"dispatchId":"the-dispatch"`}, nil},
		{"dispatch logs the-dispatch", 0, []string{"hello log\n"}, nil},
		{"dispatch logs -f the-dispatch", 0, []string{"hello log\n"}, nil},
		{"dispatch logs the-dispatch --offset 6", 0, []string{"log\n"}, nil},
		{"dispatch logs the-dispatch --offset 600", 0, nil, nil},
		{"dispatch logs the-dispatch --offset -1", 1, nil, []string{"offset"}},
		{"dispatch logs no-such-dispatch", 1, nil, []string{"no-such-dispatch"}},
		{"dispatch patch the-dispatch", 0, []string{"diff --git a/a.txt b/a.txt", "+two"}, nil},
		{"dispatch patch the-dispatch --to " + w.path("new.patch"), 0, nil, nil},
		{"dispatch patch the-dispatch --to " + w.path("new.patch"), 1, nil, []string{"new.patch", "exists"}},
		{"dispatch patch no-such-dispatch --to " + w.path("none.patch"), 1, nil, []string{"no-such-dispatch"}},
		{"dispatch outputs the-dispatch", 0, []string{"sub/x.txt", "sha256:"}, nil},
		{"dispatch outputs the-dispatch -o name", 0, []string{"sub/x.txt\n"}, nil},
		{"dispatch outputs the-dispatch sub/x.txt", 0, []string{"x\n"}, nil},
		{"dispatch outputs the-dispatch sub/y.txt", 1, nil, []string{`"sub/y.txt"`}},
		{"dispatch outputs the-dispatch --dir " + w.path("taken"), 0, nil, []string{"wrote"}},
		{"dispatch outputs the-dispatch --dir " + w.path("taken"), 1, nil, []string{"exists"}},
		{"audit list --dispatch the-dispatch", 0, []string{"requested edit", "started", "finished"}, nil},
		{"audit list --kind dispatch.denied", 0, []string{"requested other as dispatch d-", ": denied"}, nil},
		{"audit list --kind nonsense", 1, nil, []string{"nonsense", "dispatch.denied"}},
		{"audit list --principal agent:nobody", 0, nil, nil},
		{"audit list --principal nobody", 1, nil, []string{"principal"}},
		{"audit list --after 0 --last 1 -o jsonl", 0, []string{`{"seq":`, `"entry":{`}, nil},
		{"catalog list", 0, []string{"edit"}, nil},
		{"catalog frobnicate", 1, nil, []string{"frobnicate"}},
		{"key frobnicate", 1, nil, []string{"frobnicate"}},
		{"catalog show", 0, []string{"1"}, nil},
		{"catalog verify", 0, []string{"ok"}, nil},
		{"catalog plan -f " + w.path(manifest), 0, []string{"o changes"}, nil},
		{"frobnicate", 1, nil, []string{"frobnicate"}},
		{"dispatch frobnicate", 1, nil, []string{"frobnicate"}},
		{"status --frobnicate", 1, nil, []string{"frobnicate"}},
		{"status now", 1, nil, []string{"now"}},
		{"status -o xml", 1, nil, []string{`"xml"`, "text, json, jsonl or name"}},
		{"--socket " + w.path("nothing.sock") + " status", 1, nil, []string{"no service answers", "nothing.sock", w.starts()}},
	} {
		got := w.try(strings.Fields(c.line)...)
		if got.status != c.status {
			t.Errorf("bailiwick %s: want exit status %d, got %s", c.line, c.status, got)
			continue
		}
		if (len(c.out) == 0) != (got.stdout == "") {
			t.Errorf("bailiwick %s: standard output has %q", c.line, got.stdout)
		}
		for _, want := range c.out {
			if !strings.Contains(got.stdout, want) && !strings.Contains(w.chosen(got.stdout), want) {
				t.Errorf("bailiwick %s: standard output lacks %q: %s", c.line, want, got)
			}
		}
		for _, want := range c.errs {
			if !strings.Contains(got.stderr, want) {
				t.Errorf("bailiwick %s: standard error lacks %q: %s", c.line, want, got)
			}
		}
		if c.status != 0 && c.status != 3 && got.stderr == "" && got.stdout == "" {
			t.Errorf("bailiwick %s fails without a message", c.line)
		}
	}
	if got := w.read("taken/sub/x.txt"); got != "x\n" {
		t.Errorf("the output that was written is %q", got)
	}
	if _, err := os.Lstat(w.path("none.patch")); err == nil {
		t.Error("a failed patch command left a file")
	}
	w.must("down")
	for _, line := range []string{"dispatch list", "dispatch run edit", "audit list", "audit watch", "can " + w.me() + " dispatch edit", "dispatch logs -f the-dispatch"} {
		w.refused(1, []string{"no service answers", w.starts()}, append([]string{"--socket", socket}, strings.Fields(line)...)...)
	}
	w.refused(1, []string{"no service answers", w.starts()}, "status")
	w.refused(0, []string{"not running"}, "down")
}

// Each JSON answer is one complete value, whatever strings it contains.
func TestEveryProgramPrintsItsVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ordinaryUID)
	programs, err := os.ReadDir(bin)
	must(t, err)
	seen := 0
	for _, p := range programs {
		if _, err := os.Stat("../cmd/" + p.Name()); err != nil {
			continue // a test's own
		}
		seen++
		if got, want := w.exec(filepath.Join(bin, p.Name()), "--version"), (done{stdout: p.Name() + " version " + api.Version() + "\n"}); got != want {
			t.Errorf("%s: got %s, want %s", p.Name(), got, want)
		}
	}
	if all, err := os.ReadDir("../cmd"); err != nil || seen != len(all) {
		t.Errorf("%d programs are built of %d: %v", seen, len(all), err)
	}
}

func TestJSONOutputIsOneValue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: `printf 'x' > "$(printf 'na\033[31m\n<me>')"; mkdir -p outputs; echo y > 'outputs/a "b"'`})
	w.up()
	w.dispatch("edit", "--source", "repo", "--id", "odd-names")
	for _, args := range [][]string{
		{"status"},
		{"dispatch", "list"},
		{"dispatch", "show", "odd-names"},
		{"dispatch", "outputs", "odd-names"},
		{"can", w.me(), "dispatch", "edit"},
		{"catalog", "list"},
		{"catalog", "plan", "-f", w.path(manifest)},
	} {
		var v any
		out := w.must(append(args, "-o", "json")...)
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			t.Errorf("bailiwick %s -o json: %v: %s", strings.Join(args, " "), err, out)
		}
		if strings.Contains(out, "\x1b") {
			t.Errorf("bailiwick %s -o json prints terminal control sequences", strings.Join(args, " "))
		}
	}
	for line := range strings.Lines(w.must("audit", "list", "-o", "jsonl")) {
		var v any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Errorf("audit list -o jsonl: %v: %s", err, line)
		}
	}
}

// watch shows an entry when it is appended, and exits when it is interrupted.
//
// proves R-O5
func TestAuditWatchFollowsUntilInterrupted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "true"}, subagent{name: "sleeps", script: "echo begun; sleep 300"})
	w.up()
	cmd := w.command(filepath.Join(bin, "bailiwick"), "audit", "watch", "--kind", "dispatch.denied")
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for i := range 3 {
		w.refused(3, nil, "dispatch", "run", fmt.Sprintf("nobody-%d", i))
		if !lines.Scan() || !strings.Contains(lines.Text(), fmt.Sprintf("nobody-%d", i)) {
			t.Fatalf("watch shows %q", lines.Text())
		}
	}
	must(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("an interrupted watch exits with %d", code)
	}

	// An interrupted run leaves the dispatch running, and says so.
	run := w.command(filepath.Join(bin, "bailiwick"), "dispatch", "run", "sleeps", "--id", "sleeps-on")
	stderr, err := run.StderrPipe()
	must(t, err)
	must(t, run.Start())
	var text strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		text.WriteString(lines.Text() + "\n")
		if lines.Text() == "| begun" {
			must(t, run.Process.Signal(syscall.SIGINT))
		}
	}
	_ = run.Wait()
	if code := run.ProcessState.ExitCode(); code != 130 || !strings.Contains(text.String(), "bailiwick dispatch cancel sleeps-on") {
		t.Errorf("an interrupted run exits with %d: %s", code, text.String())
	}
	if d := w.show("sleeps-on"); d.State != api.EventStarted {
		t.Errorf("the dispatch is %s", d.State)
	}
	w.must("dispatch", "cancel", "sleeps-on")
}
