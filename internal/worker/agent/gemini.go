package agent

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// gemini is Google's Gemini CLI.
func gemini() *Adapter {
	return &Adapter{
		Name: "gemini", Program: "gemini", Session: []string{".gemini/tmp/workspace"},
		launch: launchGemini, read: readGemini,
	}
}

func launchGemini(s Start, p prompts, l *Launch) error {
	type object = map[string]any
	// A workspace's settings can replace a server by its name, which they cannot guess.
	server := toolServer + "-" + strings.TrimPrefix(string(api.DigestOf([]byte(s.Model.Key))), "sha256:")[:12]
	var all []any
	// It has names for the models of its side requests. Most of them extend base.
	for _, alias := range []string{
		"base", "agent-history-provider-summarizer", "chat-compression-default", "chat-compression-3-pro", "chat-compression-3-flash",
		"chat-compression-3.1-flash-lite", "chat-compression-2.5-pro", "chat-compression-2.5-flash", "chat-compression-2.5-flash-lite",
	} {
		all = append(all, object{"match": object{"model": alias}, "modelConfig": object{"model": s.Model.ID}})
	}
	l.Home = append(l.Home,
		File{".gemini/GEMINI.md", []byte(p.system)},
		File{".gemini/settings.json", append(jsonText(object{
			"general":      object{"enableAutoUpdate": false, "enableAutoUpdateNotification": false, "sessionRetention": object{"enabled": false}},
			"telemetry":    object{"enabled": false},
			"privacy":      object{"usageStatisticsEnabled": false},
			"security":     object{"auth": object{"selectedType": "gemini-api-key"}},
			"tools":        object{"exclude": []string{"google_web_search", "web_fetch", "enter_plan_mode"}, "sandbox": false},
			"modelConfigs": object{"customOverrides": all},
			"mcpServers":   object{server: object{"httpUrl": s.Tools, "timeout": toolTime * 1000, "trust": true}},
		}), '\n')})
	maps.Copy(l.Env, map[string]string{
		"GEMINI_API_KEY": s.Model.Key, "GOOGLE_GEMINI_BASE_URL": s.Model.URL, "GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_CLI_NO_RELAUNCH": "true", "TERM": "xterm-256color", "COLORTERM": "truecolor", "NO_COLOR": "1",
	})
	l.Args = []string{"-m", s.Model.ID, "--allowed-mcp-server-names", server, "--approval-mode", "yolo", "--output-format", "stream-json"}
	if s.Session != nil {
		l.Args = append(l.Args, "--resume", "latest") // the only one there
	}
	return nil
}

func readGemini(line []byte, r *Report) (string, error) {
	var e struct {
		Type, Role, Content, Status, Message string
		Session                              string          `json:"session_id"`
		Tool                                 string          `json:"tool_name"`
		Parameters                           json.RawMessage `json:"parameters"`
		Error                                struct{ Message string }
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return "", err
	}
	var said lines
	switch e.Type {
	case "init":
		r.Session = e.Session
	case "message":
		if e.Role == "assistant" { // in parts
			r.addText(e.Content)
		}
	case "tool_use":
		said.text(r.Text)
		said.tool(e.Tool, e.Parameters)
		r.Text = "" // it was not the final one
	case "error":
		said.failed(e.Message)
	case "result":
		said.text(r.Text)
		r.Error = ""
		if e.Status != "success" {
			r.Error = firstOf(e.Error.Message, e.Status, "unknown")
		}
	}
	return said.String(), nil
}
