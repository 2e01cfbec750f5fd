package agent

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// proves R-C2
func TestPromptAndInputAreNotInTheArgumentList(t *testing.T) {
	adapt, err := For("command")
	if err != nil {
		t.Fatal(err)
	}
	input := []byte(`{"file":"secret-name.go","n":12345678901234567}`)
	l, err := adapt(api.Subagent{Name: "edit", Command: api.Command{"./edit", "-v"}, System: "be brief", Prompt: "Change {{.file}} {{.n}}"}, input)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(l.Argv, []string{"./edit", "-v"}) {
		t.Errorf("argv = %q", l.Argv)
	}
	if got := string(l.Files["prompt.md"]); got != "Change secret-name.go 12345678901234567" {
		t.Errorf("prompt = %q", got)
	}
	if string(l.Files["system.md"]) != "be brief" || !bytes.Equal(l.Files["input.json"], input) || !bytes.Equal(l.Stdin, input) {
		t.Errorf("files = %q, stdin = %q", l.Files, l.Stdin)
	}
	if strings.Contains(strings.Join(slices.Concat(l.Argv, l.Env), " "), "secret-name") {
		t.Error("the input is in an argument or a variable")
	}
}

// No need of a task can stand in the way of what an agent is handed: whatever
// an adapter puts below inputs/ is reserved.
func TestWhatAnAdapterPutsBelowInputsIsReserved(t *testing.T) {
	adapt, err := For("command")
	if err != nil {
		t.Fatal(err)
	}
	l, err := adapt(api.Subagent{Name: "edit", Command: api.Command{"./edit"}, System: "be brief", Prompt: "Change"}, []byte(`{}`))
	if err != nil || len(l.Files) != 3 {
		t.Fatalf("%v, %v", l.Files, err)
	}
	for name := range l.Files {
		if !slices.Contains(api.ReservedInputs(), api.Name(name)) {
			t.Errorf("%s is not reserved", name)
		}
	}
}

func TestATemplateThatNamesWhatTheInputLacksIsAnError(t *testing.T) {
	if _, err := Render("{{.missing}}", []byte(`{}`)); err == nil {
		t.Error("rendered")
	}
	if _, err := Render("{{", []byte(`{}`)); err == nil {
		t.Error("parsed")
	}
	if _, err := For("claude-code"); err == nil {
		t.Error("an adapter that is not there was found")
	}
}
