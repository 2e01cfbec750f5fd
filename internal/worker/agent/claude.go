package agent

import (
	"encoding/json"
	"slices"
	"strconv"
)

// claude is Claude Code.
func claude() *Adapter {
	return &Adapter{
		Name: "claude-code", Program: "claude", Session: []string{".claude/projects"},
		launch: launchClaude, read: readClaude,
	}
}

func launchClaude(s Start, p prompts, l *Launch) error {
	const mcp, systemPrompt = Own + "/mcp.json", Own + "/system.md"
	l.Home = append(l.Home, File{mcp, append(jsonText(map[string]any{"mcpServers": map[string]any{
		toolServer: map[string]any{"type": "http", "url": s.Tools},
	}}), '\n')}, File{systemPrompt, []byte(p.system)})
	l.Args = []string{
		"-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions",
		"--strict-mcp-config", "--mcp-config", home(mcp), "--append-system-prompt-file", home(systemPrompt),
		"--disallowedTools", "WebSearch,WebFetch", // they run at the provider, or ask it about each page
	}
	if s.Session != nil {
		l.Args = append(l.Args, "--resume", s.Session.ID)
	}
	env := l.Env
	env["ANTHROPIC_BASE_URL"], env["ANTHROPIC_API_KEY"] = s.Model.URL, s.Model.Key
	for _, name := range []string{
		"ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL",
		"ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_FABLE_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL",
	} {
		env[name] = s.Model.ID
	}
	for _, name := range []string{
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER", "DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING", "IS_SANDBOX",
	} {
		env[name] = "1"
	}
	env["ENABLE_TOOL_SEARCH"] = "false"
	env["MCP_TOOL_TIMEOUT"] = strconv.Itoa(toolTime * 1000)
	return nil
}

func readClaude(line []byte, r *Report) (string, error) {
	type block struct {
		Type, Text, Name string
		Input            json.RawMessage
	}
	var e struct {
		Type, Subtype, Result string
		Session               string `json:"session_id"`
		IsError               bool   `json:"is_error"`
		Errors                []string
		Parent                string `json:"parent_tool_use_id"`
		Message               struct{ Content []block }
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return "", err
	}
	switch e.Type {
	case "system":
		if e.Subtype == "init" {
			r.Session = e.Session
		}
	case "assistant":
		var said lines
		for _, b := range e.Message.Content {
			switch b.Type {
			case "text":
				said.text(b.Text)
			case "tool_use":
				said.tool(b.Name, b.Input)
			}
		}
		return said.String(), nil
	case "result":
		r.Text, r.Error = e.Result, ""
		if e.IsError {
			r.Text, r.Error = "", firstOf(slices.Concat([]string{e.Result}, e.Errors, []string{e.Subtype})...)
		}
	}
	return "", nil
}
