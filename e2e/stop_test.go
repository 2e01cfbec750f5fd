package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
)

const working = "echo half > half.txt; echo begun; while :; do sleep 1; done"

func stoppable(t *testing.T, uid int) *world {
	return asking(t, uid, subagent{name: "works", script: working}, subagent{name: "quick", script: "echo done > done.txt"})
}

// A stop ends running and waiting dispatches, keeps their work, and blocks new
// ones, across a restart and a kill, until an operator lifts it.
//
// proves R-T10, R-D4
func TestStopCancelsAllWorkUntilLifted(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := stoppable(t, uid)
		question := w.awaitQuestion("asks")
		running := w.detached("works", "--source", "repo")
		w.awaitLog(running, "begun")

		var stop api.Stop
		decode(t, w.must("stop", "--all", "--reason", "strange\npatches", "-o", "json"), &stop)
		if stop.ID != "s-1" || stop.Scope != api.StopAll || string(stop.By) != w.me() || stop.Cancelled != 2 {
			t.Errorf("the stop is %+v", stop)
		}
		for _, id := range []string{running, string(question.ID)} {
			d := w.awaitEnd(id)
			wantEnd(t, d, api.EventCancelled, "")
			if string(d.CancelBy) != w.me() || d.CancelReason != "emergency stop s-1: strange\npatches" || d.Outcome == nil || d.Outcome.Patch == nil {
				t.Errorf("%s: cancelled by %q because %q, outcome %+v", id, d.CancelBy, d.CancelReason, d.Outcome)
			}
		}
		checkBlocked := func() {
			t.Helper()
			words := []string{"emergency stop s-1 is engaged", "bailiwick stop lift s-1", "log entry: #"}
			w.refused(3, words, "dispatch", "run", "quick", "--source", "repo")
			w.refused(3, words[:1], "can", w.me(), "dispatch", "quick")
			w.refused(1, []string{"no open question"}, "dispatch", "answer", string(question.ID), "red")
			if out := w.must("stop", "list"); !strings.Contains(out, "s-1") || !strings.Contains(out, `"strange\npatches"`) {
				t.Errorf("the list is %q", out)
			}
			if out := w.must("principal", "show", w.me()); !strings.Contains(out, "s-1") {
				t.Errorf("the principal is shown as %q", out)
			}
			if s := w.status(); !slices.Equal(s.Stops, []string{"s-1"}) {
				t.Errorf("the status has the stops %v", s.Stops)
			}
		}
		checkBlocked()
		w.must("down")
		w.must("up")
		checkBlocked()
		kill(t, w.status().PID)
		w.must("up")
		checkBlocked()

		w.must("stop", "lift", "s-1", "--reason", "looked at")
		wantEnd(t, w.dispatch("quick", "--source", "repo"), api.EventFinished, "")
		w.refused(1, []string{"no stop s-1 is in force"}, "stop", "lift", "s-1")
		if out := w.must("stop", "list", "-o", "name"); out != "" {
			t.Errorf("%q is still in force", out)
		}
		log := w.must("audit", "list")
		for _, want := range []string{
			w.me() + ` engaged stop s-1 on all; its dispatches in flight are cancelled: "strange\npatches"`, `denied by policy "stop" ("emergency stop s-1 is engaged`,
			"stop s-1 lifted, signed by ed25519:", `"looked at"`,
		} {
			if !strings.Contains(log, want) {
				t.Errorf("the log lacks %q:\n%s", want, log)
			}
		}
	})
}

