package agent

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// content returns a file of a list, and whether it is there.
func content(files []File, path string) (string, bool) {
	for _, f := range files {
		if f.Path == path {
			return string(f.Content), true
		}
	}
	return "", false
}

func starting(agent string) Start {
	s := Start{
		Subagent: api.Subagent{Name: "edit", Agent: agent, Command: api.Command{"./edit", "-v"}, System: "be brief", Prompt: "Change {{.file}} {{.n}}"},
		Input:    []byte(`{"file":"secret-name.go","n":12345678901234567}`),
		Model:    &Model{ModelUse: api.ModelUse{Name: "m", Level: "small", ID: "model-1"}, URL: "http://127.0.0.1:1/model/m", Key: "placeholder"},
	}
	s.Model.API = api.AgentAPIs(agent)[0]
	return s
}

// proves R-C2
func TestPromptInputAndKeyStayOutOfArguments(t *testing.T) {
	for _, name := range Names() {
		s := starting(name)
		a, err := For(name)
		if err != nil {
			t.Fatal(err)
		}
		l, err := a.Launch(s)
		if err != nil {
			t.Fatal(err)
		}
		if args := strings.Join(l.Args, " "); strings.Contains(args, "secret-name") || strings.Contains(args, "brief") || strings.Contains(args, "placeholder") {
			t.Errorf("%s: arguments %q", name, l.Args)
		}
		if got, _ := content(l.Inputs, api.PromptFile); got != "Change secret-name.go 12345678901234567" {
			t.Errorf("%s: prompt %q", name, got)
		}
		if got, _ := content(l.Inputs, api.SystemFile); got != "be brief" {
			t.Errorf("%s: system prompt %q", name, got)
		}
		if got, _ := content(l.Inputs, api.InputFile); got != string(s.Input) {
			t.Errorf("%s: input %q", name, got)
		}
		want := []byte("Change secret-name.go 12345678901234567")
		if name == "command" {
			want = s.Input
		}
		if !bytes.Equal(l.Stdin, want) {
			t.Errorf("%s: standard input %q", name, l.Stdin)
		}
		// No need of a task can replace a file that an adapter puts below inputs/.
		for _, f := range l.Inputs {
			if !slices.Contains(api.ReservedInputs(), api.Name(f.Path)) {
				t.Errorf("%s: %s is not reserved", name, f.Path)
			}
		}
	}
}

// Each program gets the system prompt, the model's id and its URL in files or
// variables.
func TestAdaptersConfigureModelAndSystemPrompt(t *testing.T) {
	for _, name := range Names() {
		s := starting(name)
		s.Subagent.System = "be \"brief\"\n\x7f"
		a, _ := For(name)
		l, err := a.Launch(s)
		if err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for _, f := range l.Home {
			all.Write(f.Content)
		}
		for k, v := range l.Env {
			all.WriteString(k + "=" + v + "\n")
		}
		for _, want := range []string{"model-1", s.Model.URL, "placeholder"} {
			if !strings.Contains(all.String(), want) {
				t.Errorf("%s: no %q in %s", name, want, all.String())
			}
		}
		if name != "command" && (!strings.Contains(all.String(), "brief") || !strings.Contains(all.String(), ".bailiwick/question.json")) {
			t.Errorf("%s: no system prompt in %s", name, all.String())
		}
	}
}

func TestAdaptersRefuseAModelOfAnotherAPI(t *testing.T) {
	for _, name := range []string{"claude-code", "codex", "gemini"} {
		s := starting(name)
		s.Model.API = api.OpenAIChat
		a, _ := For(name)
		if _, err := a.Launch(s); err == nil || !strings.Contains(err.Error(), "speaks") {
			t.Errorf("%s: %v", name, err)
		}
		s.Model = nil
		if _, err := a.Launch(s); err == nil || !strings.Contains(err.Error(), "needs a model") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := For("other"); err == nil || !strings.Contains(err.Error(), "unknown agent") {
		t.Error(err)
	}
	if names := Names(); !slices.Equal(names, api.Agents()) {
		t.Errorf("adapters %q, api.Agents %q", names, api.Agents())
	}
}

func TestPromptTemplateWithMissingMemberFails(t *testing.T) {
	for _, prompt := range []string{"{{.missing}}", "{{", strings.Repeat(`{{printf "%999999d" 1}}`, 5)} {
		if _, err := renderPrompt(prompt, []byte(`{}`)); err == nil {
			t.Errorf("%s: rendered", prompt)
		}
	}
}

// A resumed program gets question and answer as its turn; without its own session it
// gets the task again.
//
// proves R-D6
func TestResumedTurnHasQuestionAndAnswer(t *testing.T) {
	s := starting("codex")
	s.Answer = &record.ResumeInput{Attempt: 1, Question: "Which?", Answer: "blue", Option: 2, State: []byte(`{"step":3}`)}
	a, _ := For("codex")
	l, err := a.Launch(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Change secret-name.go", "Which?", "blue", "option 2", `{"step":3}`} {
		if !strings.Contains(string(l.Stdin), want) {
			t.Errorf("no %q in %s", want, l.Stdin)
		}
	}
	s.Session = &Session{ID: "0-1", Files: []File{{".codex/sessions/x.jsonl", []byte("{}")}}}
	if l, err = a.Launch(s); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(l.Stdin), "Change") || !strings.Contains(string(l.Stdin), "blue") || !slices.Contains(l.Args, "0-1") {
		t.Errorf("%q %s", l.Args, l.Stdin)
	}
	if got, ok := content(l.Home, ".codex/sessions/x.jsonl"); !ok || got != "{}" {
		t.Error("the session is not restored")
	}
}
