package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

// can without arguments names, at each step to the first dispatch, what is missing
// and a command; the command brings the caller to the next step, and the last one
// is a dispatch that works.
func TestCanLeadsToTheFirstDispatch(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := newWorld(t, uid)
		w.downAtEnd()
		w.mkdir("project")
		w.git("project", "init", "-q")
		missing := func(need, command string) {
			t.Helper()
			d := w.refused(3, []string{"MISSING", "run: " + command}, "can")
			if !strings.Contains(d.stdout, fmt.Sprintf("%-11s MISSING", need)) || strings.Contains(d.stdout, "next ") {
				t.Errorf("want %s missing: %s", need, d)
			}
		}
		if w.on == nil { // else the mode of the machine shows when it has keys
			missing("keys", "bailiwick init")
		}
		w.must("init", "--insecure-unencrypted", w.path("project"))
		missing("catalog", "bailiwick catalog apply")
		if w.try("status").status == 0 {
			t.Error("can started a service")
		}
		w.must("up")
		missing("catalog", "bailiwick catalog apply")
		manifest := filepath.Join("project", "bailiwick.yaml")
		w.replace(manifest, "principal: "+w.me(), "principal: agent:other")
		w.must("catalog", "apply", "-f", w.path(manifest))
		missing("grant", "bailiwick catalog apply")
		w.replace(manifest, "principal: agent:other", "principal: "+w.me())
		w.must("catalog", "apply", "-f", w.path(manifest))
		missing("ceiling", "bailiwick ceiling set "+w.me()+" reversible")
		w.must("ceiling", "set", w.me(), "reversible")
		missing("source", "git -C "+w.path("project")+" commit")
		w.git("project", "commit", "-q", "--allow-empty", "-m", "first")
		w.must("stop", "--all")
		missing("stop", "bailiwick stop lift s-1")
		if text := w.must("whoami"); !strings.Contains(text, "STOPPED     s-1; only an operator can lift it: bailiwick stop lift s-1\n") {
			t.Errorf("whoami under a stop: %s", text)
		}
		w.must("stop", "lift", "s-1")

		ready := w.must("can")
		_, next, ok := strings.Cut(ready, "\nnext        ")
		if !ok {
			t.Fatalf("can: %s", ready)
		}
		if d := w.typed(next); d.status != 0 || !strings.Contains(d.stdout, "finished") {
			t.Errorf("%s: %s", next, d)
		}
		var r struct {
			Ready bool
			Needs []struct {
				Name string
				Met  bool
			}
			Next string
		}
		decode(t, w.must("can", "-o", "json"), &r)
		if !r.Ready || len(r.Needs) < 5 || !r.Needs[0].Met || r.Next == "" {
			t.Errorf("can -o json: %+v", r)
		}
		// The caller itself, by default.
		w.must("can", "dispatch", "greet")
		w.refused(3, []string{"no: " + w.me() + " may not dispatch publish"}, "can", "dispatch", "publish")
		w.refused(1, []string{"want no arguments"}, "can", "greet")
		// A service that cannot be reached is not one that is missing.
		w.refused(1, []string{"not a directory"}, "can", "--socket", "/etc/passwd/api.sock")
	})
}

// typed runs a command line of bailiwick as a person types it.
func (w *world) typed(line string) done {
	w.t.Helper()
	w2 := *w
	w2.env = append(slices.Clone(w.env), "PATH="+bin+":"+os.Getenv("PATH"))
	return w2.exec("sh", "-c", line)
}

