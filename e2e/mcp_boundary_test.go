package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// nineTools is the frozen list, deliberately written down a second time.
func nineTools() []string {
	return []string{
		"bailiwick_dispatch", "bailiwick_dispatch_describe", "bailiwick_dispatch_cancel",
		"bailiwick_capabilities_list", "bailiwick_subagents_list", "bailiwick_envs_list",
		"bailiwick_orchestrator_submit", "bailiwick_orchestrator_status", "bailiwick_orchestrator_watch",
	}
}

// checkTools is the check of R-B3: exactly the nine tools, and no name that
// suggests a human's power, whatever the tool does.
func checkTools(got []string) error {
	for _, name := range got {
		for _, power := range []string{"*_register", "*_assign", "*_apply", "*_approve", "*_audit", "*_serve"} {
			if ok, _ := path.Match(power, name); ok {
				return fmt.Errorf("there is a tool %s, and %s is for humans", name, power)
			}
		}
	}
	if !slices.Equal(sorted(got), sorted(nineTools())) {
		return fmt.Errorf("the tools are %q, want exactly the nine", got)
	}
	return nil
}

// toolsOf lists the tools of a built server in a revision.
func toolsOf(w *world, program, revision string) []string {
	w.t.Helper()
	return names(w.mcpOf(program, revision, nil).tools())
}

// otherServer builds a copy of the shipped server with one file changed.
func otherServer(t *testing.T, file, old, fresh string) string {
	t.Helper()
	where, err := filepath.Abs(filepath.Join("../internal/front/mcpserve", file))
	must(t, err)
	source, err := os.ReadFile(where)
	must(t, err)
	if strings.Count(string(source), old) != 1 {
		t.Fatalf("%s has %q %d times, want once", file, old, strings.Count(string(source), old))
	}
	dir := readable(t)
	changed := filepath.Join(dir, "changed.go")
	must(t, os.WriteFile(changed, []byte(strings.Replace(string(source), old, fresh, 1)), 0o644))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{where: changed}})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o644))
	program := filepath.Join(dir, "bailiwick-mcp")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "../cmd/bailiwick-mcp")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// readable is a temporary directory that other accounts may enter.
func readable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bailiwick-other-") //nolint:usetesting // other accounts cannot enter the parents of t.TempDir
	must(t, err)
	must(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	return dir
}

// The built server has exactly the nine tools in each revision of the protocol.
//
// takeover both modes, AI client: no define
//
// proves R-B2, R-B3, R-T9
func TestServerHasExactlyNineTools(t *testing.T) {
	t.Parallel()
	inEachMode(t, ordinaryUID, serverHasExactlyNineTools)
}

func serverHasExactlyNineTools(t *testing.T, uid int) {
	w := newWorld(t, uid) // no keys and no service
	for _, revision := range mcpRevisions() {
		got := toolsOf(w, mcpProgram(), revision)
		if err := checkTools(got); err != nil {
			t.Errorf("%s: %v", revision, err)
		}
		if !slices.Equal(got, nineTools()) {
			t.Errorf("%s: the order is %q", revision, got)
		}
	}
}

// The control: the check fails for a copy of the server with a tenth tool,
// whatever its name, and for one with a renamed tool.
//
// proves R-B3
func TestToolCheckFailsOnATenthTool(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ordinaryUID)
	const end = "	return b.tools, errors.Join(b.errs...)"
	tenth := func(name string) string {
		return `	add(&b, toolInfo{name: "` + name + `", title: "x", description: "x"}, s.envs)` + "\n" + end
	}
	for what, c := range map[string]struct{ old, fresh, says string }{
		"a tenth tool with the name of a human power": {end, tenth("bailiwick_catalog_apply"), "*_apply"},
		"a tenth tool with a harmless name":           {end, tenth("bailiwick_help"), "exactly the nine"},
		"nine tools, one renamed":                     {`"bailiwick_envs_list"`, `"bailiwick_env_serve"`, "*_serve"},
	} {
		program := otherServer(t, "tools.go", c.old, c.fresh)
		for _, revision := range mcpRevisions() {
			err := checkTools(toolsOf(w, program, revision))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s, in %s: the check returns %v, want %q", what, revision, err, c.says)
			}
			t.Logf("%s, in %s: the check fails as expected (%.90v...)", what, revision, err)
		}
	}
}

