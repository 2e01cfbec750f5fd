package cli

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// A client that reads the configuration gets the command word for word, even if
// its words have special characters.
func TestMCPConfigKeepsTheCommand(t *testing.T) {
	command := []string{`/opt/a b/"bailiwick"-mcp`, "--socket", `/run/ü\x/<&>.sock`, "--principal-token-file", "/x'y\n"}
	for _, c := range mcpClients() {
		text, err := c.config(slices.Clone(command))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		switch c.name {
		case "codex":
			got = tomlCommand(t, text)
		case "opencode":
			var v struct {
				MCP map[string]struct {
					Type    string
					Command []string
					Enabled bool
				}
			}
			if err := json.Unmarshal([]byte(text), &v); err != nil || v.MCP["bailiwick"].Type != "local" || !v.MCP["bailiwick"].Enabled {
				t.Errorf("%v: %s", err, text)
			}
			got = v.MCP["bailiwick"].Command
		default:
			var v struct {
				MCPServers map[string]struct {
					Command string
					Args    []string
				}
			}
			if err := json.Unmarshal([]byte(text), &v); err != nil {
				t.Errorf("%s: %v: %s", c.name, err, text)
			}
			s := v.MCPServers["bailiwick"]
			got = append([]string{s.Command}, s.Args...)
		}
		if !slices.Equal(got, command) {
			t.Errorf("%s reads %q of %s", c.name, got, text)
		}
	}
}

// tomlCommand reads the two values as Go strings: TOML has the same escapes.
func tomlCommand(t *testing.T, text string) (command []string) {
	t.Helper()
	lines := strings.Split(text, "\n")
	if len(lines) != 5 || lines[0] != "[mcp_servers.bailiwick]" || !strings.HasPrefix(lines[1], "command = ") || !strings.HasPrefix(lines[2], "args = [") || !strings.HasPrefix(lines[3], "tool_timeout_sec = ") {
		t.Fatalf("the table is %s", text)
	}
	word, err := strconv.Unquote(strings.TrimPrefix(lines[1], "command = "))
	if err != nil {
		t.Fatal(err)
	}
	var args []string
	if err := json.Unmarshal([]byte(strings.TrimPrefix(lines[2], "args = ")), &args); err != nil {
		t.Fatal(err)
	}
	return append([]string{word}, args...)
}

func TestShellTextQuotesTheCommand(t *testing.T) {
	for _, c := range []struct {
		want  string
		words []string
	}{
		{"/a/b --socket /run/x.sock", []string{"/a/b", "--socket", "/run/x.sock"}},
		{`'a b' 'it'\''s' '' '$(x)'`, []string{"a b", "it's", "", "$(x)"}},
	} {
		if got := console.ShellText(c.words...); got != c.want {
			t.Errorf("%q is written %s, want %s", c.words, got, c.want)
		}
	}
}
