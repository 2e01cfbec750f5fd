package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/template"
)

// maxPrompt bounds a rendered prompt, which a template can make longer than its parts.
const maxPrompt = 4 << 20

// prompts are the texts of one start.
type prompts struct {
	system string // for the program's model, with the part about Bailiwick
	task   []byte // the rendered prompt; without a template the input
}

func render(s Start) (p prompts, err error) {
	p.task = s.Input
	if s.Subagent.Prompt != "" {
		if p.task, err = renderPrompt(s.Subagent.Prompt, s.Input); err != nil {
			return p, err
		}
	}
	p.system = system(s)
	return p, nil
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
	var out bounded
	if err := t.Execute(&out, data); err != nil {
		return nil, fmt.Errorf("prompt template: %w", err)
	}
	return out.Bytes(), nil
}

// bounded refuses more than maxPrompt bytes.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxPrompt {
		return 0, errors.New("the prompt is longer than 4 MiB")
	}
	return b.Buffer.Write(p)
}

// system is the subagent's system prompt, followed by what every agent has to know of
// its jail.
func system(s Start) string {
	var b strings.Builder
	if s.Subagent.System != "" {
		b.WriteString(s.Subagent.System + "\n\n")
	}
	b.WriteString(`# This environment

You work alone in a sandbox: nobody reads along, and nobody can confirm anything. All tools are allowed.

- The work is in /workspace. Your changes there become a patch; do not commit them.
- inputs/ has what you were given, first of all inputs/input.json. It is not part of the patch.
- Put files that are not a change of the source below outputs/.
- The tools of the server bailiwick reach what your role may reach. Each call is decided by policy and logged. A result that begins with "denied" is final; do not look for a way around it.
- If only a person can decide what to do next, ask by the tool ask, or write .bailiwick/question.json, such as {"question": "Which of the two?", "options": ["red", "blue"]}, and end your turn at once. You will be resumed with the answer.
`)
	if len(s.Egress) == 0 {
		b.WriteString("- There is no network, except for your model.\n")
	} else {
		fmt.Fprintf(&b, "- The network reaches only these hosts, through the proxy of the environment: %s. A refusal of another host is final; do not retry it.\n", strings.Join(s.Egress, ", "))
	}
	if len(s.Subagent.Output) > 0 {
		fmt.Fprintf(&b, "- Before you end, write outputs/result.json. It must match this JSON Schema: %s\n", s.Subagent.Output)
	}
	return b.String()
}

// turn is the user's turn that the program starts with.
func (p prompts) turn(s Start) []byte {
	a := s.Answer
	if a == nil {
		return p.task
	}
	var b bytes.Buffer
	if s.Session == nil {
		b.Write(p.task)
		b.WriteString("\n\n---\n\nYou began this task and asked a question. What you had changed by then is in the workspace; outputs/ is empty again.\n\n")
		if len(a.Context) > 0 {
			fmt.Fprintf(&b, "Context that you gave: %s\n\n", a.Context)
		}
		if len(a.State) > 0 {
			fmt.Fprintf(&b, "State that you kept: %s\n\n", a.State)
		}
	}
	fmt.Fprintf(&b, "You asked: %s\n\nThe answer", a.Question)
	if a.Option > 0 {
		fmt.Fprintf(&b, " (option %d)", a.Option)
	}
	fmt.Fprintf(&b, ": %s\n\nResume the task. The sandbox is a new one: /workspace has your changes, outputs/ is empty, and .bailiwick/question.json is gone.\n", a.Answer)
	return b.Bytes()
}
