// Package agent knows how an agent program is started and what it is handed.
//
// An adapter is data plus a little code: it turns a subagent and an input into
// a Launch. It starts nothing itself. Prompt and input reach the agent in
// files and on standard input, never in an argument list, where every process
// of the jail could read them (R-C2).
package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"text/template"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Launch is how to start an agent.
type Launch struct {
	Argv  []string
	Env   []string          // added to the jail's own
	Stdin []byte            //
	Files map[string][]byte // below inputs/
}

// Adapter makes a Launch of a subagent and its canonical input.
type Adapter func(sub api.Subagent, input []byte) (Launch, error)

// For returns the adapter of that name.
func For(name string) (Adapter, error) {
	if name == "command" {
		return command, nil
	}
	return nil, fmt.Errorf("agent %q: this version knows the adapter command only", name)
}

// command runs any program: the input is JSON on standard input and at
// inputs/input.json, the system prompt at inputs/system.md and the rendered
// prompt at inputs/prompt.md.
func command(sub api.Subagent, input []byte) (Launch, error) {
	if len(sub.Command) == 0 {
		return Launch{}, fmt.Errorf("subagent %q: the command adapter needs a command", sub.Name)
	}
	l := Launch{Argv: slices.Clone(sub.Command), Stdin: input, Files: map[string][]byte{api.InputFile: input}}
	if sub.System != "" {
		l.Files[api.SystemFile] = []byte(sub.System)
	}
	if sub.Prompt != "" {
		text, err := Render(sub.Prompt, input)
		if err != nil {
			return Launch{}, fmt.Errorf("subagent %q: %w", sub.Name, err)
		}
		l.Files[api.PromptFile] = text
	}
	return l, nil
}

// Render fills a prompt template with the members of the input. A template
// that names a member which the input lacks is an error.
func Render(prompt string, input []byte) ([]byte, error) {
	t, err := template.New("prompt").Option("missingkey=error").Parse(prompt)
	if err != nil {
		return nil, fmt.Errorf("prompt template: %w", err)
	}
	var data map[string]any
	dec := json.NewDecoder(bytes.NewReader(input))
	dec.UseNumber()
	if err := dec.Decode(&data); err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, data); err != nil {
		return nil, fmt.Errorf("prompt template: %w", err)
	}
	return out.Bytes(), nil
}
