package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

// toolWorld has declared commands in the hands of three roles. agent:other may use one of
// the roles.
func toolWorld(t *testing.T, uid int) *world {
	t.Helper()
	w := newWorld(t, uid)
	w.init()
	w.write("project/capabilities/run/run.sh", "#!/bin/sh\ncat\n", 0o755)
	w.write("project/bailiwick.yaml", fmt.Sprintf(`version: 1
capabilities:
  - {name: run, from: capabilities/run}
roles:
  - {name: quality, description: Validates and changes nothing.}
  - {name: transform, description: Changes the warehouse.}
  - {name: marker-role, description: marker}
  - {name: unused, description: Nothing has it.}
tools:
  - {command: lookup, description: Looks up a row., run: [./run.sh], capability: run, trust: trusted, input: {type: object, properties: {row: {type: integer}}}, roles: [quality, transform], tier: observe}
  - {command: web, description: Reads a page., run: [./run.sh], capability: run, input: {type: object}, roles: [quality, transform], tier: observe}
  - {command: apply-change, description: Changes the schema., run: [./run.sh], capability: run, input: {type: object}, roles: [transform], tier: stateful, approval: true, tainted: forbid}
  - {command: write, description: Writes a row., run: [./run.sh], capability: run, input: {type: object}, roles: [transform], tier: stateful}
  - {command: drop-table, description: Drops a table., run: [./run.sh], capability: run, input: {type: object}, roles: [marker-role], tier: irreversible, approval: true}
subagents:
  - {name: checker, agent: command, command: [./run.sh], role: quality, tier: observe, capabilities: [run], target: local}
  - {name: watcher, agent: command, command: [./run.sh], role: quality, tier: observe, capabilities: [run], target: looking}
  - {name: changer, agent: command, command: [./run.sh], role: transform, tier: stateful, capabilities: [run], target: local}
  - {name: dropper, agent: command, command: [./run.sh], role: marker-role, tier: irreversible, capabilities: [run], target: everything}
targets:
  - {name: local, executor: jail, level: full, mode: guarded}
  - {name: looking, executor: jail, level: full, mode: readonly}
  - {name: everything, executor: jail, level: full, mode: open}
grants:
  - {principal: "%s", subagents: [checker, watcher, changer], targets: [local, looking], ceiling: stateful}
  - {principal: "agent:other", subagents: [checker], targets: [local], ceiling: observe}
`, w.me()), 0o644)
	w.must("catalog", "apply", "-f", w.path("project/bailiwick.yaml"))
	w.up()
	w.must("ceiling", "set", w.me(), "stateful")
	return w
}

