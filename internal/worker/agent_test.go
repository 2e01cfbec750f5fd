package worker

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// proves R-C2
func TestPromptAndInputStayOutOfArguments(t *testing.T) {
	input := []byte(`{"file":"secret-name.go","n":12345678901234567}`)
	l, err := newLaunch("command", api.Subagent{Name: "edit", Command: api.Command{"./edit", "-v"}, System: "be brief", Prompt: "Change {{.file}} {{.n}}"}, input)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(l.argv, []string{"./edit", "-v"}) {
		t.Errorf("argv = %q", l.argv)
	}
	if got := string(l.files["prompt.md"]); got != "Change secret-name.go 12345678901234567" {
		t.Errorf("prompt = %q", got)
	}
	if string(l.files["system.md"]) != "be brief" || !bytes.Equal(l.files["input.json"], input) || !bytes.Equal(l.stdin, input) {
		t.Errorf("files = %q, stdin = %q", l.files, l.stdin)
	}
	if strings.Contains(strings.Join(l.argv, " "), "secret-name") {
		t.Error("the input is in an argument")
	}
}

// No need of a task can replace a file that an adapter puts below inputs/.
func TestAdapterFilesAreReservedInputs(t *testing.T) {
	l, err := newLaunch("command", api.Subagent{Name: "edit", Command: api.Command{"./edit"}, System: "be brief", Prompt: "Change"}, []byte(`{}`))
	if err != nil || len(l.files) != 3 {
		t.Fatalf("%v, %v", l.files, err)
	}
	for name := range l.files {
		if !slices.Contains(api.ReservedInputs(), api.Name(name)) {
			t.Errorf("%s is not reserved", name)
		}
	}
}

func TestPromptTemplateWithMissingMemberFails(t *testing.T) {
	if _, err := renderPrompt("{{.missing}}", []byte(`{}`)); err == nil {
		t.Error("rendered")
	}
	if _, err := renderPrompt("{{", []byte(`{}`)); err == nil {
		t.Error("parsed")
	}
	if _, err := newLaunch("claude-code", api.Subagent{}, nil); err == nil {
		t.Error("an unknown adapter was accepted")
	}
}
