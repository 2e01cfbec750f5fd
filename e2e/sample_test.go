package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// The first sample greets the name that it is given, in any script and with any
// punctuation, and its verify command compares the greeting with the input. Control: a
// worker that greets another name is red.
func TestTheSampleGreetsTheNameOfItsInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.downAtEnd()
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	sample := func(edit func()) {
		t.Helper()
		if edit != nil {
			edit()
		}
		w.must("catalog", "apply", "-f", w.path("repo/bailiwick.yaml"))
	}
	w.must("init", w.path("repo"), "--insecure-unencrypted")
	sample(nil)
	w.consent(w.me(), "reversible")
	for i, name := range []string{"Jürgen", "日本語", `Ann "the \ first" $HOME`, "world"} {
		d := w.dispatch("greet", "--source", "here", "--set", "name="+name, "--id", fmt.Sprintf("greet-%d", i))
		wantEnd(t, d, api.EventFinished, "")
		if patch := w.must("dispatch", "patch", string(d.ID)); !strings.Contains(patch, "\n+Hello, "+name+"!\n") {
			t.Errorf("%s: %s", name, patch)
		}
	}
	script := w.path("repo", "capabilities/greeting/greet.sh")
	sample(func() { must(t, os.WriteFile(script, []byte("#!/bin/sh\necho 'Hello, world!' >GREETING.md\n"), 0o755)) }) //nolint:gosec // G306: a program
	wantEnd(t, w.dispatch("greet", "--source", "here", "--set", "name=Jürgen"), api.EventFailed, api.ReasonVerify)
}
