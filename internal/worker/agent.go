package worker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"text/template"

	"github.com/bailiwick-dev/bailiwick/api"
)

// launch is how to start an agent. Prompt and input reach it in files and on
// standard input, never in an argument list, where every process of the jail
// could read them (R-C2).
type launch struct {
	argv  []string
	stdin []byte
	files map[string][]byte // below inputs/
}

// newLaunch returns the launch of a subagent with its canonical input. The
// adapter "command" runs any program: the input is JSON on standard input and
// at inputs/input.json, the system prompt at inputs/system.md and the rendered
// prompt at inputs/prompt.md.
func newLaunch(adapter string, sub api.Subagent, input []byte) (launch, error) {
	if adapter != "command" {
		return launch{}, fmt.Errorf("unknown agent adapter %q: this version supports only \"command\"", adapter)
	}
	if len(sub.Command) == 0 {
		return launch{}, fmt.Errorf("subagent %q: the command adapter needs a command", sub.Name)
	}
	l := launch{argv: slices.Clone(sub.Command), stdin: input, files: map[string][]byte{api.InputFile: input}}
	if sub.System != "" {
		l.files[api.SystemFile] = []byte(sub.System)
	}
	if sub.Prompt != "" {
		text, err := renderPrompt(sub.Prompt, input)
		if err != nil {
			return launch{}, fmt.Errorf("subagent %q: %w", sub.Name, err)
		}
		l.files[api.PromptFile] = text
	}
	return l, nil
}

// renderPrompt fills a prompt template with the members of the input. A
// template that names a missing member is an error.
func renderPrompt(prompt string, input []byte) ([]byte, error) {
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
