package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/testkit/scriptmodel"
)

// withAgents makes the world of the guide for agents: a provider with a scripted model,
// whose key the reader has, and an agent program that was installed before, as npm has
// no registry here.
func (w *world) withAgents(t *testing.T) {
	t.Helper()
	n := newInternet(t)
	w.net = n.island
	t.Cleanup(func() { w.net = nil })
	w.downAtEnd() // while the network exists
	key := guideKey
	w.env = append(w.env, "ANTHROPIC_API_KEY="+key)
	n.host("api.anthropic.com", &scriptmodel.Server{Key: key, Script: guideScript()})
	const pkg = "node_modules/@anthropic-ai/claude-code-linux-x64"
	from := filepath.Dir(clientFile(t, "@anthropic-ai/claude-code-linux-x64", "claude"))
	var about struct{ Version string }
	b, err := os.ReadFile(filepath.Join(from, "package.json"))
	must(t, err)
	must(t, json.Unmarshal(b, &about))
	dir := w.path("home/.local/share/bailiwick/agents/claude-code", about.Version)
	must(t, os.MkdirAll(filepath.Join(dir, pkg), 0o755)) //nolint:gosec // workers read it
	must(t, linkOrCopy(filepath.Join(from, "claude"), filepath.Join(dir, pkg, "claude")))
	stamp := fmt.Sprintf(`{"adapter": "claude-code", "version": %q, "integrity": "sha512-of-the-package", "command": [%q]}`, about.Version, pkg+"/claude")
	must(t, errors.Join(os.WriteFile(filepath.Join(dir, "bailiwick-agent.json"), []byte(stamp), 0o644), os.Symlink(about.Version, filepath.Join(filepath.Dir(dir), "current")))) //nolint:gosec // workers read it
}

// guideKey is the key of the scripted model, in the form of a provider's.
const guideKey = "sk-ant-api03-scripted-model-of-the-guide"

// guideScript does what the guide asks for, where the tests need it.
func guideScript() scriptmodel.Script {
	write := func(command, say string) scriptmodel.Script {
		return scriptmodel.Steps(scriptmodel.Shell(command), scriptmodel.Say(say))
	}
	plants := write(`printf '# Plants\n\n- basil\n- mint\n- thyme\n' > PLANTS.md`, "PLANTS.md lists basil, mint and thyme.")
	ask := write(`printf '{"question": "Which herb comes first?", "options": ["basil", "rosemary"]}' > .bailiwick/question.json`, "I asked which herb comes first.")
	herbs := write(`printf '# Herbs\n\n- rosemary\n- basil\n' > HERBS.md`, "HERBS.md begins with rosemary.")
	return scriptmodel.After("Ask which", plants, scriptmodel.After("rosemary", ask, herbs))
}

func linkOrCopy(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	return exec.Command("cp", from, to).Run() //nolint:noctx // short
}
