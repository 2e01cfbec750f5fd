package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A person can list the tools that a client gets and print a client's
// configuration, and the printed configuration starts a working server.
func TestMCPToolsAndConfig(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ordinaryUID)
	if got := strings.Fields(w.must("mcp", "tools", "-o", "name")); !slices.Equal(got, nineTools()) {
		t.Errorf("mcp tools -o name prints %q", got)
	}
	var tools []mcpTool
	decode(t, w.must("mcp", "tools", "-o", "json"), &tools)
	if !slices.Equal(names(tools), nineTools()) || !json.Valid(tools[0].OutputSchema) {
		t.Errorf("mcp tools -o json prints %q", names(tools))
	}
	if text := w.must("mcp", "tools"); strings.Count(text, "\n") != 10 {
		t.Errorf("mcp tools prints %s", text)
	}
	d := w.try("init", "--insecure-unencrypted", w.path("project"))
	if last := lastLine(d.stderr); d.status != 0 || last != "  claude mcp add bailiwick -- "+mcpProgram() {
		t.Errorf("the last line of init is %q: %s", last, d)
	}
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.consent(w.me(), "reversible")
	w.manifest(subagent{name: "edit", script: "echo two > a.txt"})
	w.must("catalog", "apply", "-f", w.path(manifest))
	// Without a service the configuration names the future socket.
	before := w.must("mcp", "config", "--client", "cursor")
	w.up()
	for _, client := range []string{"claude-code", "codex", "opencode", "gemini", "cursor"} {
		var c struct {
			Client, File, Config string
			Command              []string
		}
		decode(t, w.must("mcp", "config", "--client", client, "-o", "json"), &c)
		if c.Client != client || c.File == "" || w.must("mcp", "config", "--client", client) != c.Config {
			t.Errorf("%s: %+v", client, c)
		}
		if client == "cursor" && c.Config != before {
			t.Errorf("with a service the configuration is %s, without one %s", c.Config, before)
		}
		// A client passes on almost none of its environment.
		other := *w
		other.env = []string{"HOME=" + w.path("home"), "PATH=/usr/bin:/bin"}
		s := other.mcpOf(c.Command[0], mcpNovember, nil, c.Command[1:]...)
		s.ok("bailiwick_subagents_list", members{}, new(any))
	}
	w.refused(1, []string{"claude-code", "codex"}, "mcp", "config", "--client", "word")
	w.refused(1, []string{"token create"}, "mcp", "config", "--client", "codex", "--principal-token-file", w.path("gone"))
	w.refused(1, []string{"is empty"}, "mcp", "config", "--client", "codex", "--principal-token-file", "")
	// Without the server program, no configuration is printed, since a client
	// would fail with it.
	alone := w.path("alone")
	front, err := os.ReadFile(filepath.Join(filepath.Dir(mcpProgram()), "bailiwick"))
	must(t, err)
	must(t, writeFile(alone, front, 0o755))
	if d := w.exec(alone, "mcp", "config", "--client", "codex"); d.status == 0 || d.stdout != "" || !strings.Contains(d.stderr, "same folder") {
		t.Errorf("without the server: %s", d)
	}
	w.write("open.token", "x", 0o644)
	w.refused(1, []string{"chmod 600"}, "mcp", "config", "--client", "codex", "--principal-token-file", w.path("open.token"))
	must(t, os.Symlink(w.path("open.token"), w.path("linked.token")))
	w.refused(1, []string{"not a link"}, "mcp", "config", "--client", "codex", "--principal-token-file", w.path("linked.token"))
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return lines[len(lines)-1]
}
