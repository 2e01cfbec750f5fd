package e2e

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"filippo.io/age"
	"filippo.io/age/armor"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
)

// lockKey encrypts a key of a person with phrase, as init does with a passphrase that is typed.
func (s *team) lockKey(path string, uid int) {
	s.t.Helper()
	plain, err := os.ReadFile(s.Path(path))
	must(s.t, err)
	to, err := age.NewScryptRecipient(phrase)
	must(s.t, err)
	to.SetWorkFactor(10)
	var out bytes.Buffer
	armored := armor.NewWriter(&out)
	in, err := age.Encrypt(armored, to)
	must(s.t, err)
	_, err = in.Write(plain)
	must(s.t, err)
	must(s.t, in.Close())
	must(s.t, armored.Close())
	s.Write(path, out.String(), uid, uid, 0o600)
}

// silent executes a command of the world without a terminal and with the passphrase on its
// input, as a program of the account can.
func (w *world) silent(args ...string) done {
	w.t.Helper()
	cmd := w.command(bin+"/bailiwick", args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(strings.Repeat(phrase+"\n", 3)), &out, &errs
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true
	err := cmd.Run()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		w.t.Fatal(err)
	}
	return done{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// An AI has the shell of a person, of alice and of bob, who are deployer, operators and voters, and whose keys have a
// passphrase. While nobody types it, the AI starts and reads what the account may, and
// nothing else. Controls: the same command with the passphrase typed.
//
// takeover system, MCP program; a person's account: no define, widen, replay, approve, read a secret, read work, rewrite the log, forge evidence
// takeover system, MCP program; a person's account: yes start
//
// proves R-B5, R-B9, R-P1, R-S2
func TestAnAIWithAPersonsShellDecidesNothing(t *testing.T) {
	t.Parallel()
	s := newTeam(t, func(s *team) {
		s.Write("/etc/bailiwick/service.yaml", "version: 1\norchestrator: {}\n", 0, 0, 0o644)
	})
	w, bob := s.world(machine.Alice), s.world(machine.Bob)
	const value = "correct-horse-battery-staple"
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.manifest(
		subagent{name: "work", script: "mkdir -p outputs; echo ran > outputs/o"},
		subagent{name: "above", script: "echo above", tier: "stateful"},
		subagent{name: "writer", script: "mkdir -p outputs; echo shipped > outputs/o", more: "    effect: write\n"},
	)
	w.replace(manifest, "envs:\n", "secrets:\n  - {name: token, ref: \"file:token\"}\nenvs:\n  - {name: tokens, secrets: {TOKEN: {secret: token, exposed: true}}, egress: [\"api.example.com:443\"]}\n")
	w.replace(manifest, "principal: \""+w.me()+"\",", "principal: \""+w.me()+"\", writes: {by: [\"local:bob\"]},")
	w.publish("reversible")
	if d := w.setSecret("token", value); d.status != 0 {
		t.Fatal(d)
	}
	early := w.dispatch("work")
	wantEnd(t, early, api.EventFinished, "")
	if d := bob.try("dispatch", "outputs", string(early.ID), "o"); d.status == 0 { // as an operator bob may
		t.Errorf("bob reads alice's: %s", d)
	}
	s.ok(machine.Root, "cp /home/bob/.config/bailiwick/operator.key.pub "+w.path("tmp/bob.pub")+" && chmod a+r "+w.path("tmp/bob.pub"))
	w.must("operators", "add", w.path("tmp/bob.pub"), "--principal", "local:bob")
	s.ok(machine.Alice, "cp -r /var/lib/bailiwick-catalog/catalog ~/older")
	script := func(says string) {
		w.write("project/capabilities/work/work.sh", "#!/bin/bash\nmkdir -p outputs; echo "+says+" > outputs/o\n", 0o755)
	}
	script("ran again")
	w.must("catalog", "apply", "-f", w.path(manifest))
	for path, uid := range map[string]int{"/home/alice/.config/bailiwick/operator.key": machine.Alice, "/home/alice/.config/bailiwick/deploy.key": machine.Alice, "/home/bob/.config/bailiwick/operator.key": machine.Bob} {
		s.lockKey(path, uid)
	}
	undecided := func(of *world, args ...string) {
		t.Helper()
		if d := of.silent(args...); d.status != 4 || !strings.Contains(d.stderr, "no terminal to ask for a passphrase on") {
			t.Errorf("%s: %s", strings.Join(args, " "), d)
		}
	}

	w.must("operator", "keygen", "--insecure-unencrypted", "--key", w.path("tmp/eve"))
	t.Log("define, and widen")
	script("planted")
	undecided(w, "catalog", "apply", "-f", w.path(manifest))
	decisions := len(w.entries("--kind", "operator.recorded"))
	for _, args := range [][]string{
		{"ceiling", "set", w.me(), "irreversible"},
		{"principal", "add", "human:eve"},
		{"operators", "add", w.path("tmp/eve.pub"), "--principal", "human:eve"},
		{"secret", "set", "token"},
		{"secret", "remove", "token"},
	} {
		undecided(w, args...)
	}
	if n := len(w.entries("--kind", "operator.recorded")); n != decisions {
		t.Errorf("%d decisions, %d before", n, decisions)
	}

	t.Log("start: what its grants have, below its ceiling, and once")
	first := w.dispatch("work", "--id", "once")
	wantEnd(t, first, api.EventFinished, "")
	w.refused(3, []string{"has the ceiling reversible"}, "dispatch", "run", "above")
	if d := bob.try("dispatch", "run", "work"); d.status != 3 {
		t.Errorf("bob, who has no grant: %s", d)
	}

	t.Log("replay: a request is not made twice, and an older catalog is refused")
	if again := w.dispatch("work", "--id", "once"); again.Manifest != first.Manifest {
		t.Errorf("a second dispatch: %+v", again)
	}
	s.ok(machine.Alice, "mv /var/lib/bailiwick-catalog/catalog ~/newer && cp -r ~/older /var/lib/bailiwick-catalog/catalog")
	if d := w.try("dispatch", "run", "work"); d.status == 0 || !strings.Contains(d.stderr, "is older than") {
		t.Errorf("an older catalog: %s", d)
	}
	s.ok(machine.Alice, "rm -rf /var/lib/bailiwick-catalog/catalog && mv ~/newer /var/lib/bailiwick-catalog/catalog")
	wantEnd(t, w.dispatch("work"), api.EventFinished, "") // control

	t.Log("approve: until the passphrase is typed")
	run := w.submitted("write", "  - {id: ship, subagent: writer}\n")
	id := w.awaitAsked(run, "ship")
	undecided(bob, "approval", "approve", id)
	if d := w.silent("approval", "approve", id); d.status == 0 {
		t.Errorf("alice, who submitted: %s", d)
	}
	if n := w.admitted("writer"); n != 0 {
		t.Errorf("%d writes", n)
	}
	if d, _ := bob.terminal("wrong horse battery", "approval", "approve", id); d.status != 4 {
		t.Errorf("a wrong passphrase: %s", d)
	}
	if d, seen := bob.terminal(phrase, "approval", "approve", id); d.status != 0 {
		t.Errorf("control: typed: %s\n%s", d, seen)
	}
	wantStates(t, w.awaitSettled(run), "done; ship done")

	t.Log("read a secret, and work of others")
	for uid, person := range map[int]*world{machine.Alice: w, machine.Bob: bob} {
		for _, script := range []string{
			"cat /var/lib/bailiwick-launch/identity", "cat /var/lib/bailiwick/secrets/*", "cat /var/lib/bailiwick/service.key", "cat /proc/" + strconv.Itoa(s.launcher.cmd.Process.Pid) + "/environ",
			"echo x >> /var/lib/bailiwick/store/x", "rm -r /var/lib/bailiwick/log", "touch /var/lib/bailiwick/blobs/x",
		} {
			if out, err := s.sh(uid, script); err == nil {
				t.Errorf("uid %d: %s: %s", uid, script, out)
			}
		}
		if d := person.try("secret", "list"); strings.Contains(d.stdout, value) {
			t.Errorf("%s", d)
		}
	}
	if got := w.must("dispatch", "outputs", string(first.ID), "o"); got != "ran again\n" { // control
		t.Errorf("%q", got)
	}
}

// An AI client speaks to bailiwick-mcp of an account. It starts what the account's grants
// have, below its ceiling, and decides nothing. Controls: the dispatch that it may make, and
// the value of the secret in root's hand.
//
// takeover system, AI client: no define, widen, replay, approve, read a secret
// takeover system, AI client: yes start
//
// proves R-B1, R-B3, R-S2
func TestAnAIClientOfATeamDecidesNothing(t *testing.T) {
	t.Parallel()
	s := newTeam(t, func(s *team) {
		s.Write("/etc/bailiwick/service.yaml", "version: 1\norchestrator: {}\n", 0, 0, 0o644)
	})
	w := s.world(machine.Alice)
	const value = "correct-horse-battery-staple"
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.manifest(
		subagent{name: "work", script: "echo ran"},
		subagent{name: "above", script: "echo above", tier: "stateful"},
		subagent{name: "writer", script: "echo shipped", more: "    effect: write\n"},
	)
	w.replace(manifest, "envs:\n", "secrets:\n  - {name: token, ref: \"file:token\"}\nenvs:\n  - {name: tokens, secrets: {TOKEN: {secret: token, exposed: true}}, egress: [\"api.example.com:443\"]}\n")
	w.replace(manifest, "envs: [colours]", "envs: [colours, tokens]")
	w.replace(manifest, "principal: \""+w.me()+"\",", "principal: \""+w.me()+"\", writes: {by: [\"local:bob\"]},")
	w.publish("reversible")
	if d := w.setSecret("token", value); d.status != 0 {
		t.Fatal(d)
	}
	run := w.submitted("write", "  - {id: ship, subagent: writer}\n")
	id := w.awaitAsked(run, "ship")
	ai := w.mcp(mcpNovember)
	var all []string
	for _, tool := range ai.tools() {
		all = append(all, tool.Name)
	}
	if !slices.Equal(all, nineTools()) {
		t.Fatalf("tools %q", all)
	}
	decisions := len(w.entries("--kind", "operator.recorded"))
	for _, name := range []string{"bailiwick_catalog_apply", "bailiwick_approve", "bailiwick_ceiling_set", "bailiwick_secret_get"} {
		if m := ai.request("tools/call", map[string]any{"name": name, "arguments": members{"approval": id}}); m.Error == nil {
			t.Errorf("%s: %s", name, m.Result)
		}
	}
	for field, v := range map[string]any{
		"command": []string{"sh"}, "image": "mine", "files": members{}, "capabilities": []string{"mine"}, "role": "quality", // define
		"ceiling": "irreversible", "tier": "irreversible", "limits": members{}, "secrets": members{"A": "b"}, "principal": "local:root", "mode": "open", // widen
		"approved": true, "approval": id, "votes": []string{"local:bob"}, // approve
	} {
		if r := ai.call("bailiwick_dispatch", members{"subagent": "work", field: v}); !r.IsError {
			t.Errorf("%s: %+v", field, r)
		}
	}
	ai.refused(api.CodeDenied, []string{"ceiling"}, "bailiwick_dispatch", members{"subagent": "above"})
	if r := ai.call("bailiwick_dispatch", members{"subagent": "writer"}); !r.IsError {
		t.Errorf("what writes, without people: %+v", r)
	}
	var d mcpStanding
	for range 2 { // the second is the same request
		ai.ok("bailiwick_dispatch", members{"subagent": "work", "dispatchId": "once", "env": []string{"tokens"}}, &d)
	}
	w.awaitEnd("once")
	if n := len(w.entries("--kind", "dispatch.started", "--dispatch", "once")); n != 1 {
		t.Errorf("it was started %d times", n)
	}
	for _, name := range nineTools() {
		r := ai.call(name, members{})
		if strings.Contains(strings.ToLower(r.text()), value) {
			t.Errorf("%s tells the value", name)
		}
	}
	if n := len(w.entries("--kind", "operator.recorded")); n != decisions {
		t.Errorf("%d decisions, %d before", n, decisions)
	}
	if n := w.admitted("writer"); n != 0 {
		t.Errorf("%d writes", n)
	}
}
