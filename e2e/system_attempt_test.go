package e2e

import (
	"strings"
	"syscall"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
)

// An attempt under a uid block of its own ends and survives as one of mode same-user: a
// cancel reaches its whole tree and keeps the work, an answer resumes it, a worker that is
// killed is lost, and neither a restart of the service nor a kill of the launcher touches a
// worker, whose result is kept. Control: before each end the processes run, under uids of
// the launcher's range.
//
// proves R-D3, R-D4, R-D6, R-O6
func TestAttemptsOfATeamEndAndSurvive(t *testing.T) {
	t.Parallel()
	s := newTeam(t)
	w := s.world(machine.Alice)
	w.repository("repo", map[string]string{"a.txt": "one\n", "gone.txt": "x\n", "same.txt": "same\n"})
	w.manifest(
		subagent{name: "asks", script: asks, more: "    verify: {command: [grep, -q, whole, a.txt]}\n"},
		subagent{name: "stubborn", script: "trap '' TERM INT HUP\necho half > half.txt\n(setsid sleep 5871 & ); setsid sleep 5872 &\necho begun\nwhile :; do sleep 1; done"},
		subagent{name: "edit", script: strings.ReplaceAll(waitAtGate, "GATE", w.path("gate"))},
		subagent{name: "quick", script: "echo quick"},
	)
	w.replace(manifest, "mode: guarded}", "mode: guarded, readOnly: ["+w.path("gate")+"]}")
	w.publish("reversible")

	t.Log("an answer resumes the work")
	d := w.awaitQuestion("asks")
	s.restart(true)
	w.must("dispatch", "answer", string(d.ID), "--option", "2", "-q")
	d = w.show(string(d.ID))
	wantEnd(t, d, api.EventFinished, "")
	if d.Attempt != 2 || d.Outcome == nil || !d.Outcome.Verify.Passed {
		t.Errorf("after the answer: %+v", d)
	}
	wantIn(t, "the patch of both attempts", w.must("dispatch", "patch", string(d.ID)), "+half", "+whole", "+blue", "made/new.txt")

	t.Log("a cancel reaches the whole tree and keeps the work")
	id := w.detached("stubborn", "--source", "repo")
	w.awaitLog(id, "begun")
	if all := s.attempts(""); len(all) < 4 {
		t.Errorf("control: processes of the attempt: %v", all)
	}
	w.must("dispatch", "cancel", id, "--reason", "enough")
	d = w.show(id)
	wantEnd(t, d, api.EventCancelled, "")
	if string(d.CancelBy) != w.me() || d.Outcome == nil || !d.Outcome.Partial || d.Outcome.Patch == nil {
		t.Errorf("cancelled by %q, outcome %+v", d.CancelBy, d.Outcome)
	}
	s.awaitNoAttempts()

	t.Log("a killed worker is lost")
	for _, both := range []bool{false, true} {
		id := w.detached("edit", "--source", "repo")
		w.awaitLog(id, "begun")
		if both {
			s.service.kill()
		}
		workers := s.attempts(id)
		if len(workers) != 1 {
			t.Fatalf("workers of %s: %v", id, workers)
		}
		must(t, syscall.Kill(workers[0], syscall.SIGKILL))
		awaitGone(t, workers[0])
		if both {
			s.startService()
		}
		d := w.awaitEnd(id)
		wantEnd(t, d, api.EventFailed, api.ReasonLost)
		if got := w.must("dispatch", "logs", id); got != "begun\n" {
			t.Errorf("the log of the lost worker is %q", got)
		}
		w.loggedOnce(id, "dispatch.failed")
		s.awaitNoAttempts()
	}

	t.Log("a worker outlives service and launcher")
	for what, stop := range map[string]func(){
		"restart of the service": func() { s.restart(false) },
		"kill of the service":    func() { s.restart(true) },
		"kill of the launcher":   s.restartLauncher,
		"kill of both":           func() { s.restartLauncher(); s.restart(true) },
	} {
		id := w.detached("edit", "--source", "repo")
		w.awaitLog(id, "begun")
		before := s.attempts(id)
		stop()
		if d := w.show(id); d.State != api.EventStarted {
			t.Errorf("%s: it is %s", what, d.State)
		}
		if now := s.attempts(id); len(before) != 1 || len(now) != 1 || now[0] != before[0] {
			t.Errorf("%s: the worker is %v, it was %v", what, now, before)
		}
		w.openGate()
		d := w.awaitEnd(id)
		wantEnd(t, d, api.EventFinished, "")
		if d.Outcome == nil || d.Outcome.Partial || d.Outcome.Patch == nil || len(d.Outcome.Files) != 2 {
			t.Errorf("%s: outcome %+v", what, d.Outcome)
		}
		w.loggedOnce(id, "dispatch.finished")
		s.ok(machine.Root, "rm "+w.path("gate/open"))
	}

	t.Log("what ends without a service is found by the next one")
	id = w.detached("edit", "--source", "repo")
	w.awaitLog(id, "begun")
	worker := s.attempts(id)
	s.service.kill()
	s.restartLauncher()
	w.openGate()
	for _, pid := range worker {
		awaitGone(t, pid)
	}
	s.startService()
	wantEnd(t, w.awaitEnd(id), api.EventFinished, "")
	w.loggedOnce(id, "dispatch.finished")

	t.Log("a cancel of a worker that was adopted")
	s.ok(machine.Root, "rm "+w.path("gate/open"))
	id = w.detached("edit", "--source", "repo")
	w.awaitLog(id, "begun")
	s.restartLauncher()
	s.restart(true)
	w.must("dispatch", "cancel", id)
	wantEnd(t, w.show(id), api.EventCancelled, "")
	wantEnd(t, w.dispatch("quick", "--source", "repo"), api.EventFinished, "")
	s.awaitNoAttempts()
}

// A worker that hangs is killed by the launcher at the word of the service, with everything
// in its uid block; after a restart of both the next ones do it. Control: a worker of
// another dispatch runs on.
//
// proves R-D3, R-D4, R-O6
func TestTheLauncherEndsAWorkerThatHangs(t *testing.T) {
	t.Parallel()
	s := newTeam(t)
	w := s.world(machine.Alice)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.manifest(subagent{name: "edit", script: strings.ReplaceAll(waitAtGate, "GATE", w.path("gate"))})
	w.replace(manifest, "mode: guarded}", "mode: guarded, readOnly: ["+w.path("gate")+"]}")
	w.publish("reversible")
	other, id := w.detached("edit", "--source", "repo"), w.detached("edit", "--source", "repo", "--timeout", "1s")
	w.awaitLog(id, "begun")
	w.awaitLog(other, "begun")
	hung := s.attempts(id)
	if len(hung) != 1 {
		t.Fatalf("workers of %s: %v", id, hung)
	}
	must(t, syscall.Kill(hung[0], syscall.SIGSTOP))
	block := s.blockOf(hung[0])
	s.restartLauncher()
	s.restart(true)
	d := w.awaitHung(id)
	wantEnd(t, d, api.EventFailed, api.ReasonLost)
	if !strings.Contains(d.Message, "the service killed it: it had not responded") {
		t.Errorf("message %q", d.Message)
	}
	for _, p := range s.blockProcesses() {
		if p.block == block {
			t.Errorf("process %d of the block is left: %q", p.pid, p.args)
		}
	}
	w.loggedOnce(id, "dispatch.failed")
	w.openGate()
	wantEnd(t, w.awaitEnd(other), api.EventFinished, "")
}
