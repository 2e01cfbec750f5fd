package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// mcpVerbs are the verbs about the MCP server, which an AI client starts.
type mcpVerbs struct{ *tree }

// mcpTool is a tool as the server describes it to a client.
type mcpTool struct {
	Name         string          `json:"name"`
	Title        string          `json:"title"`
	Description  string          `json:"description"`
	Annotations  map[string]any  `json:"annotations"`
	InputSchema  json.RawMessage `json:"inputSchema"`
	OutputSchema json.RawMessage `json:"outputSchema"`
}

func (t *mcpVerbs) toolsCommand(v *console.Verb) {
	v.Do(func(ctx context.Context, _ []string) error {
		tools, err := t.tools(ctx)
		if err != nil {
			return err
		}
		return console.List(&t.Output, tools, func(m mcpTool) string { return m.Name }, "TOOL\tDOES\tKIND", func(m mcpTool) string {
			return m.Name + "\t" + console.Plain(m.Title) + "\t" + hintText(m.Annotations)
		})
	})
}

func hintText(hints map[string]any) string {
	if hints["readOnlyHint"] == true {
		return "reads"
	}
	if hints["openWorldHint"] == true {
		return "starts work"
	}
	return "ends work"
}

// tools requests the tools of the installation's MCP server.
func (t *mcpVerbs) tools(ctx context.Context) ([]mcpTool, error) {
	const requests = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bailiwick","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
`
	path := t.sibling(mcpProgram)
	child := exec.CommandContext(ctx, path) //nolint:gosec // G204: a program in the folder of this one
	child.Stdin, child.Stderr = strings.NewReader(requests), t.Stderr
	out, err := child.Output()
	if err != nil {
		return nil, missing(path, err)
	}
	for line := range bytes.Lines(out) {
		var answer struct {
			ID     int
			Result struct{ Tools []mcpTool }
		}
		if err := json.Unmarshal(line, &answer); err == nil && answer.ID == 2 && answer.Result.Tools != nil {
			return answer.Result.Tools, nil
		}
	}
	return nil, api.Errorf(api.CodeInternal, "%s did not list its tools", path)
}

// mcpClient is how an AI client is configured.
type mcpClient struct {
	name, file string
	config     func(command []string) (string, error)
	add        string // its own command that does the same, without the command of the server; or empty
}

func mcpClients() []mcpClient {
	servers := func(server map[string]any) func([]string) (string, error) {
		return func(command []string) (string, error) {
			server["command"], server["args"] = command[0], command[1:]
			return jsonText(map[string]any{"mcpServers": map[string]any{"bailiwick": server}})
		}
	}
	return []mcpClient{
		{"claude-code", ".mcp.json of the project", servers(map[string]any{"type": "stdio"}), "claude mcp add bailiwick --"},
		{"codex", "~/.codex/config.toml", codexConfig, "codex mcp add bailiwick --"},
		{"opencode", "opencode.json of the project, or ~/.config/opencode/opencode.json", opencodeConfig, ""},
		{"gemini", ".gemini/settings.json of the project, or ~/.gemini/settings.json", servers(map[string]any{}), ""},
		{"cursor", ".cursor/mcp.json of the project, or ~/.cursor/mcp.json", servers(map[string]any{"type": "stdio"}), ""},
	}
}

// callTimeout is how many seconds a client must wait for an answer: the longest
// time that a call may wait, and some more.
const callTimeout = 70

func codexConfig(command []string) (string, error) {
	var values []string
	for _, v := range []any{command[0], command[1:]} {
		b, err := json.Marshal(v) // JSON strings and arrays are TOML strings and arrays
		if err != nil {
			return "", err
		}
		values = append(values, string(b))
	}
	return fmt.Sprintf("[mcp_servers.bailiwick]\ncommand = %s\nargs = %s\ntool_timeout_sec = %d\n", values[0], values[1], callTimeout), nil
}

func opencodeConfig(command []string) (string, error) {
	return jsonText(map[string]any{
		"$schema": "https://opencode.ai/config.json",
		"mcp":     map[string]any{"bailiwick": map[string]any{"type": "local", "command": command, "enabled": true, "timeout": callTimeout * 1000}},
	})
}

func jsonText(v any) (string, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return b.String(), err
}

// mcpConfig is the JSON answer of mcp config.
type mcpConfig struct {
	Client  string   `json:"client"`
	File    string   `json:"file"` // where the configuration goes
	Config  string   `json:"config"`
	Command []string `json:"command"` // of the server
}

func (t *mcpVerbs) configCommand(v *console.Verb) {
	var name, tokenFile string
	clients := mcpClients()
	var known []string
	for _, c := range clients {
		known = append(known, c.name)
	}
	v.Do(func(ctx context.Context, _ []string) error {
		i := slices.Index(known, name)
		if i < 0 {
			return api.Errorf(api.CodeInvalid, "--client %q: want one of %s", name, strings.Join(known, ", "))
		}
		if tokenFile == "" && v.Flags().Changed("principal-token-file") {
			return api.Errorf(api.CodeInvalid, "--principal-token-file is empty: the client would act as this account").WithHint("name the file, or omit the flag")
		}
		command, err := t.startCommand(ctx, tokenFile)
		if err != nil {
			return err
		}
		return t.printConfig(clients[i], command)
	})
	v.Flag(&name, "client")
	v.Flag(&tokenFile, "principal-token-file")
}

// startCommand is the command with which a client starts the server. Clients pass
// on little of their environment, so it names the socket of the service.
func (t *mcpVerbs) startCommand(ctx context.Context, tokenFile string) ([]string, error) {
	server, err := t.remote()
	switch {
	case err != nil:
		return nil, err
	case server != "" && tokenFile == "":
		return nil, api.Errorf(api.CodeInvalid, "mcp config: a client of %s needs a token, since it has no account there", server).WithHint("create one: bailiwick token create agent:NAME --out FILE; then add: --principal-token-file FILE")
	}
	command := []string{t.sibling(mcpProgram), "--socket", t.serviceSocket(ctx)}
	if server != "" {
		command = []string{t.sibling(mcpProgram), "--server", server}
		fmt.Fprintf(t.Stderr, "If %s has certificates of its own, add to the arguments: --server-ca FILE\n", server)
	}
	if _, err := os.Stat(command[0]); err != nil { // the client would hide this error
		return nil, missing(command[0], err)
	}
	if tokenFile == "" {
		return command, nil
	}
	path, err := filepath.Abs(tokenFile)
	if err = errors.Join(err, checkTokenFile(path)); err != nil {
		return nil, err // the server would refuse it, and the client hide that error
	}
	return append(command, "--principal-token-file", path), nil
}

// checkTokenFile refuses a file for a token that is a link, or that others can read.
func checkTokenFile(path string) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return api.Errorf(api.CodeInvalid, "--principal-token-file: %w", err).WithHint("create one: bailiwick token create PRINCIPAL --out FILE")
	case !info.Mode().IsRegular():
		return api.Errorf(api.CodeInvalid, "--principal-token-file %s: not a regular file", path).WithHint("name the file itself, not a link")
	case info.Mode().Perm()&0o077 != 0:
		return api.Errorf(api.CodeInvalid, "--principal-token-file %s: others can read or write it (mode %04o)", path, info.Mode().Perm()).WithHint("chmod 600 %s", path)
	}
	return nil
}

// serviceSocket is the socket of the service, or the one that a service would
// use by default.
func (t *mcpVerbs) serviceSocket(ctx context.Context) string {
	if t.socket != "" {
		if path, err := filepath.Abs(t.socket); err == nil {
			return path
		}
		return t.socket
	}
	c := t.connect(false)
	defer c.Close()
	if socket, err := c.Find(ctx); err == nil {
		return socket
	}
	places := t.Dirs.Sockets()
	if t.Dirs.Runtime != "" {
		if _, err := os.Stat(filepath.Dir(t.Dirs.Runtime)); err == nil {
			return places[0]
		}
	}
	return places[len(places)-1]
}

func (t *mcpVerbs) printConfig(c mcpClient, command []string) error {
	config, err := c.config(command)
	if err != nil {
		return err
	}
	if t.Format == "name" {
		return api.Errorf(api.CodeInvalid, "-o name: a configuration has no name").WithHint("omit it, or use -o json")
	}
	return t.Emit(mcpConfig{Client: c.name, File: c.file, Config: config, Command: command}, "", func() {
		fmt.Fprintf(t.Stderr, "Add this to %s.\n", c.file)
		if c.add != "" {
			fmt.Fprintf(t.Stderr, "Or run: %s %s\n", c.add, console.ShellText(command...))
		}
		fmt.Fprint(t.Stdout, config)
	})
}