// Roles and their tools are shown to those who may dispatch a subagent in the role, and
// to an operator; no answer has a tool without its role, and none has what a server is
// reached by.
//
// proves R-G1, R-B6
func TestRolesShowTheirToolsToThoseWhoMayUseThem(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := toolWorld(t, uid)
		w.wantLines("role list", "quality      4      checker,watcher  Validates and changes nothing.", "transform    6      changer", "marker-role  3      dropper")
		show := w.must("role", "show", "transform", "--schemas")
		for _, want := range []string{
			"tool        apply-change: stateful; 1 human approves each call; closed to a tainted dispatch; taints the dispatch\n", "tool        lookup: observe\n",
			"tool        write: stateful; 1 human approves each call of a tainted dispatch; taints the dispatch\n", "subagents   changer\n", "agents see  apply-change\n",
			"| Looks up a row.", `{"properties":{"row":{"type":"integer"}},"type":"object"}`, "tool        ask: observe\n", "tool        report: observe\n",
		} {
			if !strings.Contains(show, want) {
				t.Errorf("role show lacks %q:\n%s", want, show)
			}
		}
		if strings.Contains(show, "run.sh") || strings.Contains(show, "\x1b") || strings.Contains(w.must("role", "show", "transform"), `"integer"`) {
			t.Errorf("role show has what it must not have: %s", show)
		}
		w.wantLines("role matrix", "TOOL          marker-role      quality  transform      unused", "apply-change  -                -        stateful +1 !  -", "ask           observe          observe  observe        observe",
			"drop-table    irreversible +2  -        -              -", "lookup        -                observe  observe        -")
		w.wantLines("tool list --role quality", "quality  lookup  observe  -         -        Looks up a row.")
		if names := w.must("tool", "list", "-o", "name"); strings.Count(names, "\n") != 15 || !strings.Contains(names, "role:marker-role drop-table\n") || slices.ContainsFunc(strings.Split(strings.TrimSpace(names), "\n"), func(s string) bool { return !strings.HasPrefix(s, "role:") }) {
			t.Errorf("tool list -o name: %s", names)
		}
		var matrix []api.RoleTools
		decode(t, w.must("role", "matrix", "-o", "json"), &matrix)
		if len(matrix) != 4 || matrix[1].Role != "quality" || len(matrix[1].Tools) != 4 || matrix[1].Tools[0].InputSchema != nil {
			t.Errorf("role matrix -o json: %+v", matrix)
		}
		w.refused(1, []string{`no role "absent" that ` + w.me() + " may use", "bailiwick role list"}, "role", "show", "absent")
		w.refused(1, []string{`no role "absent"`}, "tool", "list", "--role", "absent")

		w.asToken("agent:other", func(r client.Runtime) {
			roles, err := r.Artifacts(t.Context(), api.KindRole, "", "")
			if err != nil || len(roles.Items) != 1 || roles.Items[0].Name != "quality" || fmt.Sprint(roles.Items[0].Subagents) != "[checker]" {
				t.Errorf("roles by token: %+v, %v", roles, err)
			}
			if tools, err := r.RoleTools(t.Context(), "quality", true); err != nil || len(tools.Tools) != 4 {
				t.Errorf("tools by token: %+v, %v", tools, err)
			}
			// A hidden role and one that does not exist are refused in the same way.
			_, hidden := r.RoleTools(t.Context(), "marker-role", false)
			_, absent := r.RoleTools(t.Context(), "absent", false)
			if api.CodeOf(hidden) != api.CodeNotFound || strings.ReplaceAll(hidden.Error(), "marker-role", "absent") != absent.Error() {
				t.Errorf("hidden: %v; absent: %v", hidden, absent)
			}
			_, hidden = r.CanCall(t.Context(), api.CanCallRequest{Role: "marker-role", Tool: "drop-table"})
			_, absent = r.CanCall(t.Context(), api.CanCallRequest{Role: "absent", Tool: "drop-table"})
			if api.CodeOf(hidden) != api.CodeNotFound || strings.ReplaceAll(hidden.Error(), "marker-role", "absent") != absent.Error() {
				t.Errorf("can, hidden: %v; absent: %v", hidden, absent)
			}
			if _, err := r.CanCall(t.Context(), api.CanCallRequest{Role: "quality", Tool: "lookup", Principal: api.Principal(w.me())}); api.CodeOf(err) != api.CodeDenied {
				t.Errorf("can about another principal: %v", err)
			}
		})
	})
}

// wantLines fails the test unless a command prints each of the lines, or what begins so.
func (w *world) wantLines(command string, lines ...string) {
	w.t.Helper()
	text := "\n" + w.must(strings.Fields(command)...)
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line) {
			w.t.Errorf("%s lacks %q:\n%s", command, line, text)
		}
	}
}

