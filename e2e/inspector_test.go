package e2e

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// runNode runs a JavaScript program on an island.
func (w *world) runNode(net *island, args ...string) (stdout, stderr string, status int) {
	w.t.Helper()
	cmd := w.command(node(w.t), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := net.start(cmd); err != nil {
		w.t.Fatal(err)
	}
	hangs := time.AfterFunc(10*time.Minute, func() { _ = cmd.Process.Kill() })
	defer hangs.Stop()
	_ = cmd.Wait() // the status is returned
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// The MCP inspector finds the nine tools in order, on both transports and in
// both eras of the protocol, with no schema feature that some clients lack, and
// gets the result of a call.
//
// proves R-B3, R-T8, R-T9
func TestTheInspectorFindsTheNineTools(t *testing.T) {
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"hello": "hello\n"})
	w.catalog(subagent{name: "writer", script: "true"})
	w.up()
	w.admit("agent:inspector")
	net := newIsland(t)
	token, err := os.ReadFile(w.tokenFile("agent:inspector"))
	if err != nil {
		t.Fatal(err)
	}
	var config struct{ Command []string }
	decode(t, w.must("mcp", "config", "--client", "cursor", "--principal-token-file", w.tokenFile("agent:inspector"), "-o", "json"), &config)
	http := []string{w.serveMCP(net) + "/mcp", "--transport", "http", "--header", "Authorization: Bearer " + strings.TrimSpace(string(token))}
	for name, server := range map[string][]string{"stdio": config.Command, "http": http} {
		for _, era := range []string{"legacy", "modern"} {
			t.Run(name+"/"+era, func(t *testing.T) {
				w.in(t).inspect(net, server, era)
			})
		}
	}
}

func (w *world) inspect(net *island, server []string, era string) {
	w.t.Helper()
	call := func(result any, args ...string) {
		w.t.Helper()
		args = append([]string{clientFile(w.t, "@modelcontextprotocol/inspector/clients/cli/build/index.js"), "--protocol-era", era, "--format", "json", "-q"}, args...)
		out, errs, status := w.runNode(net, append(args, server...)...)
		if status != 0 {
			w.t.Fatalf("inspector %s: status %d: %s%s", strings.Join(args[1:], " "), status, out, errs)
		}
		for line := range strings.Lines(errs) {
			if _, path, ok := strings.Cut(strings.TrimSpace(line), "Path: "); ok && !slices.ContainsFunc(anything(), func(name string) bool { return strings.HasSuffix(path, name) }) {
				w.t.Errorf("the inspector warns about %s: %s", path, errs)
			}
		}
		decode(w.t, out, &struct{ Result any }{result})
	}
	var list struct{ Tools []struct{ Name string } }
	call(&list, "--strict", "--method", "tools/list")
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	if err := checkTools(names); err != nil || !slices.Equal(names, nineTools()) {
		w.t.Errorf("the inspector finds %q: %v", names, err)
	}
	var found struct {
		StructuredContent struct{ Items []struct{ Name string } }
	}
	call(&found, "--method", "tools/call", "--tool-name", "bailiwick_subagents_list")
	if items := found.StructuredContent.Items; len(items) != 1 || items[0].Name != "writer" {
		w.t.Errorf("the inspector finds the subagents %+v", found)
	}
}

// anything lists the members whose schema allows any JSON: output of workers,
// the schemas of their input and output, and the parameters of plans.
func anything() []string {
	return []string{".outcome.properties.value", ".question.properties.context", ".question.properties.state", ".items.items.properties.input", ".items.items.properties.output", "inputSchema.properties.parameters.additionalProperties"}
}