// Lists and show have what the caller may use and nothing of what R-B6 withholds;
// a caller by token has no repository, and an operator sees all grants.
//
// proves R-B6
func TestFindShowsOnlyWhatTheCallerMayUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.init()
	w.write("project/capabilities/granted/run.sh", "#!/bin/sh\n# marker-file\n", 0o755)
	w.write("project/bailiwick.yaml", fmt.Sprintf(`version: 1
capabilities:
  - {name: granted, from: capabilities/granted, description: what is granted}
  - {name: hidden, from: capabilities/granted, description: marker-hidden}
subagents:
  - name: seen
    description: "does what it should"
    agent: command
    command: [./run.sh, marker-argv]
    prompt: "marker-prompt {{.n}}"
    system: capabilities/granted/run.sh
    input: {type: object, properties: {n: {type: integer, minimum: 4}}, required: [n]}
    output: {type: object, properties: {total: {type: integer}}}
    role: transform
    tier: observe
    model: provider/small
    capabilities: [granted]
    limits: {timeout: 90s}
    target: local
  - {name: higher, agent: command, command: [./run.sh], role: transform, tier: stateful, capabilities: [granted], target: local}
  - {name: marker-notmine, agent: command, command: [./run.sh], role: marker-role, tier: observe, model: marker-model/large, capabilities: [granted], target: marker-elsewhere}
envs:
  - name: colours
    description: colours for all
    values: {COLOUR: marker-value}
    egress: [proxy.example.com:443]
    secrets: {API_TOKEN: {secret: api-token, brokered: {hosts: [api.example.com:443], header: authorization}}}
  - {name: marker-env, values: {A: b}}
models:
  - {name: provider, api: openai-chat, endpoint: "https://models.example.com/v1", credential: {header: authorization, prefix: "Bearer ", secret: provider-key}, levels: {small: tiny-1}, prices: {tiny-1: {input: 1, output: 2.5}}}
  - {name: marker-model, api: openai-chat, endpoint: "http://127.0.0.1:1", levels: {large: marker-id}}
secrets:
  - {name: api-token, ref: "file:marker-ref"}
  - {name: provider-key, ref: "exec:marker-ref"}
  - {name: marker-secret, ref: "env:MARKER"}
sources:
  - {name: repo, repo: %[1]s}
  - {name: marker-source, repo: %[1]s}
targets:
  - {name: local, executor: jail, level: full, mode: guarded}
  - {name: marker-elsewhere, executor: jail, level: full, mode: open}
roles: [transform, marker-role]
grants:
  - {principal: "%[2]s", subagents: [seen, higher], envs: [colours], sources: [repo], targets: [local], capabilities: [granted], ceiling: stateful}
  - {principal: "agent:other", subagents: [marker-notmine, seen], targets: [marker-elsewhere, local], sources: [marker-source, repo], ceiling: stateful}
`, w.path("repo"), w.me()), 0o644)
	w.must("catalog", "apply", "-f", w.path("project/bailiwick.yaml"))
	w.up()
	w.must("ceiling", "set", w.me(), "reversible")
	var all strings.Builder
	for _, kind := range []string{"subagent", "capability", "env", "model", "source", "target"} { // of roles an operator sees all; see TestRolesShowTheirToolsToThoseWhoMayUseThem
		text := w.must(kind, "list") + w.must(kind, "list", "-o", "json")
		for name := range strings.Lines(w.must(kind, "list", "-o", "name")) {
			shown := w.must(kind, "show", strings.TrimSpace(name), "-o", "json")
			if kind != "subagent" { // an operator is shown who else may run it
				shown += w.must(kind, "show", strings.TrimSpace(name))
			}
			text += shown
		}
		if strings.Count(text, "\n") < 8 {
			t.Errorf("%s: %s", kind, text)
		}
		all.WriteString(text)
	}
	all.WriteString(w.must("whoami") + w.must("whoami", "-o", "json"))
	all.WriteString(w.must("can", "dispatch", "seen", "--env", "colours") + w.must("can", "dispatch", "seen", "--env", "colours", "-o", "json"))
	if strings.Contains(all.String(), "marker") {
		t.Errorf("what the caller may not see: %s", all.String())
	}
	for _, want := range []string{
		"seen", "granted", "colours", w.path("repo"), "guarded", "transform", "\"timeout\": \"1m30s\"", `"minimum": 4`, `"total"`, "--set n:=4", "up to stateful",
		"provider/small: tiny-1", "https://models.example.com/v1", "input 1, output 2.5, cache read 1", "api.example.com:443, proxy.example.com:443", "api-token: the broker adds it; the agent has a placeholder in API_TOKEN", "provider-key: the broker adds it to requests to the model",
	} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("lacks %q: %s", want, all.String())
		}
	}
	// One above the ceiling, one that does not exist and one that is not granted are
	// refused in the same way.
	for _, name := range []string{"higher", "marker-notmine"} {
		d := w.refused(1, []string{"bailiwick can " + w.me() + " dispatch " + name}, "subagent", "show", name)
		if absent := w.try("subagent", "show", "absent"); strings.ReplaceAll(d.stderr, name, "absent") != absent.stderr {
			t.Errorf("%s and %s", d, absent)
		}
	}
	if d := w.try("subagent", "list"); !strings.Contains(d.stderr, "above its ceiling reversible: 1") {
		t.Errorf("what the ceiling hides: %s", d)
	}
	// The control: the operator sees the grants of all, and who may run a subagent.
	if text := w.must("grant", "list") + w.must("subagent", "show", "seen"); !strings.Contains(text, "marker-notmine") || !strings.Contains(text, "agent:other, by grant project-agent-other") {
		t.Errorf("the operator's grants: %s", text)
	}
	w.asToken("agent:other", func(r client.Runtime) {
		sources, err := r.Artifacts(t.Context(), api.KindSource, "", "")
		if err != nil || len(sources.Items) != 2 || sources.Items[0].Repo != "" {
			t.Errorf("by token: %+v, %v", sources, err)
		}
		grants, err := r.Artifacts(t.Context(), api.KindGrant, "", "")
		if err != nil || len(grants.Items) != 1 || grants.Items[0].Principal != "agent:other" {
			t.Errorf("by token: %+v, %v", grants, err)
		}
		who, err := r.Who(t.Context())
		if err != nil || who.Auth != api.AuthToken || who.Operator {
			t.Errorf("by token: %+v, %v", who, err)
		}
	})
}

