package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/scriptmodel"
)

// The four agent programs find the tools of their role, and no other, among their own:
// each calls one, makes a change that a person approves meanwhile, and is refused a third
// that it asks for behind its program's back.
//
// proves R-G2, R-G5, R-G6
func TestCodingAgentsCallTools(t *testing.T) {
	t.Parallel()
	w := newCodingWorld(t, 0, nil)
	w.tryTools(t, coders(t))
}

// An ordinary user has the same, here with two of them.
//
// proves R-G2
func TestCodingAgentsCallToolsForAnOrdinaryUser(t *testing.T) {
	t.Parallel()
	w := newCodingWorld(t, ordinaryUID, nil)
	w.tryTools(t, slices.DeleteFunc(coders(t), func(c coder) bool { return c.name != "claude-code" && c.name != "codex" }))
}

func (w *codingWorld) tryTools(t *testing.T, list []coder) {
	t.Helper()
	host := newToolHost()
	for _, name := range []string{"plant", "burn"} {
		host.tool(name, "Does as its name says.", func(text string) string { return name + " did " + text })
	}
	tools := &callWorld{w.world}
	w.replace(manifest, "\nroles: [transform]\n", fmt.Sprintf(`
roles: [transform, burner]
tools:
  - server: garden
    http: {url: %q}
    allow:
      - {tool: echo, roles: [transform], tier: observe}
      - {tool: plant, roles: [transform], tier: reversible, approval: {wait: 2m}}
      - {tool: burn, roles: [burner], tier: irreversible}
`, w.island.serve(t, host)+"/mcp"))
	tools.approvedBy(w.me(), true, "transform")
	tools.pinned()
	for _, c := range list {
		t.Run(c.name, func(t *testing.T) {
			w := w.in(t)
			tools := &callWorld{w.world}
			var seen []string
			look := func(s scriptmodel.Script) scriptmodel.Script {
				return func(turn *scriptmodel.Turn) scriptmodel.Reply {
					for _, tool := range turn.Tools {
						if name := tool.Space + tool.Name; strings.Contains(name, "garden") && !slices.Contains(seen, tool.Name) {
							seen = append(seen, tool.Name)
						}
					}
					return s(turn)
				}
			}
			m := w.script(c.name, scriptmodel.Steps(
				look(scriptmodel.Call("garden_echo", map[string]any{"text": "the-first"})),
				look(scriptmodel.Shell(`sed -i s/one/two/ a.txt; bailiwick-tool call garden/burn '{"text": "it"}' 2>&1; echo "burn: $?"`)),
				look(scriptmodel.Call("garden_plant", map[string]any{"text": "basil"})),
				scriptmodel.Echo()))
			id := w.detached(c.name, "--source", "repo", "--set", "do=change the file a.txt")
			w.must("approval", "approve", string(tools.awaitApproval().Action.ID))
			d := w.awaitEnd(id)
			wantEnd(t, d, api.EventFinished, "")
			if d.Outcome == nil || !strings.Contains(d.Outcome.Text, "plant did basil") {
				t.Errorf("its last words: %+v\n%s", d.Outcome, w.try("dispatch", "logs", id).stdout)
			}
			if len(seen) != 2 {
				t.Errorf("its program offers %q", seen)
			}
			var got []string
			for _, call := range tools.calls(d.ID) {
				got = append(got, call.Decision+" "+call.Tool)
			}
			if want := []string{"allow garden/echo", "deny garden_burn", "allow garden/plant"}; !slices.Equal(got, want) {
				t.Errorf("calls %q, want %q", got, want)
			}
			for _, r := range m.Requests() {
				if r.Turn != nil && strings.Contains(fmt.Sprint(r.Turn.Items), "burn: 0") {
					t.Error("the forbidden call succeeds")
				}
			}
		})
	}
	if calls := host.called(); slices.ContainsFunc(calls, func(c string) bool { return strings.HasPrefix(c, "burn") }) || len(calls) != 2*len(list) {
		t.Errorf("the server was called: %q", calls)
	}
}
