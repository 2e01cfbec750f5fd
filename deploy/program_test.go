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

// A verify command that runs files which its patch may change is noted, and patterns of
// protected files are checked. Controls: the check comes from a capability, its files are
// protected, or the command only reads files.
func TestAVerifyThatAPatchMayChangeIsNoted(t *testing.T) {
	const manifest = `version: 1
project: manifest
capabilities:
  - {name: tools, from: caps/tools}
roles: [quality]
subagents:
  - {name: checker, agent: command, command: [./fix.sh], verify: {VERIFY}, role: quality, tier: reversible, capabilities: [tools], target: local}
targets:
  - {name: local, executor: jail, level: full, mode: guarded}
sources:
  - {name: app, repo: .}
grants:
  - {principal: "agent:claude", subagents: [checker], targets: [local], sources: [app]}
`
	for name, c := range map[string]struct{ verify, note, refused string }{
		"a file of the source":    {"command: [./check.sh]", "subagent/checker: verify runs check.sh, which a patch may change; list the files of the check in verify.protects, or have them come from a capability", ""},
		"of an interpreter":       {"command: [sh, -c, 'cd ci && sh prüfung.sh']", "verify runs ci/prüfung.sh, prüfung.sh, which a patch may change", ""},
		"a runner":                {"command: [go, test, ./...]", "verify runs go, which does what files of the source say, and a patch may change those", ""},
		"protected":               {"command: [./check.sh], protects: [check.sh, 'tests/**']", "", ""},
		"of a capability":         {"command: [./fix.sh]", "", ""},
		"read":                    {"command: [test, -s, one.txt]", "", ""},
		"a pattern out of it":     {"command: [make], protects: [../Makefile]", "", `verify.protects[0]: pattern "../Makefile": want a path below the top of the source`},
		"a pattern that is wrong": {"command: [make], protects: [a, 'x**']", "", `verify.protects[1]: pattern "x**": ** stands alone`},
		"no list":                 {"command: [make], protects: Makefile", "", "verify.protects"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1, 1)
			f.write("bailiwick.yaml", strings.ReplaceAll(manifest, "VERIFY", c.verify))
			if err := os.MkdirAll(filepath.Join(f.dir, ".git"), 0o700); err != nil {
				t.Fatal(err)
			}
			m, err := f.load()
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("%v, want %q", err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			p, err := f.open().Plan(t.Context(), m, Options{SourcesElsewhere: true})
			if err != nil {
				t.Fatal(err)
			}
			if notes := strings.Join(p.Notes, "\n"); !strings.Contains(notes, c.note) || c.note == "" && strings.Contains(notes, "verify") {
				t.Errorf("notes %q, want %q", notes, c.note)
			}
		})
	}
	f := newFixture(t, 1, 1)
	f.edit("[go, test, ./...], timeout: 10m", "[go, test, ./...], protects: ['**/*_test.go', go.mod]")
	f.apply(f.signers[0])
	f.edit("protects: ['**/*_test.go', go.mod]", "protects: [go.mod, go.sum]")
	p := f.plan(Options{SourcesElsewhere: true})
	if len(p.Widens) != 1 || p.Widens[0].What != `verify no longer protects "**/*_test.go"` {
		t.Errorf("widens %+v", p.Widens)
	}
}
