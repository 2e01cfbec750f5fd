package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// suiteTools adds the tools that the public conformance suites call, if they ask
// nothing of the client: for test_simple_text the gateway has server test and tool
// simple_text.
func suiteTools(h *toolHost) (names []string) {
	image := &mcp.ImageContent{Data: []byte("\x89PNG\r\n\x1a\n"), MIMEType: "image/png"}
	resource := func(uri, mime, text string) mcp.Content {
		return &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: uri, MIMEType: mime, Text: text}}
	}
	add := func(name string, failed bool, content ...mcp.Content) {
		names = append(names, name)
		h.AddTool(&mcp.Tool{Name: name, Description: "Of the suite.", InputSchema: map[string]any{"type": "object"}}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			for i := 0; i <= 100 && name == "tool_with_progress"; i += 50 {
				_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i), Total: 100})
			}
			return &mcp.CallToolResult{Content: content, IsError: failed}, nil
		})
	}
	add("simple_text", false, &mcp.TextContent{Text: "This is a simple text response for testing."})
	add("image_content", false, image)
	add("audio_content", false, &mcp.AudioContent{Data: []byte("RIFF"), MIMEType: "audio/wav"})
	add("embedded_resource", false, resource("test://embedded-resource", "text/plain", "This is an embedded resource content."))
	add("multiple_content_types", false, &mcp.TextContent{Text: "Multiple content types test:"}, image, resource("test://mixed-content-resource", "application/json", `{"test":"data","value":123}`))
	add("error_handling", true, &mcp.TextContent{Text: "This tool intentionally returns an error for testing"})
	add("tool_with_progress", false, &mcp.TextContent{Text: "done"})
	return names
}

// The public conformance suites run in a jail against the gateway, with a server of the
// tools that they call. What fails is what fails with bailiwick-mcp, too, and for the same
// reason: e2e/agents/conformance.txt; or what is not offered to a jail. All scenarios of those tools pass. The control:
// they fail where the role lacks the tools.
//
// proves R-G2, R-G5
func TestThePublicConformanceSuitesPassThroughTheGateway(t *testing.T) {
	t.Parallel()
	host := newToolHost()
	var allow strings.Builder
	for _, name := range suiteTools(host) {
		fmt.Fprintf(&allow, "      - {tool: %s, roles: [client], tier: observe}\n", name)
	}
	w := newCallWorld(t, 0, []string{"client observe", "nobody observe"}, fmt.Sprintf("  - server: test\n    http: {url: %q}\n    allow:\n%s", host.serve(t), allow.String()), "    limits: {processes: 2000}\n")
	w.replace(manifest, "{name: local, executor: jail, level: full, mode: open}", fmt.Sprintf("{name: local, executor: jail, level: full, mode: open, readOnly: [%s], path: [%s]}", clientFile(t), filepath.Dir(node(t))))
	w.pinned()
	w.up()
	run := func(role string, list ...suite) string {
		var script strings.Builder
		for _, s := range list {
			fmt.Fprintf(&script, "mkdir -p outputs/%[1]s; node %[2]s server --url http://127.0.0.1:19514/mcp -o outputs/%[1]s %[3]s > outputs/%[1]s/said 2>&1 &\n", s.name, clientFile(t, s.program, "dist", "index.js"), strings.Join(s.args, " "))
		}
		d := w.do(role, script.String()+"wait")
		dir := w.path("results-" + role)
		w.must("dispatch", "outputs", string(d.ID), "--dir", dir)
		return dir
	}
	expected := expectedFailures(t)
	dir := run("client", suites()...)
	for _, s := range suites() {
		wrong := w.wrongChecks(s.name, filepath.Join(dir, s.name), strings.Join(lines(filepath.Join(dir, s.name, "said")), "\n"))
		for check, message := range wrong {
			if _, ok := expected[s.name][check]; suiteScenario(check) || !ok && !transportOnly(check) {
				t.Errorf("%s: %s: %s", s.name, check, message)
			}
		}
	}
	one := suites()[0]
	control := w.wrongChecks(one.name, filepath.Join(run("nobody", one), one.name), "")
	if n := len(control); n < 7 || control["tools-call-simple-text tools-call-simple-text"] == "" {
		t.Errorf("the control: without its tools the suite fails in %d checks: %q", n, control)
	}
}

// transportOnly reports whether a check is about what the listener of a jail has not:
// sessions with streams of their own, and pages of a browser.
func transportOnly(check string) bool {
	return strings.HasSuffix(check, " server-sse-polling-session") || strings.HasSuffix(check, " server-sse-multiple-streams-session") || check == "dns-rebinding-protection localhost-host-valid-accepted" ||
		check == "server-stateless sep-2575-server-sends-tools-list-changed-on-subscription" // no agent can change the pinned list; see TestAgentsLearnThatAToolIsClosed
}

// suiteScenario reports whether a check is about a tool of suiteTools.
func suiteScenario(check string) bool {
	for _, name := range []string{"simple-text", "image", "audio", "embedded-resource", "mixed-content", "error", "with-progress"} {
		if strings.HasPrefix(check, "tools-call-"+name+" ") {
			return true
		}
	}
	return false
}
