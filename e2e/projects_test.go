package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// project makes a repository with the manifest that init writes, in a directory of
// the world.
func (w *world) project(name string) (initial done) {
	w.t.Helper()
	w.repository(name, map[string]string{"a.txt": "one\n"})
	return w.try("init", "--insecure-unencrypted", w.path(name))
}

// The first hour of two projects on one machine: init works in the second one, each
// dispatches its own subagent, and neither manifest touches what the other has. The
// line "next" is a command that is right each time, and evidence recomputes.
//
// proves R-C6
func TestTwoProjectsShareACatalog(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := newWorld(t, uid)
		w.project("garden")
		w.must("catalog", "apply", "-f", w.path("garden/bailiwick.yaml"))
		if d := w.project("words"); d.status != 0 || !strings.Contains(d.stdout, "exists  deploy key") || !strings.Contains(d.stderr, "(so far garden). This one is project words") {
			t.Fatalf("init in a second project: %s", d)
		}
		w.up()
		follow := func(d done) string {
			t.Helper()
			_, line, ok := strings.Cut(d.stderr, "next: ")
			if line, _, _ = strings.Cut(line, "\n"); d.status != 0 || !ok {
				t.Fatalf("no next: %s", d)
			}
			return line
		}
		plan := w.try("catalog", "plan", "-f", w.path("words/bailiwick.yaml"), "--prune")
		if next := follow(plan); next != "bailiwick catalog apply -f "+w.path("words/bailiwick.yaml")+" --prune" || !strings.Contains(plan.stdout, "7 to add, 0 to change, 0 to remove") {
			t.Errorf("next: %s\n%s", next, plan.stdout)
		}
		if next, want := follow(w.try("catalog", "apply", "-f", w.path("words/bailiwick.yaml"))), "bailiwick ceiling set "+w.me()+" reversible"; next != want {
			t.Errorf("next: %s, want %s", next, want)
		}
		w.must("ceiling", "set", w.me(), "reversible")
		next := follow(w.try("catalog", "apply", "-f", w.path("words/bailiwick.yaml")))
		if want := "bailiwick dispatch run words-greet --source words-here --set name="; !strings.HasPrefix(next, want) {
			t.Errorf("next: %s, want %s…", next, want)
		}
		w.must(strings.Fields(next)[1:]...)
		wantEnd(t, w.dispatch("greet", "--source", "here", "--set", "name=Ann"), api.EventFinished, "")

		var list []struct{ Ref, Project string }
		decode(t, w.must("catalog", "list", "-o", "json"), &list)
		counts := map[string]int{}
		for _, a := range list {
			counts[a.Project]++
		}
		if len(counts) != 2 || counts["garden"] != 7 || counts["words"] != 7 {
			t.Errorf("artifacts by project: %v", counts)
		}
		for _, p := range []string{"garden", "words"} {
			if out := w.must("catalog", "plan", "--prune", "--exit-code", "-f", w.path(p, "bailiwick.yaml")); !strings.Contains(out, "No changes") {
				t.Errorf("%s: %s", p, out)
			}
		}
		w.replace("words/bailiwick.yaml", "words-greet\n", "greet\n")
		w.replace("words/bailiwick.yaml", "[words-greet]", "[greet]")
		w.refused(1, []string{"subagent/greet: belongs to project garden, and this is the manifest of project words", "catalog move"}, "catalog", "apply", "-f", w.path("words/bailiwick.yaml"))
		w.must("catalog", "move", "subagent/greet", "--to", "words")
		w.must("catalog", "apply", "-f", w.path("words/bailiwick.yaml"))
		w.refused(1, []string{"subagent/greet: belongs to project words"}, "catalog", "plan", "-f", w.path("garden/bailiwick.yaml"))

		d := w.dispatch("greet", "--source", "words-here", "--target", "words-local", "--set", "name=Bob")
		w.write("trust.json", w.must("audit", "trust"), 0o644)
		if v := w.exec(filepath.Join(bin, "bailiwick-verify"), w.exported(string(d.ID)), "--trust", w.path("trust.json")); v.status != 0 {
			t.Errorf("verify: %s", v)
		}
	})
}