// can says about a call what the gateway would decide, with the policies, for the
// subagent, target and principal that it names.
func TestCanSaysWhatARoleMayCall(t *testing.T) {
	t.Parallel()
	w := toolWorld(t, 0)
	yes := func(want, args string) {
		t.Helper()
		if text := w.must(append([]string{"can"}, strings.Fields(args)...)...); !strings.Contains(text, want) {
			t.Errorf("can %s lacks %q: %s", args, want, text)
		}
	}
	no := func(status int, args string, want ...string) {
		t.Helper()
		w.refused(status, want, append([]string{"can"}, strings.Fields(args)...)...)
	}
	yes("yes: checker (role quality) may call lookup (policy tool:lookup:quality; catalog revision 1)\n  on target local, up to stateful, in a dispatch of "+w.me(), "role:quality call lookup")
	yes("yes: watcher (role quality) may call lookup (policy tool:lookup:quality; catalog revision 1)\n  on target looking, up to observe", "role:quality call lookup --subagent watcher")
	yes("yes: changer (role transform) may call ask", "role:transform call ask")
	no(9, "role:transform call apply-change", "with approval: changer (role transform) may call apply-change (policy approval; catalog revision 1)", "1 human approves each call", `a human approves each call of tool "apply-change"`)
	no(3, "role:transform call apply-change --tainted", "no: changer (role transform) may not call apply-change", "closed to a dispatch that has read text from outside", "taint-forbids")
	yes("yes: changer", "role:transform call write")
	no(9, "role:transform call write --tainted", "with approval: changer", "policy taint")
	no(3, "role:transform call write --target looking", `no: changer (role transform) may not call write`, `target "looking" admits up to tier observe`)
	no(3, "role:quality call drop-table", `role "quality" has no tool "drop-table"`, "roles that have it: marker-role")
	no(3, "role:quality call LOOKUP", `role "quality" has no tool "LOOKUP"`, "role quality has: lookup")
	no(3, "role:quality call lookup --principal agent:nobody", "no grant lets agent:nobody dispatch subagent")
	no(9, "role:marker-role call drop-table", "with approval: dropper", "2 humans approve each call", "in a dispatch of a principal with every ceiling")
	no(3, "role:marker-role call drop-table --principal "+w.me(), "no grant lets "+w.me()+` dispatch subagent "dropper"`)
	no(1, "role:absent call lookup", `no role "absent"`)
	no(1, "role:unused call ask", `role "unused" has no subagent`)
	no(1, "role:quality call lookup --subagent changer", `role "quality" has no subagent "changer"`, "bailiwick role show quality")
	no(1, "quality call lookup", "want role:ROLE")
	no(1, "role:quality calls lookup", "want dispatch or call")
	no(1, "role:quality call lookup --source x", "not a call")
	no(1, "role:quality call \u202e", "want 1 to 255 of printable ASCII")

	w.must("ceiling", "set", w.me(), "reversible")
	no(3, "role:transform call write", "the ceiling of "+w.me()+" is reversible", "bailiwick ceiling set")
	w.must("ceiling", "set", w.me(), "stateful")
	w.must("stop", "--all")
	no(3, "role:quality call lookup", "emergency stop s-1 is engaged")

	var answer api.CanCallAnswer
	decode(t, w.refused(3, nil, "can", "role:quality", "call", "lookup", "-o", "json").stdout, &answer)
	if len(answer.Answers) != 2 || answer.Answers[0].Decision != api.CallDenied || answer.Answers[0].Subagent != "checker" {
		t.Errorf("can -o json: %+v", answer)
	}
}

// doctor says what a server of tools lacks on this machine, and starts none.
func TestDoctorChecksTheServersOfTools(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := newWorld(t, uid)
		w.init()
		w.write("project/capabilities/run/run.sh", "#!/bin/sh\ncat\n", 0o755)
		w.write("project/bailiwick.yaml", fmt.Sprintf(`version: 1
capabilities:
  - {name: run, from: capabilities/run}
secrets:
  - {name: ticket-token, ref: "file:ticket-token"}
roles: [quality]
tools:
  - {command: here, description: Runs., run: [./run.sh], capability: run, input: {type: object}, roles: [quality], tier: observe}
  - {command: found, description: Runs., run: [sh, -c, cat], credential: {env: {TOKEN: ticket-token}}, input: {type: object}, roles: [quality], tier: observe}
  - {command: absent, description: Runs., run: [no-such-program], input: {type: object}, roles: [quality], tier: observe}
  - {command: elsewhere, description: Runs., run: [tool], readOnly: [%[1]s], path: [%[1]s], input: {type: object}, roles: [quality], tier: observe}
subagents:
  - {name: checker, agent: command, command: [./run.sh], role: quality, tier: observe, capabilities: [run], target: local}
targets:
  - {name: local, executor: jail, level: full, mode: guarded}
`, w.path("opt")), 0o644)
		w.mkdir("opt")
		w.must("catalog", "apply", "-f", w.path("project/bailiwick.yaml"))
		doctor := w.refused(1, []string{
			"ok      tool here          program ./run.sh of capability run\n", "MISSING tool absent        no program no-such-program for its jail: its calls fail\n",
			"install it, or name its directory with path and readOnly in the manifest\n", "MISSING tool elsewhere     no program tool for its jail",
		}, "doctor")
		if !strings.Contains(doctor.stdout, "ok      tool found         program /") {
			t.Errorf("doctor: %s", doctor)
		}
		w.write("opt/tool", "#!/bin/sh\n", 0o755)
		if d := w.try("doctor"); !strings.Contains(d.stdout, "ok      tool elsewhere     program "+w.path("opt/tool")+"\n") {
			t.Errorf("doctor: %s", d)
		}
		// The running service reads the secrets.
		w.up()
		if d := w.try("doctor"); !strings.Contains(d.stdout, "ticket-token: ") || !strings.Contains(w.must("secret", "list"), "tool found TOKEN") {
			t.Errorf("doctor: %s\n%s", d, w.must("secret", "list"))
		}
	})
}
