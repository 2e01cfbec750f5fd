package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/prebuilt"
)

// postsCalls is what an agent's script begins with: call NAME JSON prints the answer to
// one message of MCP.
const postsCalls = `
set -u
mkdir -p outputs
post() { curl -sS -m 100 -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' -H 'MCP-Protocol-Version: 2025-11-25' --data-binary @- "$@" http://127.0.0.1:19514/mcp | sed -n 's/^data: *//p; /^{/p' | tail -n 1 | { IFS= read -r line; printf '%s\n' "$line"; }; }
message() { jq -nc --arg name "$1" --argjson args "${2:-{\}}" '{jsonrpc: "2.0", id: 1, method: "tools/call", params: {name: $name, arguments: $args}}'; }
call() { message "$@" | post; }
list() { echo '{"jsonrpc":"2.0","id":1,"method":"tools/list"}' | post | jq -r '.result.tools[].name'; }
eval "$(cat inputs/prompt.md)"
`

// callWorld is a service whose agents call tools. Its subagents run their input in shell
// with postsCalls: one for each role, by the name of the role.
type callWorld struct{ *world }

// newCallWorld starts one with tools, lines of a manifest below "tools:".
func newCallWorld(t testing.TB, uid int, roles []string, tools, more string) *callWorld {
	t.Helper()
	w := &callWorld{newWorld(t, uid)}
	must(t, os.Chmod(w.dir, 0o755)) // so that accounts of jails reach what is shown
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.coldInit()
	w.consent(w.me(), "irreversible")
	w.toolManifest(roles, tools, more)
	return w
}

func (w *callWorld) toolManifest(roles []string, tools, more string) {
	w.t.Helper()
	var subs []subagent
	for _, role := range roles {
		name, tier, _ := strings.Cut(role, " ")
		subs = append(subs, subagent{name: name, role: name, tier: tier, script: postsCalls, more: "    prompt: \"{{.do}}\"\n" + more})
	}
	w.manifest(subs...)
	b, err := os.ReadFile(w.path(manifest))
	must(w.t, err)
	var names []string
	for _, s := range subs {
		names = append(names, s.name)
	}
	text := strings.NewReplacer("roles: [transform, quality]", "roles: ["+strings.Join(names, ", ")+"]\ntools:\n"+tools, "ceiling: reversible}", "ceiling: irreversible}", "mode: guarded}", "mode: open}").Replace(string(b))
	w.write(manifest, text, 0o644)
}

// pinned writes the pins of all servers into the manifest, as a person does who has read
// what they say, and applies it. Secrets are those that they are asked with.
func (w *callWorld) pinned(secrets ...string) {
	w.t.Helper()
	flags := []string{"-f", w.path(manifest), "--connect"}
	for i := 0; i < len(secrets); i += 2 {
		w.write("tmp/"+secrets[i], secrets[i+1], 0o600)
		flags = append(flags, "--secret", secrets[i]+"=@"+w.path("tmp", secrets[i]))
	}
	w.must(append([]string{"catalog", "plan", "--pin"}, flags...)...)
	w.must(append([]string{"catalog", "apply"}, flags...)...)
	for i := 0; i < len(secrets); i += 2 {
		must(w.t, os.Remove(w.path("tmp", secrets[i])))
	}
}

// do dispatches the subagent of a role with a script, and returns its record when it
// has finished.
func (w *callWorld) do(role, script string) api.Dispatch {
	w.t.Helper()
	d := w.dispatch(role, "--source", "repo", "--set", "do="+script)
	if d.State != api.EventFinished {
		w.t.Errorf("dispatch of %s is %s %s (%s)\n%s", role, d.State, d.Reason, d.Message, w.try("dispatch", "logs", string(d.ID)))
	}
	return d
}

// calls returns the record of the calls of a dispatch.
func (w *callWorld) calls(id api.DispatchID) (all []api.ToolCallLine) {
	w.t.Helper()
	for line := range strings.Lines(w.must("dispatch", "tools", string(id), "-o", "jsonl")) {
		var l api.ToolCallLine
		decode(w.t, line, &l)
		all = append(all, l)
	}
	return all
}

// output returns an output of a dispatch.
func (w *callWorld) output(d api.Dispatch, name string) string {
	w.t.Helper()
	return w.must("dispatch", "outputs", string(d.ID), "--raw", name)
}

// refusedCall reports whether an answer says that the call was not made, or failed.
func refusedCall(answer string) bool {
	return strings.Contains(answer, `"isError":true`) || strings.Contains(answer, `"error":{`)
}

// wantIn fails the test unless text has every word.
func wantIn(t testing.TB, what, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%s lacks %q: %s", what, word, text)
		}
	}
}

// buildFor builds a program of the tests into a directory that jails may be shown.
func (w *world) buildFor(dir, program string) {
	w.t.Helper()
	w.mkdir(dir)
	must(w.t, prebuilt.Program(w.path(dir, program), "./"+program))
}

// npmServer is the lines of a tool server of e2e/agents.
func npmServer(t testing.TB, pkg string, script ...string) string {
	t.Helper()
	modules := clientFile(t)
	return fmt.Sprintf("command: [node, %s], path: [%s], readOnly: [%s]", clientFile(t, append([]string{pkg}, script...)...), filepath.Dir(node(t)), modules)
}