// proves R-T10
func TestStopAppliesOnlyToItsScope(t *testing.T) {
	t.Parallel()
	w := stoppable(t, 0)
	quick := func(target string) int { return w.try("dispatch", "run", "quick", "-q", "--target", target).status }
	w.replace(manifest, "{name: looking, executor: jail, level: full, mode: readonly}", "{name: looking, executor: jail, level: full, mode: open}")
	w.must("catalog", "apply", "-f", w.path(manifest))
	first, second := w.detached("works", "--source", "repo"), w.detached("works", "--source", "repo")
	w.awaitLog(first, "begun")
	w.awaitLog(second, "begun")
	w.must("stop", "--dispatch", first)
	wantEnd(t, w.awaitEnd(first), api.EventCancelled, "")
	w.must("stop", "--target", "looking")
	w.must("principal", "add", "agent:other")
	w.must("stop", "--principal", "agent:other")
	if d := w.show(second); d.State.Ended() || d.CancelBy != "" {
		t.Errorf("the dispatch outside the stop's scope is %s", d.State)
	}
	if local, looking := quick("local"), quick("looking"); local != 0 || looking != 3 {
		t.Errorf("exit status %d on target local, %d on target looking", local, looking)
	}
	w.refused(1, []string{"no such target lookin", "stop --all"}, "stop", "--target", "lookin")
	w.must("stop", "--principal", w.me())
	wantEnd(t, w.awaitEnd(second), api.EventCancelled, "")
	if local := quick("local"); local != 3 {
		t.Errorf("exit status %d on target local", local)
	}
	w.must("stop", "lift", "s-4")
	if local, looking := quick("local"), quick("looking"); local != 0 || looking != 3 {
		t.Errorf("exit status %d on target local, %d on target looking", local, looking)
	}
	for _, args := range [][]string{{}, {"--all", "--target", "local"}, {"--principal", "nobody"}, {"--dispatch", "a b"}, {"--all", "--reason", strings.Repeat("x", 600)}} {
		w.refused(1, nil, append([]string{"stop"}, args...)...)
	}
	w.refused(1, []string{"stop id"}, "stop", "lift", "1")
}

// Many dispatches and answers are requested while a stop is engaged. By the
// order of the log, nothing is accepted after it and everything accepted before
// it has ended. The control: much was accepted before it, and again after it
// was lifted.
//
// proves R-T10
func TestNothingIsAdmittedAfterAStop(t *testing.T) {
	t.Parallel()
	w := stoppable(t, 0)
	var questions []string
	for range 3 {
		questions = append(questions, string(w.awaitQuestion("asks").ID))
	}
	rush := func() (wait func()) {
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				for n := range 4 {
					status, body := w.call(http.MethodPost, submit, "application/json", strings.NewReader(`{"subagent":"works","source":{"name":"repo"}}`))
					if status != http.StatusAccepted && !strings.Contains(string(body), "emergency stop") {
						t.Errorf("submission %d/%d: %d %s", i, n, status, body)
					}
				}
			})
		}
		for _, id := range questions {
			all.Go(func() {
				_, _ = w.call(http.MethodPost, submit+"/"+id+"/answer", "application/json", strings.NewReader(`{"option":1,"attempt":1}`))
			})
		}
		return all.Wait
	}
	admitted := func() (n int) {
		return len(w.entries("--kind", "dispatch.accepted")) + len(w.entries("--kind", "dispatch.answered"))
	}
	before := admitted()
	wait := rush()
	for admitted() < before+3 { // some are accepted
	}
	w.must("stop", "--all")
	wait()
	at := w.entries("--kind", "stop.engaged")
	if len(at) != 1 {
		t.Fatalf("stops at entries %v", at)
	}
	behind := 0
	for _, kind := range []string{"dispatch.accepted", "dispatch.answered"} {
		behind += len(w.entries("--kind", kind, "--after", at[0]))
	}
	if behind != 0 {
		t.Errorf("%d requests were accepted after the stop", behind)
	}
	for _, d := range w.list() {
		if d = w.awaitEnd(string(d.ID)); d.State == api.EventNeedsInput {
			t.Errorf("%s still waits", d.ID)
		}
	}
	w.must("stop", "lift", "s-1")
	wantEnd(t, w.dispatch("quick", "--source", "repo"), api.EventFinished, "")
	if n := len(w.entries("--kind", "dispatch.accepted", "--after", at[0])); n != 1 {
		t.Errorf("%d requests were accepted after it was lifted", n)
	}
}

// A service killed during a stop: before the stop is durable nothing is blocked
// or ended; after that the next service completes it.
//
// proves R-T10, R-O6
func TestStopSurvivesKills(t *testing.T) {
	for _, at := range []failpoint.Name{failpoint.StopCommit, failpoint.StopCommitted, failpoint.StopDelivered} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			k := newTrial(t, 0, 7)
			k.manifest(subagent{name: "works", script: working}, subagent{name: "asks", script: `echo '{"question":"?"}' > .bailiwick/question.json`}, subagent{name: "quick", script: "true"})
			k.must("catalog", "apply", "-f", k.path(manifest))
			k.up(func() {})
			running := k.detached("works", "--source", "repo")
			k.awaitLog(running, "begun")
			question := string(k.awaitQuestion("asks").ID)
			k.arm(string(at) + " 1 kill")
			if err := k.ask(http.MethodPost, "/v1/operator/stops", api.StopRequest{Scope: api.StopAll}, nil); err == nil {
				t.Error("the service was not killed")
			}
			<-k.current().ended
			k.arm()
			k.up(func() {})
			var stops []api.Stop
			if err := k.insist(http.MethodGet, "/v1/operator/stops", nil, &stops); err != nil {
				t.Fatal(err)
			}
			if at == failpoint.StopCommit {
				if d := k.show(question); len(stops) != 0 || d.State != api.EventNeedsInput || k.show(running).CancelBy != "" {
					t.Errorf("the stops are %+v, the dispatch is %s", stops, d.State)
				}
				k.must("stop", "--all")
			} else if len(stops) != 1 || stops[0].Cancelled != 2 {
				t.Errorf("the stops are %+v", stops)
			}
			for _, id := range []string{running, question} {
				d := k.awaitEnd(id)
				wantEnd(t, d, api.EventCancelled, "")
				if d.CancelReason != "emergency stop s-1" {
					t.Errorf("%s: because %q", id, d.CancelReason)
				}
			}
			k.refused(3, []string{"emergency stop s-1"}, "dispatch", "run", "quick")
			k.must("stop", "lift", "s-1")
			wantEnd(t, k.dispatch("quick"), api.EventFinished, "")
		})
	}
}

