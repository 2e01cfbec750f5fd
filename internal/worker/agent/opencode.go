package agent

import (
	"encoding/json"

	"github.com/bailiwick-dev/bailiwick/api"
)

// opencode is opencode.
func opencode() *Adapter {
	return &Adapter{
		Name: "opencode", Program: "opencode",
		Session: []string{".local/share/opencode/opencode.db", ".local/share/opencode/opencode.db-wal", ".local/share/opencode/storage"},
		launch:  launchOpencode, read: readOpencode,
	}
}

func launchOpencode(s Start, p prompts, l *Launch) error {
	const systemPrompt = Own + "/system.md"
	sdk, version := "@ai-sdk/openai-compatible", "/v1"
	switch s.Model.API {
	case api.AnthropicMessages:
		sdk = "@ai-sdk/anthropic"
	case api.OpenAIResponses:
		sdk = "@ai-sdk/openai"
	case api.Gemini:
		sdk, version = "@ai-sdk/google", "/v1beta"
	case api.OpenAIChat:
	}
	type object = map[string]any
	model := "bailiwick/" + s.Model.ID
	// Configuration files of a workspace could name further servers of tools. Its
	// instructions are read nevertheless.
	l.Env["OPENCODE_DISABLE_PROJECT_CONFIG"] = "true"
	l.Env["OPENCODE_CONFIG_CONTENT"] = string(jsonText(object{
		"autoupdate": false, "share": "disabled", "snapshot": false,
		"model": model, "small_model": model, "enabled_providers": []string{"bailiwick"},
		"instructions": []string{home(systemPrompt), "/workspace/AGENTS.md", "/workspace/CLAUDE.md"},
		"mcp":          object{toolServer: object{"type": "remote", "url": s.Tools, "enabled": true, "oauth": false, "timeout": toolTime * 1000}},
		"permission":   object{"*": "allow", "webfetch": "deny", "websearch": "deny"},
		"provider": object{"bailiwick": object{
			"npm": sdk, "options": object{"baseURL": s.Model.URL + version, "apiKey": "{env:BAILIWICK_MODEL_KEY}"}, //nolint:gosec // G101: the name of a variable
			"models": object{s.Model.ID: object{"tool_call": true}},
		}},
	}))
	l.Env["BAILIWICK_MODEL_KEY"] = s.Model.Key
	for _, name := range []string{"OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_LSP_DOWNLOAD", "OPENCODE_DISABLE_DEFAULT_PLUGINS", "OPENCODE_DISABLE_SHARE"} {
		l.Env[name] = "1"
	}
	l.Home = append(l.Home,
		File{systemPrompt, []byte(p.system)},
		// It asks a registry for its plugins before each start, unless it finds them installed.
		File{".config/opencode/node_modules/.keep", nil},
		File{".config/opencode/package-lock.json", []byte(`{"packages":{"":{"dependencies":{"@opencode-ai/plugin":"*"}}}}` + "\n")},
	)
	l.Args = []string{"run", "--pure", "--format", "json", "--title", "worker", "--auto", "-m", model}
	if s.Session != nil {
		l.Args = append(l.Args, "--session", s.Session.ID)
	}
	return nil
}

func readOpencode(line []byte, r *Report) (string, error) {
	var e struct {
		Type    string
		Session string `json:"sessionID"`
		Part    struct {
			Message    string `json:"messageID"`
			Text, Tool string
			State      struct{ Input json.RawMessage }
		}
		Error struct {
			Name string
			Data struct{ Message string }
		}
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return "", err
	}
	if r.Session == "" {
		r.Session = e.Session
	}
	var said lines
	switch e.Type {
	case "text":
		if e.Part.Message != r.message {
			r.message, r.Text = e.Part.Message, ""
		}
		r.addText(e.Part.Text)
		said.text(e.Part.Text)
	case "tool_use":
		said.tool(e.Part.Tool, e.Part.State.Input)
	case "step_finish":
		r.Error = ""
	case "error":
		r.Error = firstOf(e.Error.Data.Message, e.Error.Name, "unknown")
		said.failed(r.Error)
	}
	return said.String(), nil
}