// Two people apply at once, each a reviewed plan of their own project: one wins each
// round, the other is told who published what and loses nothing but the moment.
//
// proves R-C6
func TestTwoPeopleApplyAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.project("garden")
	w.must("catalog", "apply", "-f", w.path("garden/bailiwick.yaml"))
	w.project("words")
	w.must("catalog", "apply", "-f", w.path("words/bailiwick.yaml"))
	people := []string{"garden", "words"}
	const rounds = 6
	for round := range rounds {
		for _, p := range people {
			before, after := fmt.Sprintf("maxLength: %d", 100+round), fmt.Sprintf("maxLength: %d", 101+round)
			w.replace(p+"/bailiwick.yaml", before, after)
			w.must("catalog", "plan", "-f", w.path(p, "bailiwick.yaml"), "--out", w.path(p+".json"))
		}
		results := make(chan done, len(people))
		for _, p := range people {
			go func() {
				results <- w.exec(filepath.Join(bin, "bailiwick"), "catalog", "apply", w.path(p+".json"), "--reason", "by "+p)
			}()
		}
		won := 0
		for range people {
			d := <-results
			if d.status == 0 {
				won++
				continue
			}
			for _, words := range []string{"the catalog has changed: the plan is for revision", "has published revision", `("by `, "which changes subagent/", "hint: plan again, and review the new plan; nothing was applied"} {
				if d.status != 1 || !strings.Contains(d.stderr, words) {
					t.Errorf("round %d: the second one is not told %q: %s", round, words, d)
				}
			}
		}
		if won != 1 {
			t.Fatalf("round %d: %d of 2 were applied", round, won)
		}
		for _, p := range people {
			w.must("catalog", "apply", "-f", w.path(p, "bailiwick.yaml"))
			if out := w.must("catalog", "plan", "-f", w.path(p, "bailiwick.yaml")); !strings.Contains(out, "No changes") {
				t.Errorf("round %d: %s is not in the catalog: %s", round, p, out)
			}
		}
	}
	var history []json.RawMessage
	decode(t, w.must("catalog", "history", "-o", "json"), &history)
	if len(history) != 2+2*rounds {
		t.Errorf("%d revisions, want %d", len(history), 2+2*rounds)
	}
	w.must("catalog", "verify")
}

// A principal that exists, or that is easily taken for one that exists or has grants,
// is refused before anyone is asked for a signature.
//
// proves R-T4
func TestConfusablePrincipalsAreRefusedBeforeASignature(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.project("garden")
	w.replace("garden/bailiwick.yaml", "grants:\n", "grants:\n  - {principal: agent:granted, subagents: [greet], targets: [local]}\n")
	w.must("catalog", "apply", "-f", w.path("garden/bailiwick.yaml"))
	w.up()
	w.must("principal", "add", "agent:claude", "--reason", "the control")
	// Without a key nothing can be signed, so each refusal comes before that.
	must(t, os.Rename(w.path("config/bailiwick/operator.key"), w.path("away")))
	for principal, words := range map[string]string{
		"agent:claude":  "principal agent:claude already exists",
		"agent:Claude":  "principal agent:Claude is easily taken for agent:claude, which exists",
		"agent:c1aude":  "principal agent:c1aude is easily taken for agent:claude",
		"agent:GRANTED": "principal agent:GRANTED is easily taken for agent:granted",
		"agent:other":   "operator.key",
	} {
		d := w.refused(1, []string{words}, "principal", "add", principal)
		if (principal != "agent:other") != !strings.Contains(d.stderr, "operator.key") {
			t.Errorf("%s: %s", principal, d)
		}
	}
	must(t, os.Rename(w.path("away"), w.path("config/bailiwick/operator.key")))
	w.must("principal", "add", "agent:granted")
	w.replace("garden/bailiwick.yaml", "agent:granted", "agent:Granted")
	w.replace("garden/bailiwick.yaml", "grants:\n", "grants:\n  - {name: twin, principal: agent:granted, subagents: [greet], targets: [local]}\n")
	w.refused(1, []string{"agent:granted is easily taken for agent:Granted, which another grant names"}, "catalog", "plan", "-f", w.path("garden/bailiwick.yaml"))
}
