package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Setup scripts reach in both jails what the agent reaches, with what it holds, such as
// to install dependencies. The verify command, which runs what the agent wrote, has no
// network and none of the secrets.
//
// proves R-D10, R-S3
func TestVerifyCommandHasNoNetworkAndNoSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.init()
	const reaches = "curl -s http://127.0.0.1:19514/ | grep -q bailiwick"
	w.write("project/capabilities/prepare/setup.sh", "#!/bin/sh\nset -e\ntest -n \"$TOKEN\"\ntest -n \"$BAILIWICK_MODEL_KEY\"\n"+reaches+"\necho prepared\n", 0o755)
	w.write(manifest, fmt.Sprintf(`version: 1
models:
  - {name: local, api: openai-chat, endpoint: "http://127.0.0.1:9", levels: {small: model-1}}
secrets:
  - {name: token, ref: "file:token"}
envs:
  - {name: access, secrets: {TOKEN: {secret: token, exposed: true}}}
capabilities:
  - {name: prepare, from: capabilities/prepare}
subagents:
  - {name: work, agent: command, command: [sh, -c, "%[1]s && echo two >a.txt"], model: local/small, capabilities: [prepare], role: transform, tier: reversible, target: local,
     verify: {command: [sh, -c, "test -z \"$TOKEN$BAILIWICK_MODEL_KEY\" && ! curl -s http://127.0.0.1:19514/ && grep -q two a.txt"]}}
  - {name: control, agent: command, command: [sh, -c, "echo two >a.txt"], model: local/small, capabilities: [prepare], role: transform, tier: reversible, target: local,
     verify: {command: [sh, -c, "%[1]s"]}}
sources:
  - {name: repo, repo: %[2]s}
targets:
  - {name: local, executor: jail, level: full, mode: guarded}
roles: [transform]
grants:
  - {principal: "%[3]s", subagents: [work, control], envs: [access], sources: [repo], targets: [local], ceiling: reversible}
`, reaches, w.path("repo"), w.me()), 0o644)
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.up()
	if d := w.setSecret("token", "a-token-of-a-test"); d.status != 0 {
		t.Fatalf("secret set: %s", d)
	}
	d := w.dispatch("work", "--source", "repo", "--env", "access")
	wantEnd(t, d, api.EventFinished, "")
	if log := w.must("dispatch", "logs", string(d.ID)); strings.Count(log, "prepared") < 1 {
		t.Errorf("log: %s", log)
	}
	wantEnd(t, w.dispatch("control", "--source", "repo", "--env", "access"), api.EventFailed, api.ReasonVerify)
}
