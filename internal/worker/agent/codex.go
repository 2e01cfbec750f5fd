package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// codex is OpenAI's Codex CLI.
func codex() *Adapter {
	return &Adapter{
		Name: "codex", Program: "codex", Session: []string{".codex/sessions"},
		launch: launchCodex, read: readCodex,
	}
}

// codexConfig is its configuration: model, system prompt, and base URL. It sends a
// request to its model only, and has no sandbox of its own, which cannot nest. Codex
// ignores the configuration of untrusted projects, such as extra tool servers.
const codexConfig = `model = %[1]s
review_model = %[1]s
model_provider = "bailiwick"
developer_instructions = %[2]s
approval_policy = "never"
sandbox_mode = "danger-full-access"
web_search = "disabled"
check_for_update_on_startup = false

[model_providers.bailiwick]
name = "bailiwick"
base_url = %[3]s
env_key = "BAILIWICK_MODEL_KEY"
wire_api = "responses"
supports_websockets = false

[shell_environment_policy]
inherit = "all"
ignore_default_excludes = true

[features]
apps = false
daemon_auto_start = false
enable_request_compression = false
image_generation = false
plugin_sharing = false
plugins = false
remote_plugin = false
skill_mcp_dependency_install = false

[analytics]
enabled = false

[feedback]
enabled = false

[otel]
exporter = "none"

[history]
persistence = "none"

[mcp_servers.bailiwick]
url = %[4]s
tool_timeout_sec = %[5]d
default_tools_approval_mode = "approve"
`

func launchCodex(s Start, p prompts, l *Launch) error {
	l.Home = append(l.Home, File{".codex/config.toml", fmt.Appendf(nil, codexConfig, tomlText(s.Model.ID), tomlText(p.system), tomlText(s.Model.URL+"/v1"), tomlText(s.Tools), toolTime)})
	l.Args = []string{"exec"}
	if s.Session != nil {
		l.Args = append(l.Args, "resume")
	}
	l.Args = append(l.Args, "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
	if s.Session != nil {
		l.Args = append(l.Args, s.Session.ID)
	}
	l.Args = append(l.Args, "-")
	l.Env["CODEX_HOME"], l.Env["BAILIWICK_MODEL_KEY"] = home(".codex"), s.Model.Key
	return nil
}

// tomlText writes a basic string of TOML: JSON's escapes are valid there, and DEL needs one.
func tomlText(s string) string {
	return strings.ReplaceAll(string(jsonText(strings.ToValidUTF8(s, "\uFFFD"))), "\x7f", `\u007F`)
}

// jsonText is v as JSON, without the escapes that are for HTML.
func jsonText(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // text, maps and lists
	return bytes.TrimSpace(b.Bytes())
}

func readCodex(line []byte, r *Report) (string, error) {
	var e struct {
		Type, Message string
		Thread        string `json:"thread_id"`
		Error         struct{ Message string }
		Item          struct {
			Type, Text, Command, Message, Tool, Query string
			Changes                                   []struct{ Path, Kind string }
		}
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return "", err
	}
	var said lines
	switch {
	case e.Type == "thread.started":
		r.Session = e.Thread
	case e.Type == "turn.completed":
		r.Error = ""
	case e.Type == "turn.failed":
		r.Error = e.Error.Message
	case e.Type == "error":
		r.Error = e.Message
		said.failed(e.Message)
	case e.Type == "item.started" && e.Item.Type == "command_execution":
		said.tool("shell", jsonText(e.Item.Command))
	case e.Type != "item.completed":
	case e.Item.Type == "agent_message":
		r.Text = e.Item.Text
		said.text(e.Item.Text)
	case e.Item.Type == "file_change":
		for _, c := range e.Item.Changes {
			said.tool(c.Kind, jsonText(c.Path))
		}
	case e.Item.Type == "error":
		said.failed(e.Item.Message)
	}
	return said.String(), nil
}
