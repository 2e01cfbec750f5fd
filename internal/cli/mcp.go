package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
)

// mcpProgram is what an AI client starts.
const mcpProgram = "bailiwick-mcp"

func (t *tree) mcpCommand() *cobra.Command {
	cmd := group("mcp", "What an AI client gets, and how it is set up")
	cmd.AddCommand(t.mcpToolsCommand(), t.mcpConfigCommand())
	return cmd
}

// mcpTool is a tool as the server describes it to a client.
type mcpTool struct {
	Name         string          `json:"name"`
	Title        string          `json:"title"`
	Description  string          `json:"description"`
	Annotations  map[string]any  `json:"annotations"`
	InputSchema  json.RawMessage `json:"inputSchema"`
	OutputSchema json.RawMessage `json:"outputSchema"`
}

func (t *tree) mcpToolsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "tools", Short: "Show the tools that an AI client gets, all of them", Args: cobra.NoArgs,
		Long: "Start bailiwick-mcp as a client does, ask it for its tools, and show them. It needs no service.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			tools, err := t.mcpTools(cmd.Context())
			if err != nil {
				return err
			}
			return printList(t, tools, func(m mcpTool) string { return m.Name }, "TOOL\tDOES\tKIND", func(m mcpTool) string {
				return m.Name + "\t" + plain(m.Title) + "\t" + hintText(m.Annotations)
			})
		},
	}
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

// mcpTools asks the server that lies beside this program.
func (t *tree) mcpTools(ctx context.Context) ([]mcpTool, error) {
	const say = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bailiwick","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
`
	path := filepath.Join(t.Beside, mcpProgram)
	child := exec.CommandContext(ctx, path) //nolint:gosec // G204: the program lies beside this one
	child.Stdin, child.Stderr = strings.NewReader(say), t.Stderr
	out, err := child.Output()
	if err != nil {
		return nil, api.Errorf(api.CodeUnavailable, "%s: %w", path, err).WithHint("the programs of one installation lie in one folder")
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

// mcpClient is how one AI client is told of a server.
type mcpClient struct {
	name, file string
	config     func(command []string) (string, error)
	add        string // the command of its own that does the same, before the command to start; empty: it has none
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

// callTime is how many seconds a client has to wait for an answer: the longest
// that a call may wait for something, and some more.
const callTime = 70

func codexConfig(command []string) (string, error) {
	var values []string
	for _, v := range []any{command[0], command[1:]} {
		b, err := json.Marshal(v) // strings and lists of JSON are strings and lists of TOML
		if err != nil {
			return "", err
		}
		values = append(values, string(b))
	}
	return fmt.Sprintf("[mcp_servers.bailiwick]\ncommand = %s\nargs = %s\ntool_timeout_sec = %d\n", values[0], values[1], callTime), nil
}

func opencodeConfig(command []string) (string, error) {
	return jsonText(map[string]any{
		"$schema": "https://opencode.ai/config.json",
		"mcp":     map[string]any{"bailiwick": map[string]any{"type": "local", "command": command, "enabled": true, "timeout": callTime * 1000}},
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

// mcpConfig is what -o json prints.
type mcpConfig struct {
	Client  string   `json:"client"`
	File    string   `json:"file"` // where the configuration goes
	Config  string   `json:"config"`
	Command []string `json:"command"` // that the client starts
}

func (t *tree) mcpConfigCommand() *cobra.Command {
	var name, tokenFile string
	clients := mcpClients()
	var known []string
	for _, c := range clients {
		known = append(known, c.name)
	}
	cmd := &cobra.Command{
		Use: "config", Short: "Print the configuration of an AI client that gives it the tools", Args: cobra.NoArgs,
		Long: `Print what an AI client wants in its configuration file, and on standard error where that is.
Without --principal-token-file the client acts as this account. With a token of its own it has
grants, a ceiling and entries in the log of its own.`,
		Example: "  bailiwick mcp config --client claude-code > .mcp.json\n  bailiwick mcp config --client codex --principal-token-file ~/.config/bailiwick/codex.token >> ~/.codex/config.toml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			i := slices.Index(known, name)
			if i < 0 {
				return api.Errorf(api.CodeInvalid, "--client %q: want one of %s", name, strings.Join(known, ", "))
			}
			if tokenFile == "" && cmd.Flags().Changed("principal-token-file") {
				return api.Errorf(api.CodeInvalid, "--principal-token-file is given and empty: the client would act as this account").WithHint("name the file, or leave it out")
			}
			command, err := t.mcpStart(cmd.Context(), tokenFile)
			if err != nil {
				return err
			}
			return t.printConfig(clients[i], command)
		},
	}
	cmd.Flags().StringVar(&name, "client", "", "the client: "+strings.Join(known, ", "))
	cmd.Flags().StringVar(&tokenFile, "principal-token-file", "", "file with the client's token, which bailiwick token create --out makes")
	return cmd
}

// mcpStart is the command that a client starts. Clients hand on little of their
// environment, so it says where the service is.
func (t *tree) mcpStart(ctx context.Context, tokenFile string) ([]string, error) {
	command := []string{filepath.Join(t.Beside, mcpProgram), "--socket", t.serviceSocket(ctx)}
	if _, err := os.Stat(command[0]); err != nil { // the client would say it, where nobody looks
		return nil, api.Errorf(api.CodeUnavailable, "%s: %w", command[0], err).WithHint("the programs of one installation lie in one folder")
	}
	if tokenFile == "" {
		return command, nil
	}
	path, err := filepath.Abs(tokenFile)
	var info os.FileInfo
	if err == nil {
		info, err = os.Lstat(path)
	}
	switch {
	case err != nil:
		return nil, api.Errorf(api.CodeInvalid, "--principal-token-file: %w", err).WithHint("make one: bailiwick token create PRINCIPAL --out FILE")
	case !info.Mode().IsRegular(): // the server would refuse it, where nobody looks
		return nil, api.Errorf(api.CodeInvalid, "--principal-token-file %s: not a regular file", path).WithHint("name the file itself, no link to it")
	case info.Mode().Perm()&0o077 != 0:
		return nil, api.Errorf(api.CodeInvalid, "--principal-token-file %s: others can read or write it (mode %04o)", path, info.Mode().Perm()).WithHint("chmod 600 %s", path)
	}
	return append(command, "--principal-token-file", path), nil
}

// serviceSocket is where the service listens, or will unless it is told
// otherwise.
func (t *tree) serviceSocket(ctx context.Context) string {
	if t.socket != "" {
		if path, err := filepath.Abs(t.socket); err == nil {
			return path
		}
		return t.socket
	}
	c := t.connThere()
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

func (t *tree) printConfig(c mcpClient, command []string) error {
	config, err := c.config(command)
	if err != nil {
		return err
	}
	switch t.output {
	case "json", "jsonl":
		return t.printJSON(mcpConfig{Client: c.name, File: c.file, Config: config, Command: command})
	case "name":
		return api.Errorf(api.CodeInvalid, "-o name: a configuration has none").WithHint("leave it out, or use -o json")
	}
	fmt.Fprintf(t.Stderr, "This belongs into %s.\n", c.file)
	if c.add != "" {
		fmt.Fprintf(t.Stderr, "Or run: %s %s\n", c.add, shellText(command))
	}
	_, err = fmt.Fprint(t.Stdout, config)
	return err
}

// shellText is a command as a shell reads it.
func shellText(command []string) string {
	var words []string
	for _, word := range command {
		if word == "" || strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@%+,") != "" {
			word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}
