package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

const manifest = "project/bailiwick.yaml"

// proves R-C1, R-C6
func TestApplyRefusesAnInvalidManifest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "echo two > a.txt"})
	w.up()
	genuine := w.read(manifest)
	published := snapshot(t, w.path("data"))
	edit := func(old, fresh string) func() { return func() { w.replace(manifest, old, fresh) } }
	plant := w.path("project/capabilities/edit/planted")
	for _, c := range []struct {
		name  string
		spoil func()
		words []string
	}{
		{"an unknown key", edit("    role: transform", "    rôle: transform\n    role: transform"), []string{"bailiwick.yaml:", "rôle", "unknown"}},
		{"a misspelt key", edit("    capabilities: [edit]", "    capabilites: [edit]"), []string{"bailiwick.yaml:10:5", `"capabilites"`, `"capabilities"`}}, //nolint:misspell // the typo is the test case
		{"a misspelt key at the top", edit("grants:", "grant:"), []string{"bailiwick.yaml:", `"grant"`, `"grants"`}},
		{"a duplicate key", edit("    tier: reversible\n", "    tier: reversible\n    tier: stateful\n"), []string{"bailiwick.yaml:", "tier"}},
		{"a missing capability", edit("    capabilities: [edit]", "    capabilities: [edit, edti]"), []string{"bailiwick.yaml:", `"edti"`, "edit"}},
		{"a grant of a missing subagent", edit("subagents: [edit]", "subagents: [nobody]"), []string{"bailiwick.yaml:", `"nobody"`}},
		{"an unsupported version", edit("version: 1", "version: 2"), []string{"bailiwick.yaml:1", "version"}},
		{"a tier that does not exist", edit("    tier: reversible", "    tier: godlike"), []string{"bailiwick.yaml:", "godlike", "reversible"}},
		{"an invalid limit", edit("    target: local\n", "    target: local\n    limits: {memory: -4GiB}\n"), []string{"bailiwick.yaml:", "memory", "-4GiB"}},
		{"not YAML", edit("version: 1", "version: [1"), []string{"bailiwick.yaml:"}},
		{"a directory outside the project", edit("from: capabilities/edit", "from: ../repo"), []string{"bailiwick.yaml:", "../repo"}},
		{"an absolute directory", edit("from: capabilities/edit", "from: /etc"), []string{"bailiwick.yaml:", "/etc"}},
		{"a missing directory", edit("from: capabilities/edit", "from: capabilities/gone"), []string{"bailiwick.yaml:", "capabilities/gone"}},
		{"a symbolic link", func() { must(t, os.Symlink("/etc/shadow", plant)) }, []string{"planted", "symbolic link", "regular files only"}},
		{"a link to a directory", func() { must(t, os.Symlink("..", plant)) }, []string{"planted", "symbolic link"}},
		{"a fifo", func() { must(t, syscall.Mkfifo(plant, 0o644)) }, []string{"planted", "regular files only"}},
		{"a device", func() { must(t, syscall.Mknod(plant, syscall.S_IFCHR|0o644, 1<<8|3)) }, []string{"planted", "device"}},
		{"51 MiB in one file", func() { must(t, os.WriteFile(plant, make([]byte, 51<<20), 0o644)) }, []string{"planted", "MiB"}},
		{"a hole of 1 TiB", func() { must(t, os.WriteFile(plant, nil, 0o644)); must(t, os.Truncate(plant, 1<<40)) }, []string{"planted", "MiB"}},
		{"a git directory", func() { w.write("project/capabilities/edit/planted/.git/config", "[core]\n", 0o644) }, []string{".git"}},
	} {
		c.spoil()
		for _, verb := range []string{"plan", "apply"} {
			d := w.refused(1, c.words, "catalog", verb, "-f", w.path(manifest))
			if d.stdout != "" {
				t.Errorf("%s: %s printed a plan: %s", c.name, verb, d.stdout)
			}
		}
		unchanged(t, c.name, published, snapshot(t, w.path("data")))
		must(t, os.RemoveAll(plant))
		w.write(manifest, genuine, 0o644)
	}
	// The control: the same commands accept a valid manifest.
	w.replace("project/capabilities/edit/edit.sh", "two", "three")
	if out := w.must("catalog", "apply", "-f", w.path(manifest)); !strings.Contains(out, "revision 2") {
		t.Errorf("apply says %q", out)
	}
	d := w.dispatch("edit", "--source", "repo")
	wantEnd(t, d, api.EventFinished, "")
	if d.Revision != 2 {
		t.Errorf("the dispatch is under revision %d", d.Revision)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// proves R-C6
func TestApplyRefusesAStalePlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "echo two > a.txt"})
	script := "project/capabilities/edit/edit.sh"
	w.replace(script, "two", "three")
	w.must("catalog", "plan", "-f", w.path(manifest), "--out", w.path("plan.json"))
	// Another apply happens in between.
	w.replace(script, "three", "four")
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.replace(script, "four", "three")
	published := snapshot(t, w.path("data"))
	w.refused(1, []string{"the catalog has changed", "revision 1", "revision 2", "plan again"}, "catalog", "apply", w.path("plan.json"))
	unchanged(t, "a stale plan", published, snapshot(t, w.path("data")))

	w.must("catalog", "plan", "-f", w.path(manifest), "--out", w.path("plan.json"))
	w.replace(script, "three", "evil")
	w.refused(1, []string{"changed since the plan"}, "catalog", "apply", w.path("plan.json"))
	w.replace(script, "evil", "three")
	plan := w.read("plan.json")
	w.write("plan.json", strings.Replace(plan, `"number":2`, `"number":3`, 1), 0o600)
	w.refused(1, []string{"plan file"}, "catalog", "apply", w.path("plan.json"))
	unchanged(t, "an altered plan", published, snapshot(t, w.path("data")))
	w.write("plan.json", plan, 0o600)
	if out := w.must("catalog", "apply", w.path("plan.json")); !strings.Contains(out, "revision 3") {
		t.Errorf("apply of a fresh plan says %q", out)
	}
}

