package e2e

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
	"github.com/bailiwick-dev/bailiwick/internal/worker/launch"
	"github.com/bailiwick-dev/bailiwick/packaging"
)

// installed gives the machine what bailiwick-deploy needs of its package.
func (s *team) installed() {
	s.t.Helper()
	for _, kind := range []string{"sysusers", "tmpfiles"} {
		b, err := packaging.Systemd.ReadFile("systemd/" + kind + ".conf")
		must(s.t, err)
		s.MkdirAll("/etc/"+kind+".d", 0, 0, 0o755)
		s.Write("/etc/"+kind+".d/bailiwick.conf", string(b), 0, 0, 0o644)
	}
	s.Write("/etc/shadow", "", 0, 0, 0o600)
	s.Write("/etc/gshadow", "", 0, 0, 0o600)
}

// administrator lets alice use sudo, in the commands of asAdministrator.
func (s *team) administrator() {
	s.t.Helper()
	s.Write("/etc/sudoers", "root ALL=(ALL) NOPASSWD: ALL\nalice ALL=(ALL) NOPASSWD: ALL\n", 0, 0, 0o440)
	s.MkdirAll("/etc/pam.d", 0, 0, 0o755)
	s.Write("/etc/pam.d/sudo", "auth required pam_permit.so\naccount required pam_permit.so\nsession required pam_permit.so\n", 0, 0, 0o644)
}

func (s *team) asAdministrator(script string) (string, error) {
	s.t.Helper()
	return s.Run(machine.Root, "timeout", "60", "setpriv", "--reuid", "64311", "--regid", "64311", "--init-groups", "--",
		"env", "HOME=/home/alice", "NO_COLOR=1", "PATH="+bin+":/usr/bin:/bin", "/bin/sh", "-c", script)
}

// refusesToStart fails the test unless the service exits with words.
func (s *team) refusesToStart(words ...string) {
	s.t.Helper()
	out, err := s.sh(machine.Service, "bailiwickd serve --system")
	if err == nil || strings.Contains(out, "listening on") {
		s.t.Fatalf("the service starts: %s", out)
	}
	wantIn(s.t, "the refusal", out, words...)
}

// A backup is restored after more work. The older state does not start while the anchor has
// more, until two people sign the loss, each under an account and with a key of their own; one
// of them is not enough. Then it starts, says the loss in status, log and what an auditor
// verifies, and works. The launcher's marks stayed: what it started after the backup is not
// started again for a service that forgot it. Controls: the state before the restore starts,
// and a new dispatch of the restored one ends.
//
// proves R-P8, R-A6
func TestARestoredStateOfATeamStartsOnceItsLossIsSigned(t *testing.T) {
	t.Parallel()
	s := newTeam(t)
	s.installed()
	s.administrator()
	lie := s.between()
	w, bob := s.world(machine.Alice), s.world(machine.Bob)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.manifest(subagent{name: "edit", script: "echo two >> a.txt"})
	w.publish("reversible")
	s.ok(machine.Root, "cp /home/bob/.config/bailiwick/operator.key.pub "+w.path("tmp/bob.pub")+" && chmod a+r "+w.path("tmp/bob.pub"))
	w.must("operators", "add", w.path("tmp/bob.pub"), "--principal", "local:bob", "--threshold", "2")
	before := w.dispatch("edit", "--source", "repo")
	wantEnd(t, before, api.EventFinished, "")

	root := func(args ...string) string {
		t.Helper()
		return s.ok(machine.Root, "bailiwick-deploy "+strings.Join(args, " "))
	}
	if out, err := s.sh(machine.Root, "bailiwick-deploy backup /home/one.tar.gz"); err == nil {
		t.Errorf("a backup beside a service that systemd cannot stop: %s", out)
	}
	s.service.end()
	root("backup", "/home/one.tar.gz")
	s.startService() // control

	var replay launch.Request // of what is started after the backup
	lie.set(func(r *launch.Request) {
		if r.Kind == launch.KindWorker {
			replay = *r
		}
	})
	after := w.dispatch("edit", "--source", "repo")
	lie.set(nil)
	wantEnd(t, after, api.EventFinished, "")
	if replay.Manifest == nil {
		t.Fatal("control: the launcher was asked for no worker")
	}
	s.service.end()
	wantIn(t, "restore", root("restore", "/home/one.tar.gz"), "the state that was there is /var/lib/bailiwick.before-", "/var/lib/bailiwick-launch stays as it is", "bailiwick anchor lost")
	s.refusesToStart("holds a checkpoint of ", "restored from an older copy", "bailiwick anchor lost local")

	if out, err := s.sh(machine.Bob, "bailiwick anchor lost local"); err == nil {
		t.Errorf("without the right to read the state: %s", out)
	}
	out, err := s.asAdministrator("bailiwick anchor lost local")
	if err == nil {
		t.Fatalf("one of two people names the anchor as lost: %s", out)
	}
	wantIn(t, "one of two", out, "1 of 2")
	loss, both := w.path("tmp/loss"), filepath.Join("/home/bob", "loss")
	if out, err := s.asAdministrator("bailiwick anchor lost local --reason 'the disk failed' --out " + loss); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := s.asAdministrator("bailiwick anchor lost local --with " + loss); err == nil || !strings.Contains(out, "1 of 2") {
		t.Errorf("one person twice: %v\n%s", err, out)
	}
	if out, err := s.sh(machine.Bob, "bailiwick anchor lost other --with "+loss+" --out "+both); err == nil || !strings.Contains(out, "not about the anchor") {
		t.Errorf("another anchor: %v\n%s", err, out)
	}
	s.refusesToStart("bailiwick anchor lost local")
	s.ok(machine.Bob, "bailiwick anchor lost local --with "+loss+" --out "+both)
	s.ok(machine.Root, "cp "+both+" "+loss+".both && chmod a+r "+loss+".both")
	if out, err := s.asAdministrator("bailiwick anchor lost local --with " + loss + ".both"); err != nil || !strings.Contains(out, "anchor local is named as lost") {
		t.Fatalf("%v\n%s", err, out)
	}
	s.startService()
	wantIn(t, "status", w.must("status"), "LOST since ")
	wantIn(t, "the log", w.must("audit", "list", "--kind", "operator.recorded"), "anchor local named as lost, in state sha256:", "the disk failed")
	if d := w.try("dispatch", "show", string(after.ID)); d.status == 0 {
		t.Errorf("control: the restored state knows %s: %s", after.ID, d)
	}
	if d := w.show(string(before.ID)); d.State != api.EventFinished {
		t.Errorf("%+v", d)
	}
	if out := bob.must("operators", "list"); !strings.Contains(out, "2 people") {
		t.Errorf("the operators of the restored state: %s", out)
	}

	t.Log("a service that forgot what was started asks for it again")
	lie.set(func(r *launch.Request) {
		if r.Kind == launch.KindWorker {
			r.Manifest, r.Keys = replay.Manifest, replay.Keys
		}
	})
	d := w.show(w.detached("edit", "--source", "repo"))
	for late := range polling(time.Minute) {
		if d = w.show(string(d.ID)); d.State != api.EventAccepted && d.State != api.EventStarted || late {
			break
		}
	}
	lie.set(nil)
	if d.State != api.EventFailed || !strings.Contains(d.Message, "was started before") {
		t.Errorf("a replay: %s %s", d.State, d.Message)
	}
	now := w.dispatch("edit", "--source", "repo")
	wantEnd(t, now, api.EventFinished, "")

	t.Log("an auditor reads of the loss offline")
	w.verifyEvidence(string(now.ID))
	w.must("audit", "tiles", "--to", w.path("tmp/tiles"))
	wantIn(t, "the period", w.exec(filepath.Join(bin, "bailiwick-verify"), "--tiles", w.path("tmp/tiles"), "--trust", w.trustFile(), "--since", "1d").stdout, "anchor local named as lost")
}

