package e2e

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
)

// readable lists the files that an account can read and that have one of values, in plain
// text, in base64 or in hexadecimal: below the machine's directories and the world's, and
// what the kernel tells of every process.
func (w *world) readable(uid int, values ...string) string {
	w.t.Helper()
	pattern := ""
	for _, v := range values {
		for _, f := range []string{v, strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(v)), "="), hex.EncodeToString([]byte(v))} {
			pattern += " -e '[" + f[:1] + "]" + f[1:] + "'" // does not match itself in an argument
		}
	}
	out, _ := w.on.sh(uid, "{ grep -ral"+pattern+" /etc /run /home /var/lib /usr/local "+w.dir+"; grep -al"+pattern+" /proc/[0-9]*/cmdline /proc/[0-9]*/environ; } 2>/dev/null")
	return strings.TrimSpace(out)
}

// A source is fetched by the launcher with a credential: one that an operator encrypted to
// it, and one of its unit. The broker puts a value into a request, and an agent that is given
// one has it. The service, which asks for all of that, can read none of them, and no person
// can: not at rest, not while the worker runs, and not in what is left. Control of each
// sweep: the account finds a planted value, and root finds the agent's.
//
// proves R-S4, R-D8, R-C3, R-S2, R-P5
func TestSecretsOfATeamStayWithTheLauncher(t *testing.T) {
	t.Parallel()
	const brokered, exposed = "value-of-the-api-8822", "value-that-is-shown-8833"
	n := newInternet(t)
	got := make(chan string, 10)
	n.host("api.example.com", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("X-Api-Key")
		_, _ = io.WriteString(w, "you sent "+r.Header.Get("X-Api-Key"))
	}))
	s := newTeamOn(t, n, func(s *team) {
		s.MkdirAll("/run/credentials", 0, 0, 0o700)
		s.Write("/run/credentials/git-unit", gitToken+"\n", 0, 0, 0o400)
	})
	w := s.world(machine.Alice)
	w.repository("hosted/app", map[string]string{"hello": "hello\n"})
	n.gitHost("git.example.com", w.path("hosted"))
	s.Write("/etc/hosts", n.read("hosts"), 0, 0, 0o644)
	commit := w.git("hosted/app", "rev-parse", "HEAD")
	w.manifest(
		subagent{name: "writer", script: "env; echo 'hello, world' > hello"},
		subagent{name: "uses", script: "GATE=" + w.path("gate") + "\n" + `mkdir -p outputs
curl -sS -m 20 -H "X-Api-Key: $HELD" https://api.example.com/ > outputs/answer 2>&1
printf '%s' "${#SHOWN}" > outputs/length
echo "$SHOWN"
echo begun; until ls $GATE | grep -qx open; do sleep 0.05; done`},
	)
	w.replace(manifest, "\nenvs:\n", `
secrets:
  - {name: git, ref: "file:git"}
  - {name: git-unit, ref: "credential:git-unit"}
  - {name: absent, ref: "credential:absent"}
  - {name: variable, ref: "env:GIT_TOKEN"}
  - {name: held, ref: "file:held"}
  - {name: shown, ref: "file:shown"}
envs:
  - name: tokens
    secrets:
      HELD: {secret: held, brokered: {hosts: ["api.example.com:443"], header: X-Api-Key}}
      SHOWN: {secret: shown, exposed: true}
`)
	sources := ""
	for _, name := range []string{"git", "git-unit", "absent", "variable"} {
		sources += fmt.Sprintf("  - {name: of-%s, repo: \"https://git.example.com/app\", user: bot, secret: %s}\n", name, name)
	}
	w.replace(manifest, "\nsources:\n", "\nsources:\n  - {name: public, repo: \"https://git.example.com/app\"}\n"+sources)
	w.replace(manifest, "sources: [repo]", "sources: [repo, public, of-git, of-git-unit, of-absent, of-variable]")
	w.replace(manifest, "envs: [colours]", "envs: [colours, tokens]")
	w.replace(manifest, "mode: guarded}", "mode: guarded, readOnly: ["+w.path("gate")+"]}")
	w.publish("reversible")
	for name, value := range map[string]string{"git": gitToken, "held": brokered, "shown": exposed} {
		if d := w.setSecret(name, value); d.status != 0 {
			t.Fatal(d)
		}
	}

	// The launcher says whether it can read a value, and what an attempt is isolated by. Controls: what it cannot.
	checked := w.try("secret", "check", "-o", "json")
	var list []api.SecretInfo
	must(t, json.Unmarshal([]byte(checked.stdout), &list))
	if checked.status != 1 || len(list) != 6 || strings.Contains(checked.String(), gitToken) || strings.Contains(checked.String(), brokered) || strings.Contains(checked.String(), exposed) {
		t.Errorf("secret check: %s", checked)
	}
	problems := map[api.Name]string{"absent": "no credential absent", "variable": "use file:NAME"}
	for _, secret := range list {
		if want, bad := problems[secret.Name]; !secret.Checked || bad != (secret.Problem != "") || !strings.Contains(secret.Problem, want) {
			t.Errorf("secret check %s: %+v, want a problem with %q", secret.Name, secret, want)
		}
	}
	if st := w.status(); !slices.Contains(st.Isolation, "seccomp") || len(st.IsolationLacks) > 0 && strings.Contains(st.IsolationLacks[0], "unknown") {
		t.Errorf("isolation %q, lacks %q", st.Isolation, st.IsolationLacks)
	}
	if out, err := s.sh(machine.Alice, "bailiwickd doctor"); !strings.Contains(out, "seccomp") || strings.Contains(out, "sudo bailiwickd doctor") {
		t.Errorf("doctor: %v\n%s", err, out)
	}

	for _, source := range []string{"of-git", "of-git-unit"} {
		d := w.dispatch("writer", "--source", source)
		wantEnd(t, d, api.EventFinished, "")
		if d.Source == nil || d.Source.Commit != commit {
			t.Errorf("%s: %+v", source, d.Source)
		}
		wantIn(t, "the patch", w.must("dispatch", "patch", string(d.ID)), "+hello, world")
	}
	for source, words := range map[string][]string{
		"public":      {"fetch https://git.example.com/app", "401 Unauthorized"},
		"of-absent":   {"no credential absent", "LoadCredential="},
		"of-variable": {"env", "bailiwick secret set"},
	} {
		w.refused(1, words, "dispatch", "run", "writer", "--source", source)
	}

	id := w.detached("uses", "--source", "of-git", "--env", "tokens")
	w.awaitLog(id, "begun")
	sweep := func(when string) {
		t.Helper()
		for name, uid := range map[string]int{"service": machine.Service, "alice": machine.Alice, "bob": machine.Bob, "page": machine.Page} {
			if found := w.readable(uid, gitToken, brokered, exposed); found != "" {
				t.Errorf("%s: %s can read a value in %s", when, name, found)
			}
		}
	}
	sweep("while it runs")
	if found := w.readable(machine.Root, exposed); !strings.Contains(found, "/environ") {
		t.Errorf("control: root finds the agent's value in %q", found)
	}
	w.openGate()
	d := w.awaitEnd(id)
	wantEnd(t, d, api.EventFinished, "")
	if key := <-got; key != brokered {
		t.Errorf("the host got %q", key)
	}
	if answer := w.must("dispatch", "outputs", id, "--raw", "answer"); strings.Contains(answer, brokered) || !strings.Contains(answer, "you sent ") {
		t.Errorf("the agent got %q", answer)
	}
	if length := w.must("dispatch", "outputs", id, "--raw", "length"); length != fmt.Sprint(len(exposed)) {
		t.Errorf("the exposed value has %s bytes", length)
	}
	if log := w.must("dispatch", "logs", id); strings.Contains(log, exposed) || !strings.Contains(log, "redacted") {
		t.Errorf("the log: %s", log)
	}
	w.verifyEvidence(id)
	w.write("audit.json", w.must("audit", "list", "-o", "json"), 0o600)
	sweep("afterwards")
	if found := w.readable(machine.Root, gitToken); found != "/run/credentials/git-unit" {
		t.Errorf("control: root finds %q", found)
	}
	for uid, dir := range map[int]string{machine.Service: "/var/lib/bailiwick", machine.Alice: "/home/alice", machine.Bob: "/home/bob"} {
		s.Write(dir+"/planted", "x"+base64.StdEncoding.EncodeToString([]byte(gitToken)), uid, uid, 0o600)
		if found := w.readable(uid, gitToken); found != dir+"/planted" {
			t.Errorf("control: uid %d finds %q", uid, found)
		}
	}
}