// The server offers only tools: every other MCP method is not found, in each
// revision, and only tools are advertised.
//
// takeover both modes, AI client: no rewrite the log, forge evidence
//
// proves R-B2
func TestServerOffersOnlyTools(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ordinaryUID)
	for _, revision := range mcpRevisions() {
		s := w.mcp(revision)
		for method, params := range map[string]members{
			"prompts/list": {}, "prompts/get": {"name": "x"}, "resources/list": {}, "resources/read": {"uri": "file:///etc/passwd"},
			"resources/templates/list": {}, "resources/subscribe": {"uri": "file:///"}, "resources/unsubscribe": {"uri": "file:///"},
			"completion/complete": {"ref": members{"type": "ref/prompt", "name": "x"}, "argument": members{"name": "x", "value": ""}},
			"logging/setLevel":    {"level": "debug"}, "roots/list": {}, "sampling/createMessage": {}, "elicitation/create": {}, "tasks/list": {},
			"tools/register": {}, "bailiwick/apply": {}, "": {},
		} {
			if m := s.request(method, params); m.Error == nil || m.Error.Code != -32601 {
				t.Errorf("%s %s: %+v %s", revision, method, m.Error, m.Result)
			}
		}
		// The control: existing methods are found.
		s.must("tools/list", members{})
		if revision == mcpJuly {
			var d struct {
				SupportedVersions []string
				Capabilities      map[string]any
			}
			decode(t, string(s.must("server/discover", members{})), &d)
			if len(d.Capabilities) != 1 || d.Capabilities["tools"] == nil || !slices.Equal(sorted(d.SupportedVersions), mcpRevisions()) {
				t.Errorf("server/discover returns %+v", d)
			}
		}
	}
	s := w.mcpRaw(mcpProgram())
	var got struct{ Capabilities map[string]any }
	decode(t, string(s.must("initialize", members{"protocolVersion": mcpNovember, "capabilities": members{}, "clientInfo": members{"name": "x", "version": "1"}})), &got)
	if tools, ok := got.Capabilities["tools"].(map[string]any); !ok || len(tools) != 0 || len(got.Capabilities) != 1 {
		t.Errorf("the capabilities are %v", got.Capabilities)
	}
}

// An unsupported revision is handled as the protocol says: initialize proposes
// a supported one, a request of the newer kind gets the list of supported ones.
//
// proves R-T9
func TestUnknownRevisionListsSupportedOnes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ordinaryUID)
	for _, asked := range []string{"2024-11-05", "2025-03-26", "1999-01-01", "latest", ""} {
		var got struct{ ProtocolVersion string }
		decode(t, string(w.mcpRaw(mcpProgram()).must("initialize", members{"protocolVersion": asked, "capabilities": members{}, "clientInfo": members{"name": "x", "version": "1"}})), &got)
		if got.ProtocolVersion != mcpNovember {
			t.Errorf("requested revision %q, the server chose %q", asked, got.ProtocolVersion)
		}
	}
	s := w.mcp(mcpJuly)
	s.meta["io.modelcontextprotocol/protocolVersion"] = "2027-01-01"
	m := s.request("tools/list", members{})
	var data struct{ Supported []string }
	if m.Error == nil || m.Error.Code != -32022 {
		t.Fatalf("an unknown revision: %+v %s", m.Error, m.Result)
	}
	decode(t, string(m.Error.Data), &data)
	if !slices.Equal(sorted(data.Supported), mcpRevisions()) {
		t.Errorf("the supported revisions are %q", data.Supported)
	}
}

