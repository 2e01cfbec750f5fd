package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// absolutePath matches what looks like a path of the host.
var absolutePath = regexp.MustCompile(`(^|[\s"'(=:])/[A-Za-z0-9._-]+`)

// machinePath matches a place of an installation in mode system.
var machinePath = regexp.MustCompile(`/(etc|run|var/lib)/bailiwick`)

// Whatever fails, the tools name no path of this machine, on stdio and over HTTP:
// every view of every tool, while sources, content, checkouts, catalog and trust
// root are damaged in turn. The control: the same failures, told to the person
// at the command line, name paths.
//
// proves R-B6
func TestToolErrorsNameNoHostPath(t *testing.T) {
	t.Parallel()
	w := &webWorld{world: orchestrated(t, 0, subagent{name: "edit", script: "echo two > a.txt; mkdir -p outputs; echo x > outputs/x"})}
	w.addPrincipals()
	web := w.http("--rate", "10000")
	s := w.mcp(mcpNovember)
	source := members{"name": "repo"}
	s.ok("bailiwick_dispatch", members{"subagent": "edit", "source": source, "dispatchId": "mine", "wait": 50}, new(mcpStanding))
	damage := func(name string, as func(path string)) func() {
		path := w.path(name)
		return func() { as(path) }
	}
	garbage := func(path string) { must(t, os.WriteFile(path, []byte("garbage"), 0o644)) }
	away := func(path string) { must(t, os.Rename(path, path+".away")) }
	back := func(path string) func() { return func() { must(t, os.Rename(w.path(path)+".away", w.path(path))) } }
	nothing := func() {}
	told := 0
	for _, c := range []struct {
		what       string
		do, repair func()
		control    []string // a command that fails and names a path
	}{
		{"nothing", nothing, nothing, nil},
		{"the source is gone", damage("repo", away), back("repo"), []string{"dispatch", "run", "edit", "--source", "repo", "-q"}},
		{"the source is no repository", damage("repo/.git/HEAD", away), back("repo/.git/HEAD"), []string{"dispatch", "run", "edit", "--source", "repo", "-q"}},
		{"the content is gone", damage("state/bailiwick/blobs", away), back("state/bailiwick/blobs"), []string{"dispatch", "patch", "mine"}},
		{"the checkouts are gone", func() {
			must(t, os.RemoveAll(w.path("state/bailiwick/checkouts")))
			garbage(w.path("state/bailiwick/checkouts"))
		}, func() { must(t, os.Remove(w.path("state/bailiwick/checkouts"))) }, nil},
		{"the trust root is damaged", func() { away(w.path("data/bailiwick/trust.json")); garbage(w.path("data/bailiwick/trust.json")) }, back("data/bailiwick/trust.json"), []string{"catalog", "show", "subagent"}},
		{"the catalog is gone", damage("data/bailiwick/catalog", away), back("data/bailiwick/catalog"), []string{"dispatch", "run", "edit", "-q"}},
		{"the service has stopped", func() { w.must("down") }, nothing, []string{"status"}},
	} {
		c.do()
		var texts []string
		for tool, all := range map[string][]members{
			"bailiwick_capabilities_list": {{}}, "bailiwick_subagents_list": {{}}, "bailiwick_envs_list": {{}},
			"bailiwick_dispatch": {
				{"subagent": "edit", "source": source, "wait": 20},
				{"subagent": "edit", "source": members{"name": "repo", "commit": "nosuch"}},
				{"subagent": "edit"},
				{"subagent": "nobody"},
				{"resume": "mine", "answer": members{"text": "x", "attempt": 1}},
			},
			"bailiwick_dispatch_cancel": {{"dispatchId": "mine"}, {"dispatchId": "nobody"}},
			"bailiwick_dispatch_describe": {
				{"dispatchId": "mine"},
				{"dispatchId": "nobody"},
				{"dispatchId": "mine", "include": "patch"},
				{"dispatchId": "mine", "include": "outputs"},
				{"dispatchId": "mine", "include": "logs"},
				{"dispatchId": "mine", "include": "question"},
			},
			"bailiwick_orchestrator_submit": {
				{"runId": "one", "plan": members{"source": source, "tasks": []members{{"id": "a", "subagent": "edit"}}}},
				{"plan": members{"source": members{"name": "repo", "commit": "nosuch"}, "tasks": []members{{"id": "a", "subagent": "edit"}}}},
				{"plan": members{}},
			},
			"bailiwick_orchestrator_status": {{"runId": "nobody"}}, "bailiwick_orchestrator_watch": {{"runId": "nobody"}},
		} {
			for _, arguments := range all {
				texts = append(texts, tool+" "+s.call(tool, arguments).text())
				texts = append(texts, tool+" "+web.send(callOf(tool, encoded(arguments), "")).body)
			}
		}
		for _, text := range texts {
			if m := absolutePath.FindString(text); m != "" || strings.Contains(text, filepath.Base(w.dir)) {
				t.Errorf("%s: %s names the path %q", c.what, text, m)
			}
		}
		if c.control != nil {
			if d := w.try(c.control...); d.status != 0 && (strings.Contains(d.stderr, w.dir) || w.unit != nil && machinePath.MatchString(d.stderr)) && absolutePath.MatchString(d.stderr) {
				told++
			} else {
				t.Logf("%s: the command line names no path: %s", c.what, d)
			}
		}
		w.try("run", "wait", "one")
		c.repair()
	}
	if told < 3 {
		t.Errorf("the control: only %d of these failures name a path at the command line", told)
	}
}
