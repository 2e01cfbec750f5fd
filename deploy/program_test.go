package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A ./FILE that could not start is refused at its place, rather than when an agent needs
// it: of a server, of a declared command, of a subagent and of its verify command. Controls:
// the same file when it is executable, and one that can come from a source.
func TestAProgramThatCannotStartIsRefused(t *testing.T) {
	const manifest = `version: 1
project: manifest
capabilities:
  - {name: tools, from: caps/tools}
tools:
  - command: ticket
    description: Files a ticket.
    run: [./RUN]
    capability: tools
    input: {type: object}
    roles: [quality]
    tier: reversible
roles: [quality]
subagents:
  - {name: checker, agent: command, command: [./COMMAND], verify: {command: [./VERIFY]}, role: quality, tier: reversible, capabilities: [tools], target: local}
targets:
  - {name: local, executor: jail, level: full, mode: guarded}
sources:
  - {name: app, repo: .}
grants:
  - {principal: "agent:claude", subagents: [checker], targets: [local]GRANT}
`
	for name, c := range map[string]struct{ run, command, verify, grant, want string }{
		"all executable":             {"fix.sh", "fix.sh", "fix.sh", "", ""},
		"not executable, of a tool":  {"plain.sh", "fix.sh", "fix.sh", "", "tool/ticket: run: ./plain.sh of capability tools is not executable: chmod +x it"},
		"missing, of a tool":         {"none.sh", "fix.sh", "fix.sh", "", "tool/ticket: run: no file ./none.sh in the capabilities [tools]"},
		"not executable":             {"fix.sh", "plain.sh", "fix.sh", "", "subagent/checker: command: ./plain.sh of capability tools is not executable"},
		"missing":                    {"fix.sh", "none.sh", "fix.sh", "", "subagent/checker: command: no file ./none.sh in the capabilities [tools]"},
		"of a source":                {"fix.sh", "none.sh", "fix.sh", ", sources: [app]", ""},
		"verify, not executable":     {"fix.sh", "fix.sh", "plain.sh", "", "subagent/checker: verify: ./plain.sh of capability tools is not executable"},
		"verify that the agent made": {"fix.sh", "fix.sh", "made.sh", "", ""},
	} {
		f := newFixture(t, 1, 1)
		f.write("caps/tools/plain.sh", "#!/bin/sh\n")
		f.write("bailiwick.yaml", strings.NewReplacer("RUN", c.run, "COMMAND", c.command, "VERIFY", c.verify, "GRANT", c.grant).Replace(manifest))
		if err := os.MkdirAll(filepath.Join(f.dir, ".git"), 0o700); err != nil {
			t.Fatal(err)
		}
		m, err := f.load()
		if err == nil {
			_, err = f.open().Plan(t.Context(), m, Options{SourcesElsewhere: true})
		}
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