// proves R-B7, R-C2
func TestInvalidDispatchesAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.git("repo", "tag", "v1")
	marker := w.path("ran")
	w.catalog(subagent{name: "edit", script: "true", more: "    input: {type: object, required: [file], additionalProperties: false, properties: {file: {type: string, maxLength: 8}, deep: {type: object, properties: {list: {type: array, items: {type: integer}}}}}}\n"})
	w.up()
	run := func(args ...string) []string {
		return append([]string{"dispatch", "run", "edit", "--source", "repo"}, args...)
	}
	good := `{"file":"a.txt"}`
	head := w.git("repo", "rev-parse", "HEAD")
	tree := w.git("repo", "rev-parse", "HEAD^{tree}")
	for _, c := range []struct {
		name  string
		args  []string
		words []string
	}{
		{"a missing member", run(), []string{"edit", "file"}},
		{"a member of the wrong type", run("--input", `{"file":7}`), []string{"edit", "file"}},
		{"a nested member", run("--input", `{"file":"a","deep":{"list":[1,"x"]}}`), []string{"deep", "list", "integer"}},
		{"a string that is too long", run("--input", `{"file":"0123456789"}`), []string{"file", "8"}},
		{"an unknown member", run("--input", `{"file":"a","colour":"red"}`), []string{"colour"}},
		{"not an object", run("--input", `[1]`), []string{"JSON object"}},
		{"a duplicate member", run("--input", `{"file":"a","file":"b"}`), []string{"file"}},
		{"no JSON", run("--input", `{"file":`), []string{"input"}},
		{"a missing input file", run("--input", "@"+w.path("gone.json")), []string{"gone.json"}},
		{"an unknown commit", []string{"dispatch", "run", "edit", "--input", good, "--source", "repo@v9"}, []string{`"repo"`, "v9", "no such commit"}},
		{"a missing object", []string{"dispatch", "run", "edit", "--input", good, "--source", "repo@" + strings.Repeat("ab", 20)}, []string{`"repo"`, "no such commit"}},
		{"a tree", []string{"dispatch", "run", "edit", "--input", good, "--source", "repo@" + tree}, []string{`"repo"`, "no such commit"}},
		{"an invalid timeout", run("--input", good, "--timeout", "10ms"), []string{"--timeout"}},
		{"an invalid id", run("--input", good, "--id", "../../etc"), []string{"dispatch id"}},
		{"an invalid name", []string{"dispatch", "run", "../edit"}, []string{"subagent"}},
	} {
		d := w.refused(1, c.words, c.args...)
		if d.stdout != "" {
			t.Errorf("%s: standard output has %q", c.name, d.stdout)
		}
	}
	// Commit names that git would read as options, expressions, paths or
	// commands.
	for _, hostile := range []string{
		"--upload-pack=touch " + marker, "-h", "--all", "--output=" + marker, "HEAD^", "HEAD~0", "HEAD:a.txt", ":/first", "@{u}", "@", "HEAD@{0}",
		"HEAD^{/first}", "../../etc/passwd", "refs/../../config", "$(touch " + marker + ")", "; touch " + marker, "v1\nrefs/heads/main", "v1..HEAD", " v1", "v1 ",
		"ext::sh -c touch% " + marker, strings.Repeat("a", 100_000), "\x1b[2J", head[:3] + "\x00",
	} {
		if strings.Contains(hostile, "\x00") {
			continue // the operating system allows no such argument; the test of the socket covers it
		}
		d := w.refused(1, []string{`"repo"`}, "dispatch", "run", "edit", "--input", good, "--source", "repo@"+hostile)
		if strings.ContainsAny(d.stderr, "\x1b\x07") {
			t.Errorf("the refusal of %.40q contains terminal control sequences: %q", hostile, d.stderr)
		}
		if len(d.stderr) > 4096 {
			t.Errorf("the refusal of %.40q has %d bytes", hostile, len(d.stderr))
		}
	}
	if _, err := os.Lstat(marker); err == nil {
		t.Error("a commit name was run as a command")
	}
	if list := w.list(); len(list) != 0 {
		t.Errorf("dispatches were made: %+v", list)
	}
	if n := len(w.entries("--kind", "dispatch.accepted")); n != 0 {
		t.Errorf("%d dispatches were accepted", n)
	}
	if n := len(w.entries("--kind", "request.invalid")); n < 20 {
		t.Errorf("the log has %d invalid requests", n)
	}
	if left := w.settledRemains(); left != nil {
		t.Errorf("left behind: %v", left)
	}
	// The control: valid requests are accepted in every form.
	for _, commit := range []string{"", "@v1", "@" + head, "@" + head[:8], "@HEAD", "@refs/tags/v1"} {
		wantEnd(t, w.dispatch("edit", "--source", "repo"+commit, "--input", good), api.EventFinished, "")
	}
}

