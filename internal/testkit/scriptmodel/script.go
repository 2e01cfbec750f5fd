package scriptmodel

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Steps answers with the script after the n-th, once n calls have results. The last one
// answers all later turns. A turn without tools is a side question, such as one for a
// title.
func Steps(steps ...Script) Script {
	return func(t *Turn) Reply {
		if len(t.Tools) == 0 {
			return Reply{Say: "a side question"}
		}
		return steps[min(len(t.Results()), len(steps)-1)](t)
	}
}

// After answers with then once the user has said a text that contains word, else with
// before. Then sees only the results after that text, so it does not depend on whether
// the client resumed its session or began another one.
func After(word string, before, then Script) Script {
	return func(t *Turn) Reply {
		for i, item := range t.Items {
			if item.Tool == "" && strings.Contains(item.Text, word) {
				rest := *t
				rest.Items = t.Items[i:]
				return then(&rest)
			}
		}
		return before(t)
	}
}

// Say answers with a text.
func Say(text string) Script {
	return func(*Turn) Reply { return Reply{Say: text} }
}

// Echo says the result of the latest call.
func Echo() Script {
	return func(t *Turn) Reply {
		r := Reply{}
		if all := t.Results(); len(all) > 0 {
			r.Say = all[len(all)-1].Text
		}
		return r
	}
}

// Call calls a tool by the end of its name, as clients put prefixes in front.
func Call(name string, args map[string]any) Script {
	return func(t *Turn) Reply {
		for _, tool := range t.Tools {
			if strings.HasSuffix(tool.Name, name) {
				return Reply{Tool: tool.Name, Args: args}
			}
		}
		return missing(t, name)
	}
}

// Shell runs a command through the client's own shell tool.
func Shell(command string) Script {
	return func(t *Turn) Reply {
		for _, shell := range shells() {
			for _, tool := range t.Tools {
				if tool.Name == shell.tool {
					args := shell.args(command)
					fill(tool, args)
					return Reply{Tool: tool.Name, Args: args}
				}
			}
		}
		return missing(t, "shell")
	}
}

// shells lists the shell tools of the clients, best first.
func shells() []struct {
	tool string
	args func(command string) map[string]any
} {
	plain := func(member string) func(string) map[string]any {
		return func(c string) map[string]any { return map[string]any{member: c} }
	}
	return []struct {
		tool string
		args func(command string) map[string]any
	}{
		{"Bash", plain("command")},              // claude-code
		{"bash", plain("command")},              // opencode
		{"run_shell_command", plain("command")}, // gemini
		{"exec_command", plain("cmd")},          // codex
		{"shell_command", plain("command")},     // codex
		{"shell", func(c string) map[string]any { return map[string]any{"command": []string{"bash", "-c", c}} }}, // codex
	}
}

// fill adds a text for each other argument that a tool requires.
func fill(tool Tool, args map[string]any) {
	var schema struct{ Required []string }
	_ = json.Unmarshal(tool.Schema, &schema) // none is required without a schema
	for _, name := range schema.Required {
		if args[name] == nil {
			args[name] = "a step of the script"
		}
	}
}

// missing is the answer if a client does not offer a tool: the test that runs the client
// finds the text in its output.
func missing(t *Turn, name string) Reply {
	var names []string
	for _, tool := range t.Tools {
		names = append(names, tool.Name)
	}
	return Reply{Say: fmt.Sprintf("the client offers no tool %s, only %q", name, names)}
}

// Write writes a file, with its folder, through the client's shell tool.
func Write(path, content string) Script {
	return Shell(fmt.Sprintf("mkdir -p %s && printf %%s %s > %s", quote(filepath.Dir(path)), quote(content), quote(path)))
}

// Ask asks a question as docs/agent-contract.md says.
func Ask(q api.Question) Script {
	return Write(".bailiwick/question.json", string(encoded(q)))
}

// Loop answers each turn with the same script, for ever.
func Loop(s Script) Script {
	return func(t *Turn) Reply {
		if len(t.Tools) == 0 {
			return Reply{Say: "a side question"}
		}
		return s(t)
	}
}

// Fail answers the first times of each conversation with an error status, and with
// retryAfter as that header unless it is empty; then with s.
func Fail(times, status int, retryAfter string, s Script) Script {
	return func(t *Turn) Reply {
		if t.Try < times {
			return Reply{Status: status, RetryAfter: retryAfter}
		}
		return s(t)
	}
}

// Cut breaks the first times of each response off after n bytes of its body.
func Cut(times, n int, s Script) Script {
	return func(t *Turn) Reply {
		r := s(t)
		if t.Try < times {
			r.Cut = n
		}
		return r
	}
}

// Early is Cut for a server that ends the response there as if it were complete.
func Early(times, n int, s Script) Script {
	return func(t *Turn) Reply {
		r := Cut(times, n, s)(t)
		r.Early = r.Cut > 0
		return r
	}
}

// Slow waits before each event.
func Slow(wait time.Duration, s Script) Script {
	return func(t *Turn) Reply {
		r := s(t)
		r.Wait = wait
		return r
	}
}

// Endless says a text that never ends, an event after each wait.
func Endless(wait time.Duration) Script {
	return func(*Turn) Reply { return Reply{Endless: true, Wait: wait} }
}

// quote quotes a word for a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