// An upgrade beside a running worker: the state from before is kept, the worker stays and the
// next service adopts it; the kept copy brings the state back, whose content it shares. A
// version below the one that the machine ran is refused by name, and touches nothing. Control:
// what the copy does not have, the restored state lacks.
//
// proves R-P8, R-O6
func TestAnUpgradeOfATeamKeepsItsWorkers(t *testing.T) {
	t.Parallel()
	s := newTeam(t)
	s.installed()
	w := s.world(machine.Alice)
	w.repository("repo", map[string]string{"a.txt": "one\n", "gone.txt": "x\n", "same.txt": "same\n"})
	w.manifest(subagent{name: "edit", script: strings.ReplaceAll(waitAtGate, "GATE", w.path("gate"))})
	w.replace(manifest, "mode: guarded}", "mode: guarded, readOnly: ["+w.path("gate")+"]}")
	w.publish("reversible")
	id := w.detached("edit", "--source", "repo")
	w.awaitLog(id, "begun")
	worker := s.attempts(id)
	if len(worker) != 1 {
		t.Fatalf("control: workers of %s: %v", id, worker)
	}
	stamp := func(version string) {
		s.Write("/var/lib/bailiwick-launch/version", version+"\n", 0, 0, 0o644)
	}
	stamp("99.0.0")
	if out, err := s.sh(machine.Root, "bailiwick-deploy upgrade"); err == nil || !strings.Contains(out, "99.0.0") || !strings.Contains(out, "a downgrade is not supported") {
		t.Errorf("a downgrade: %v\n%s", err, out)
	}
	w.must("status") // it stopped nothing

	stamp("0.0.1")
	s.service.end()
	wantIn(t, "the upgrade", s.ok(machine.Root, "bailiwick-deploy upgrade"), "the state from before is in /var/lib/bailiwick-launch/before-", "this machine runs version")
	s.startService()
	if now := s.attempts(id); len(now) != 1 || now[0] != worker[0] {
		t.Errorf("the worker is %v, it was %v", now, worker)
	}
	w.openGate()
	d := w.awaitEnd(id)
	wantEnd(t, d, api.EventFinished, "")
	w.loggedOnce(id, "dispatch.finished")

	s.service.end()
	s.ok(machine.Root, "bailiwick-deploy restore /var/lib/bailiwick-launch/before-*-from-0.0.1.tar.gz")
	s.refusesToStart("bailiwick anchor lost local") // the end of the dispatch is lost
}