// A caller cannot tell an unknown name from one without a grant.
//
// proves R-B6, R-B7
func TestUngrantedAndUnknownNamesLookAlike(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.init()
	w.manifest(subagent{name: "edit", script: "true"}, subagent{name: "hidden", script: "true"}, subagent{name: "strong", script: "true", tier: "stateful"})
	w.replace(manifest, "subagents: [edit,hidden,strong]", "subagents: [edit,strong]")
	w.replace(manifest, "{COLOUR: blue}}\n", "{COLOUR: blue}}\n  - {name: hidden, values: {SECRET: x}}\n")
	w.replace(manifest, "sources:\n", "sources:\n  - {name: hidden, repo: "+w.path("repo")+"}\n")
	w.replace(manifest, "targets:\n", "targets:\n  - {name: hidden, executor: jail, level: full, mode: open}\n")
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.up()
	for _, flags := range [][]string{{}, {"edit", "--env"}, {"edit", "--source"}, {"edit", "--target"}, {"edit", "--capability"}} {
		answer := func(name string) string {
			d := w.refused(3, []string{"denied", "log entry: #", "do not retry"}[1:], append(append([]string{"dispatch", "run"}, flags...), name)...)
			_, number, _ := strings.Cut(d.stderr, "#")
			return strings.ReplaceAll(strings.ReplaceAll(d.stderr, "#"+strings.TrimSpace(number), "#N"), name, "NAME")
		}
		hidden, absent := answer("hidden"), answer("absent")
		if hidden != absent {
			t.Errorf("%v: the responses for hidden and absent differ:\n%s%s", flags, hidden, absent)
		}
	}
	w.refused(3, nil, "dispatch", "run", "strong") // granted, but above the grant's ceiling
	if n, m := len(w.entries("--kind", "dispatch.denied")), len(w.list()); n != 11 || m != 0 {
		t.Errorf("%d denials are in the log, %d dispatches were made", n, m)
	}
	wantEnd(t, w.dispatch("edit", "--env", "colours", "--source", "repo", "--target", "local"), api.EventFinished, "")
}

// takeover both modes, AI client: no replay
//
// proves R-D2
func TestDispatchIsIdempotentOnItsID(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "echo ran"}, subagent{name: "other", script: "true"})
	w.up()
	first := w.dispatch("edit", "--id", "my-own-id", "--set", "n=1")
	wantEnd(t, first, api.EventFinished, "")
	if again := w.dispatch("edit", "--id", "my-own-id", "--input", `{ "n" : "1" }`); again.Manifest != first.Manifest {
		t.Errorf("repeating the request made another dispatch: %s, %s", first.Manifest, again.Manifest)
	}
	for _, other := range [][]string{{"edit", "--set", "n=2"}, {"other", "--set", "n=1"}, {"edit", "--set", "n=1", "--source", "repo"}, {"edit", "--set", "n=1", "--env", "colours"}, {"edit", "--set", "n=1", "--timeout", "9s"}} {
		w.refused(1, []string{"my-own-id", "in use for another request", "log entry: #"}, append(append([]string{"dispatch", "run"}, other...), "--id", "my-own-id")...)
	}
	if n, m := len(w.list()), len(w.entries("--kind", "dispatch.accepted")); n != 1 || m != 1 {
		t.Errorf("%d dispatches, %d accepted", n, m)
	}
	// Concurrent repeats make one dispatch as well.
	var running []*exec.Cmd
	for range 8 {
		cmd := w.command(filepath.Join(bin, "bailiwick"), "dispatch", "run", "edit", "--id", "at-once", "-q")
		must(t, cmd.Start())
		running = append(running, cmd)
	}
	for _, cmd := range running {
		if err := cmd.Wait(); err != nil {
			t.Errorf("a concurrent repeat: %v", err)
		}
	}
	if n := len(w.list()); n != 2 {
		t.Errorf("%d dispatches", n)
	}
	if n := len(w.entries("--kind", "dispatch.started", "--dispatch", "at-once")); n != 1 {
		t.Errorf("it was started %d times", n)
	}
}