// The mode of a target bounds tiers whatever was granted and consented to, with
// the programs as shipped.
//
// proves R-T10, R-T5
func TestTargetModeBoundsTiers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.init()
	w.consent(w.me(), "irreversible")
	tiers := []string{"observe", "reversible", "stateful", "irreversible"}
	var subs []subagent
	for _, tier := range tiers {
		subs = append(subs, subagent{name: tier, script: "true", tier: tier})
	}
	w.manifest(subs...)
	w.replace(manifest, "targets:\n", "targets:\n  - {name: everything, executor: jail, level: full, mode: open}\n")
	w.replace(manifest, "targets: [local, looking], ceiling: reversible", "targets: [local, looking, everything], ceiling: irreversible")
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.up()
	for target, highest := range map[string]string{"looking": "observe", "local": "stateful", "everything": "irreversible"} {
		for i, tier := range tiers {
			want := 0
			if i > slices.Index(tiers, highest) {
				want = 3
			}
			d := w.try("dispatch", "run", tier, "-q", "--target", target)
			if d.status != want || want == 3 && !strings.Contains(d.stderr, fmt.Sprintf("target %q admits up to tier %s", target, highest)) {
				t.Errorf("%s on %s: %s", tier, target, d)
			}
		}
	}
}

// A caller with a token can neither engage nor lift a stop, whatever its
// principal. The control is the same socket without a token.
//
// proves R-T10, R-T4
func TestAgentsCannotReachStops(t *testing.T) {
	t.Parallel()
	w := stoppable(t, 0)
	w.must("principal", "add", "agent:claude")
	token := strings.TrimSpace(w.must("token", "create", "agent:claude"))
	session := w.exchange(token)
	body, err := json.Marshal(api.StopRequest{Scope: api.StopAll})
	must(t, err)
	for _, c := range []struct{ method, path string }{
		{http.MethodPost, "/v1/operator/stops"}, {http.MethodGet, "/v1/operator/stops"}, {http.MethodPost, "/v1/operator/records"}, {http.MethodGet, "/v1/operator/records/head"},
	} {
		status, e := w.withHandle(session.Handle, c.method, c.path, string(body))
		if status != http.StatusForbidden || e.Code != api.CodeDenied || e.AuditEntry == nil {
			t.Errorf("%s %s by a token: %d %+v", c.method, c.path, status, e)
		}
	}
	if out := w.must("stop", "list", "--all", "-o", "name"); out != "" {
		t.Errorf("the list of stops is %q", out)
	}
	if status, answer := w.call(http.MethodPost, "/v1/operator/stops", "application/json", strings.NewReader(string(body))); status != http.StatusOK {
		t.Errorf("without a token: %d %s", status, answer)
	}
}

// A suspended worker does not escape a stop: its cancel is delivered when it
// continues.
//
// proves R-T10
func TestStopReachesASuspendedWorker(t *testing.T) {
	w := stoppable(t, 0)
	id := w.detached("works", "--source", "repo")
	w.awaitLog(id, "begun")
	pids := w.workers()
	if len(pids) == 0 {
		t.Fatal("no worker")
	}
	for _, pid := range pids {
		must(t, syscall.Kill(pid, syscall.SIGSTOP))
	}
	w.must("stop", "--all")
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	wantEnd(t, w.awaitEnd(id), api.EventCancelled, "")
	if left := w.settledRemains(); left != nil {
		t.Errorf("left behind: %v", left)
	}
}