// asToken calls do as a principal with a new token.
func (w *world) asToken(principal string, do func(client.Runtime)) {
	w.t.Helper()
	w.must("principal", "add", principal)
	w.must("token", "create", principal, "--out", w.path("a.token"))
	text, err := os.ReadFile(w.path("a.token"))
	must(w.t, err)
	conn := client.New(client.Config{Socket: w.path("run/bailiwick/api.sock"), UIDs: []int{w.serviceUID()}})
	defer conn.Close()
	s, err := conn.Exchange(w.t.Context(), strings.TrimSpace(string(text)))
	must(w.t, err)
	do(conn.Runtime().With(s.Handle, nil))
}

// The example command line of every subagent of the sample and of the examples
// works as it is printed.
func TestTheExampleOfEverySubagentWorks(t *testing.T) {
	t.Parallel()
	for _, catalog := range []string{"sample", "examples"} {
		t.Run(catalog, func(t *testing.T) {
			w := newWorld(t, 0)
			w.init()
			manifest := "project/bailiwick.yaml"
			if catalog == "sample" {
				w.git("project", "init", "-q")
				w.commit("project", "first")
			} else {
				setup, err := filepath.Abs("../examples/setup")
				must(t, err)
				if d := w.exec(setup, w.path("examples")); d.status != 0 {
					t.Fatalf("examples/setup: %s", d)
				}
				manifest = "examples/bailiwick.yaml"
			}
			w.must("catalog", "apply", "-f", w.path(manifest))
			w.up()
			names := strings.Fields(w.must("subagent", "list", "-o", "name"))
			if len(names) == 0 {
				t.Fatal("no subagents")
			}
			for _, name := range names {
				var s struct{ Example string }
				decode(t, w.must("subagent", "show", name, "-o", "json"), &s)
				d := w.typed(s.Example + " -q -o json")
				var rec api.Dispatch
				if err := json.Unmarshal([]byte(d.stdout), &rec); err != nil {
					t.Errorf("%s: %s", s.Example, d)
					continue
				}
				flaky := name == "unsteady" && rec.Reason == api.ReasonAgent // it fails now and then
				if rec.State != api.EventFinished && rec.State != api.EventNeedsInput && !flaky {
					t.Errorf("%s: %s %s %s", s.Example, rec.State, rec.Reason, rec.Message)
				}
			}
		})
	}
}

