package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// The verify command sees the base and the patch, and nothing else that the agent
// left. Control: it sees the content of the patch.
//
// proves R-D10
func TestVerifyCommandSeesOnlyThePatchOfTheAgent(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := newWorld(t, uid)
		w.repository("repo", map[string]string{"a.txt": "one\n", ".gitignore": "cache/\n"})
		w.catalog(subagent{name: "cheat", script: `
touch "$HOME/left" /tmp/left /dev/shm/left
mkdir -p cache outputs .bailiwick
touch cache/left outputs/left .bailiwick/left inputs/left
echo 'exit 0' > judge.sh
chmod +x judge.sh
echo two > a.txt
(setsid sleep 5673 &)
`, more: `    verify:
      command: [bash, -c, "find / -name left -not -path '/proc/*' 2>/dev/null; ls judge.sh; cat a.txt; ls /proc | grep -c '^[0-9]'; test -z \"$(find / -name left -not -path '/proc/*' 2>/dev/null)\""]
`})
		w.up()
		d := w.dispatch("cheat", "--source", "repo")
		wantEnd(t, d, api.EventFinished, "")
		log := w.must("dispatch", "logs", string(d.ID))
		if !strings.HasPrefix(log, "verify| judge.sh\nverify| two\n") {
			t.Errorf("the verify command saw more than base and patch:\n%s", log)
		}
	})
}

// proves R-D9
func TestTheAgentsEnvironmentIsDefaultDeny(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := newWorld(t, uid)
		w.repository("repo", map[string]string{"a.txt": "one\n"})
		w.catalog(subagent{name: "look", script: `env -0 | tr '\0' '\n' | sort; echo --; ls /proc/self/fd | wc -l; cat /proc/*/environ | tr '\0' '\n' | grep -c PLANTED`})
		w.env = append(w.env, "PLANTED_SECRET=hunter2")
		w.up()
		// Control: the service itself has the variable.
		var status api.ServiceStatus
		decode(t, w.must("status", "-o", "json"), &status)
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", status.PID)); err != nil || !strings.Contains(string(b), "PLANTED_SECRET=hunter2") {
			t.Fatalf("the service does not have the planted variable: %v", err)
		}
		d := w.dispatch("look", "--source", "repo", "--env", "colours")
		names := map[string]bool{}
		env, rest, _ := strings.Cut(w.must("dispatch", "logs", string(d.ID)), "--\n")
		for line := range strings.Lines(env) {
			name, _, _ := strings.Cut(line, "=")
			names[name] = true
		}
		for _, want := range []string{"PATH", "HOME", "USER", "LANG", "TMPDIR", "BAILIWICK_DISPATCH", "TRACEPARENT", "COLOUR", "BAILIWICK_MCP_URL"} {
			if !names[want] {
				t.Errorf("%s is missing", want)
			}
			delete(names, want)
		}
		for _, shell := range []string{"PWD", "SHLVL", "_"} { // bash sets these itself
			delete(names, shell)
		}
		if len(names) > 0 {
			t.Errorf("the agent also finds %v", names)
		}
		if lines := strings.Fields(rest); len(lines) != 2 || lines[0] != "4" || lines[1] != "0" {
			t.Errorf("descriptors (with the one that lists them) and environments with the planted variable: %q, want 4 and 0", lines)
		}
	})
}