// Lists are cacheable only per caller, and each tool is annotated.
//
// proves R-T8
func TestToolsAreAnnotated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ordinaryUID)
	for _, revision := range mcpRevisions() {
		s := w.mcp(revision)
		var list struct{ CacheScope string }
		decode(t, string(s.must("tools/list", members{})), &list)
		if list.CacheScope != "private" {
			t.Errorf("%s: the list may be cached by %q", revision, list.CacheScope)
		}
		for _, tool := range s.tools() {
			hint := func(name string) bool {
				v, ok := tool.Annotations[name].(bool)
				if !ok {
					t.Errorf("%s %s lacks the annotation %s", revision, tool.Name, name)
				}
				return v
			}
			reads := strings.HasSuffix(tool.Name, "_list") || strings.HasSuffix(tool.Name, "_describe") || strings.HasSuffix(tool.Name, "_status") || strings.HasSuffix(tool.Name, "_watch")
			starts := tool.Name == "bailiwick_dispatch" || tool.Name == "bailiwick_orchestrator_submit"
			if hint("readOnlyHint") != reads || hint("destructiveHint") == reads || hint("openWorldHint") != starts || hint("idempotentHint") == starts {
				t.Errorf("%s %s has the annotations %v", revision, tool.Name, tool.Annotations)
			}
			if tool.Title == "" || tool.Annotations["title"] != tool.Title || tool.Description == "" {
				t.Errorf("%s %s has no title or description", revision, tool.Name)
			}
			for what, schema := range map[string]json.RawMessage{"input": tool.InputSchema, "output": tool.OutputSchema} {
				var v struct {
					Type       string
					Additional any `json:"additionalProperties"`
				}
				decode(t, string(schema), &v)
				if v.Type != "object" || v.Additional != false {
					t.Errorf("%s %s: the %s schema has type %q and additional properties %v", revision, tool.Name, what, v.Type, v.Additional)
				}
			}
		}
	}
}

// Environment variables change neither the server's checks nor its output.
func TestTheEnvironmentDoesNotChangeTheTools(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ordinaryUID)
	list := func(program string) string {
		return string(w.mcpOf(program, mcpNovember, nil).must("tools/list", members{}))
	}
	plain := list(mcpProgram())
	w.env = append(w.env, "MCPGODEBUG=hintomitempty=1", "JSONSCHEMAGODEBUG=typeschemasnull=1")
	if got := list(mcpProgram()); got != plain {
		t.Errorf("with the variable the tools are %.300s", got)
	}
	// The control: a copy of the server that does not clear the variable is
	// affected.
	if got := list(otherServer(t, "../../../cmd/bailiwick-mcp/main.go", "	return strings.HasPrefix(", "	return false && strings.HasPrefix(")); got == plain {
		t.Error("the control: a server that does not clear the variable returns the same")
	}
}

// Without a service every tool says what a person has to do, and works once
// that is done, without a restart of the server.
//
// proves R-T1
func TestToolsExplainAMissingService(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.init()
	s := w.mcp(mcpNovember)
	start := "bailiwick up"
	if w.unit != nil {
		start = "sudo systemctl start bailiwick.service"
	}
	arguments := map[string]members{
		"bailiwick_dispatch": {"subagent": "edit"}, "bailiwick_dispatch_describe": {"dispatchId": "d-1234"}, "bailiwick_dispatch_cancel": {"dispatchId": "d-1234"},
		"bailiwick_orchestrator_submit": {"plan": members{}}, "bailiwick_orchestrator_status": {"runId": "r"}, "bailiwick_orchestrator_watch": {"runId": "r"},
	}
	for _, name := range nineTools() {
		in := arguments[name]
		if in == nil {
			in = members{}
		}
		if r := s.call(name, in); !r.IsError || !strings.HasPrefix(r.text(), "service_unavailable: run "+start) || r.failure().Code != api.CodeUnavailable {
			t.Errorf("%s returns %s", name, r.text())
		}
	}
	w.manifest(subagent{name: "edit", script: "echo two > a.txt"})
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.up()
	var list struct{ Items []api.Listing }
	s.ok("bailiwick_subagents_list", members{}, &list)
	if len(list.Items) != 1 || list.Items[0].Name != "edit" {
		t.Errorf("with a service it lists %+v", list)
	}
}