// After a dispatch the answer is short and ends with the command that a person
// wants next; --full has the whole record. What the worker starts without is a
// note.
func TestTheAnswerToADispatchIsShortAndNamesTheNextCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n", "b.txt": "two\n"})
	w.catalog(
		subagent{name: "edit", script: "echo two > a.txt", more: "    input: {type: object, properties: {n: {type: integer}, at: {type: object, properties: {line: {type: integer}}}}, additionalProperties: false}\n    limits: {timeout: 60s}\n"},
		subagent{name: "fails", script: "exit 3"},
		subagent{name: "asks", script: `mkdir -p .bailiwick; echo '{"question": "Which?"}' > .bailiwick/question.json`},
	)
	w.upRuns()
	w.downAtEnd()
	long := []string{"manifest ", "isolation ", "principal ", "result "}
	short := w.try("dispatch", "run", "edit", "--source", "repo", "--id", "first", "--set", "n:=2", "--set", "at.line:=7")
	for _, want := range []string{"dispatch    first finished\n", "patch ", "verify ", "usage ", "next        bailiwick dispatch "} {
		if !strings.Contains(w.chosen(short.stdout), want) {
			t.Errorf("lacks %q: %s", want, short)
		}
	}
	full := w.must("dispatch", "run", "edit", "--source", "repo", "--full")
	show := w.must("dispatch", "show", "first")
	for _, row := range long {
		if strings.Contains(short.stdout, "\n"+row) || !strings.Contains(full, "\n"+row) || !strings.Contains(show, "\n"+row) {
			t.Errorf("%q: short %s\nfull %s\nshow %s", row, short, full, show)
		}
	}
	if strings.Contains(short.stderr, "note:") {
		t.Errorf("a clean source has a note: %s", short)
	}
	for args, want := range map[string]string{
		"fails --id fails": "next        bailiwick dispatch logs fails\n", "asks --id asks": "next        bailiwick dispatch answer asks TEXT\n", "edit --id edit --source repo -d": "next: bailiwick dispatch logs edit -f\n",
	} {
		if d := w.try(append([]string{"dispatch", "run", "-q"}, strings.Fields(args)...)...); !strings.Contains(w.chosen(d.stdout+d.stderr), want) {
			t.Errorf("%s: want %q: %s", args, want, d)
		}
	}
	if d := w.try("dispatch", "run", "fails", "-q"); !strings.Contains(d.stderr, "note: without --source the workspace of fails starts empty; it may start from: repo") {
		t.Errorf("without a source: %s", d)
	}
	w.write("repo/a.txt", "changed\n", 0o644)
	w.write("plan.yaml", "id: noted\nsource: {name: repo}\ntasks:\n  - {id: task-1, subagent: edit}\n  - {id: task-2, subagent: edit}\n", 0o644)
	if d := w.try("dispatch", "run", "edit", "--source", "repo", "-q", "-o", "json"); !strings.Contains(d.stderr, "note: source repo has uncommitted changes to 1 file, which workers do not see") || !json.Valid([]byte(d.stdout)) {
		t.Errorf("with uncommitted changes: %s", d)
	}
	if d := w.try("run", "submit", w.path("plan.yaml"), "--wait", "1m"); strings.Count(d.stderr, "note: source repo has uncommitted changes") != 1 {
		t.Errorf("a plan with uncommitted changes: %s", d)
	}
	if d := w.try("dispatch", "run", "edit", "--source", "repo@HEAD", "-q"); strings.Contains(d.stderr, "note:") {
		t.Errorf("of a commit that was named: %s", d)
	}
	w.refused(1, []string{"n wants integer; write n:=2"}, "dispatch", "run", "edit", "--set", "n=2")
	w.refused(1, []string{`no such member "m"`}, "dispatch", "run", "edit", "--set", "m=2")
	w.refused(1, []string{"the limit 1m0s"}, "dispatch", "run", "edit", "--timeout", "2m")
}

// Lists of dispatches are filtered and paged.
func TestDispatchListFiltersAndPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "works", script: "true", tier: "observe"}, subagent{name: "fails", script: "exit 3", tier: "observe"})
	w.upRuns()
	w.downAtEnd()
	for i := range 3 {
		w.try("dispatch", "run", "works", "-q", "--id", fmt.Sprintf("work-%d", i))
		w.try("dispatch", "run", "fails", "-q", "--id", fmt.Sprintf("fail-%d", i))
	}
	w.write("plan.yaml", "id: run-one\ntasks:\n  - {id: task-one, subagent: works}\n", 0o644)
	w.must("run", "submit", w.path("plan.yaml"), "--wait", "1m")
	list := func(args ...string) string {
		t.Helper()
		return strings.Join(strings.Fields(w.chosen(w.must(append([]string{"dispatch", "list", "-o", "name"}, args...)...))), " ")
	}
	ofRun := list("--run", "run-one")
	for args, want := range map[string]string{
		"--state failed":                                       "fail-2 fail-1 fail-0",
		"--state failed --state cancelled":                     "fail-2 fail-1 fail-0",
		"--subagent works":                                     ofRun + " work-2 work-1 work-0",
		"--principal agent:nobody":                             "",
		"--principal " + w.me() + " --last 2 --subagent fails": "fail-2 fail-1",
		"--principal " + w.me() + " --last 2 --subagent fails --after fail-1": "fail-0",
		"--since 1h --state failed": "fail-2 fail-1 fail-0",
		"--since 2099-01-01":        "",
	} {
		if got := list(strings.Fields(args)...); got != want {
			t.Errorf("dispatch list %s: %q, want %q", args, got, want)
		}
	}
	d := w.try("dispatch", "list", "--last", "2")
	if !strings.Contains(d.stdout, "run-one") || !strings.Contains(d.stdout, "task-one") || !strings.Contains(w.chosen(d.stderr), "older dispatches: bailiwick dispatch list --last 2 --after fail-2\n") {
		t.Errorf("a page: %s", d)
	}
	if d := w.try("dispatch", "list"); strings.Contains(d.stderr, "older") {
		t.Errorf("the last page: %s", d)
	}
	w.refused(1, []string{"want one of", "finished"}, "dispatch", "list", "--state", "done")
	w.refused(1, []string{`dispatch "absent" not found`}, "dispatch", "list", "--after", "absent")
}
