package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// offered returns what a shell offers for a command line.
func (w *world) offered(shell, line string) []string {
	w.t.Helper()
	script, err := filepath.Abs("testdata/completion/complete." + shell)
	must(w.t, err)
	args := []string{script, line}
	if shell == "zsh" {
		args = append([]string{"-f", "-o", "extendedglob"}, args...)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, shell, args...)
	if w.on != nil {
		cmd = w.on.Command(ctx, w.uid, append([]string{shell}, args...)...)
	}
	cmd.Dir, cmd.Env = w.dir, append(slices.Clone(w.env), "PATH="+bin+":"+os.Getenv("PATH"))
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		w.t.Errorf("%s, %q: %v: %s", shell, line, err, out)
	}
	var words []string
	for word := range strings.FieldsSeq(w.chosen(string(out))) {
		if !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	slices.Sort(words)
	return words
}

// bash, zsh and fish complete nouns, verbs, names, ids and the values of flags, of
// verbs of other programs too. What an agent named is offered only if no shell can
// read it as more than a word.
func TestShellsComplete(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(
		subagent{name: "works", script: "true", tier: "observe"},
		subagent{name: "writes", script: `mkdir -p outputs; cd outputs; touch fine.txt 'a b' '$(touch pwned)' ';id' "$(printf 'c\033[31m')" -- --flag`},
	)
	w.upRuns()
	w.downAtEnd()
	w.must("dispatch", "run", "writes", "-q", "--id", "work-one")
	w.write("plan.yaml", "id: run-one\ntasks:\n  - {id: task-one, subagent: works}\n", 0o644)
	w.must("run", "submit", w.path("plan.yaml"), "--wait", "1m")
	w.must("stop", "--target", "looking")
	of := strings.TrimSpace(w.must("dispatch", "list", "--run", "run-one", "-o", "name"))
	cases := map[string]string{
		"bailiwick dispa":                        "dispatch",
		"bailiwick dispatch pat":                 "patch",
		"bailiwick dispatch show work":           "work-one",
		"bailiwick dispatch show ":               of + " work-one",
		"bailiwick run show ":                    "run-one",
		"bailiwick run logs run-one ":            "task-one",
		"bailiwick dispatch run ":                "works writes",
		"bailiwick dispatch run works --source ": "repo",
		"bailiwick dispatch list --state f":      "failed finished",
		"bailiwick run list --state se":          "settled",
		"bailiwick run list --state pe":          "",
		"bailiwick run show run-one --state pe":  "pending",
		"bailiwick run retry run-one --from t":   "task-one",
		"bailiwick dispatch list --run ":         "run-one",
		"bailiwick status -o js":                 "json jsonl",
		"bailiwick ceiling set " + w.me() + " ":  "irreversible observe reversible stateful",
		"bailiwick subagent show wo":             "works",
		"bailiwick stop lift ":                   "s-1",
		"bailiwick mcp config --client c":        "claude-code codex cursor",
		"bailiwick catalog pl":                   "plan",
		"bailiwick catalog plan --pru":           "--prune",
		"bailiwick key sh":                       "show",
		"bailiwick up --orch":                    "--orchestrator",
		"bailiwick can dispatch wo":              "works",
		"bailiwick can role:transform ":          "call",
		"bailiwick can role:transform call ":     "ask report",
		"bailiwick tool list --role t":           "transform",
		"bailiwick audit list --tool r":          "report",
		"bailiwick dispatch outputs work-one ":   "fine.txt",
		"bailiwick run answer run-one --task ":   "task-one",
	}
	for _, shell := range []string{"bash", "fish", "zsh"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			w := *w
			w.t = t
			for line, want := range cases {
				words := strings.Fields(want)
				slices.Sort(words)
				if got := w.offered(shell, line); !slices.Equal(got, words) {
					t.Errorf("%q: %q, want %q", line, got, words)
				}
			}
		})
	}
	// The control: the agent has written the hostile names.
	if list := w.must("dispatch", "outputs", "work-one", "-o", "json"); !strings.Contains(list, "$(touch pwned)") || !strings.Contains(list, ";id") {
		t.Errorf("the outputs are %s", list)
	}
}

// Without a service, completion is quick, silent and empty, and starts none.
func TestCompletionStartsNoService(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ordinaryUID)
	for _, args := range [][]string{{"dispatch", "show", ""}, {"run", "show", "x"}, {"dispatch", "run", "x", "--source", ""}, {"ceiling", "set", ""}, {"subagent", "show", ""}} {
		begun := time.Now()
		d := w.try(append([]string{"__complete"}, args...)...)
		if d.status != 0 || !strings.HasPrefix(d.stdout, ":") || time.Since(begun) > 10*time.Second {
			t.Errorf("%q: %s after %s", args, d, time.Since(begun))
		}
	}
	if d := w.try("status"); d.status == 0 {
		t.Errorf("a service runs: %s", d)
	}
	for _, shell := range []string{"bash", "fish"} {
		if got := w.offered(shell, "bailiwick subagent sh"); !slices.Equal(got, []string{"show"}) {
			t.Errorf("%s: %q", shell, got)
		}
	}
}
