package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// inquiry is an agent that works, asks a question, and resumes where it
// stopped.
const inquiry = `
if [ -e inputs/resume.json ]; then
	grep -q half half.txt && grep -q '"step": *3' inputs/resume.json
	sed -n 's/.*"answer":"\([^"]*\)".*/\1/p' inputs/resume.json > answer.txt
else
	echo half > half.txt
	echo '{"question": "Which colour?", "options": ["red", "blue"], "state": {"step": 3}}' > .bailiwick/question.json
fi`

// A killed service loses nothing of a run: running workers are adopted, ended
// ones are collected, a dead worker ends its attempt, questions keep waiting,
// and pending tasks start. Nothing is done twice.
//
// proves R-O6
func TestServiceKillLosesNothingOfARun(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := orchestrated(t, uid)
		id := w.submit(planned("survives",
			shellTask("done", "echo x > a.txt"),
			shellTask("goes-on", awaitGate("on"), locking("k")),
			shellTask("ends", awaitGate("meanwhile")),
			shellTask("dies", awaitGate("on"), retrying(2)),
			shellTask("asks", inquiry),
			shellTask("behind", "true", locking("k")),
			shellTask("later", "cp inputs/change outputs/", needing("change", api.Need{From: "asks", Patch: true}), after("ends", "dies")),
			shellTask("fails", "exit 3", after("ends")),
			shellTask("skipped", "true", after("fails")),
		))
		ends := w.begunTask(id, "ends")
		dies := w.begunTask(id, "dies")
		goesOn := w.begunTask(id, "goes-on")
		w.awaitEvent(id, event("task.waiting", "asks"))
		w.awaitEvent(id, event("task.done", "done"))
		pids := map[string]int{}
		for _, pid := range w.workers() {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			must(t, err)
			for _, d := range []string{ends, dies} {
				if strings.Contains(string(b), d) {
					pids[d] = pid
				}
			}
		}
		kill(t, w.status().PID)
		w.open("meanwhile")
		awaitGone(t, pids[ends])
		kill(t, pids[dies])
		w.upRuns()
		if run := w.run(id); task(t, run, "goes-on").State != api.TaskRunning || string(task(t, run, "goes-on").DispatchID) != goesOn || task(t, run, "behind").State != api.TaskReady || !task(t, run, "asks").Asks {
			t.Errorf("after the restart: %+v", run)
		}
		w.open("on")
		w.must("run", "answer", string(id), "--task", "asks", "--option", "2")
		run := w.awaitSettled(id)
		wantStates(t, run, "failed; done done; goes-on done; ends done; dies done; asks done; behind done; later done; fails failed agent; skipped skipped")
		if d := task(t, run, "dies"); d.Attempt != 2 || string(d.DispatchID) == dies {
			t.Errorf("the killed attempt: %+v", d)
		}
		wantEnd(t, w.show(dies), api.EventFailed, api.ReasonLost)
		for _, d := range []string{ends, goesOn} {
			w.loggedOnce(d, "dispatch.finished")
		}
		if left := w.settledRemains(); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
		w.replays(id)
	})
}

// A shutdown leaves the workers running. They finish even while no service
// runs, and the next service continues the run.
//
// proves R-O6
func TestRunContinuesAfterARestart(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	id := w.submit(planned("on", shellTask("a", awaitGate("go")), shellTask("b", "true", after("a"))))
	dispatch := w.begunTask(id, "a")
	w.must("down")
	w.open("go")
	for _, pid := range w.workers() {
		awaitGone(t, pid)
	}
	// A service without an orchestrator collects the worker, and leaves the run
	// unchanged.
	if d := w.awaitEnd(dispatch); d.State != api.EventFinished {
		t.Errorf("the dispatch is %+v", d)
	}
	w.upRuns()
	wantStates(t, w.awaitSettled(id), "done; a done; b done")
	w.loggedOnce(dispatch, "dispatch.finished")
	w.replays(id)
}

// A waiting task releases its slot and its locks. Its answer is durable once
// given, also across a kill; the task resumes when it has its locks again, with
// its state and work so far.
//
// proves R-D6, R-O3, R-O6
func TestWaitingTaskBlocksNoOther(t *testing.T) {
	t.Parallel()
	w := prepared(t, 0)
	w.write("config/bailiwick/service.yaml", "version: 1\norchestrator: {queues: {default: {slots: 1}}}\n", 0o600)
	w.upRuns()
	w.downAtEnd()
	id := w.submit(planned("asks",
		shellTask("asks", inquiry, locking("k")), shellTask("next", "true", locking("k")), shellTask("gate", awaitGate("go"), locking("k")),
		shellTask("last", "cp inputs/change outputs/", needing("change", api.Need{From: "asks", Patch: true})),
	))
	w.awaitEvent(id, event("task.waiting", "asks"))
	w.awaitEvent(id, event("task.done", "next"))
	w.begunTask(id, "gate")
	run := w.run(id)
	asks := task(t, run, "asks")
	if !asks.Asks || asks.State != api.TaskWaiting || asks.Message != "Which colour?" || run.State != api.RunRunning {
		t.Errorf("the run is %+v", run)
	}
	if q := w.show(string(asks.DispatchID)).Question; q == nil || len(q.Options) != 2 {
		t.Errorf("the question is %+v", q)
	}
	w.refused(1, []string{"option 7"}, "run", "answer", string(id), "--task", "asks", "--option", "7")
	w.refused(1, []string{"gate"}, "run", "answer", string(id), "--task", "gate", "red")
	w.refused(1, []string{"nobody"}, "run", "answer", string(id), "--task", "nobody", "red")
	w.must("run", "answer", string(id), "--task", "asks", "--option", "2")
	w.awaitEvent(id, event("task.answered", "asks"))
	if asks := task(t, w.run(id), "asks"); asks.State != api.TaskReady || asks.Asks || asks.Blocked == "" {
		t.Errorf("answered, but without its lock: %+v", asks)
	}
	w.refused(1, []string{"asks"}, "run", "answer", string(id), "--task", "asks", "red")
	kill(t, w.status().PID)
	w.upRuns()
	w.open("go")
	run = w.awaitSettled(id)
	wantStates(t, run, "done; asks done; next done; gate done; last done")
	asks = task(t, run, "asks")
	if d := w.show(string(asks.DispatchID)); asks.Attempt != 1 || d.Attempt != 2 || len(d.Attempts) != 1 || d.Attempts[0].Answer == nil || d.Attempts[0].Answer.Text != "blue" || string(d.Attempts[0].Answer.By) != w.me() {
		t.Errorf("the task had attempt %d, its dispatch is %+v", asks.Attempt, d)
	}
	if patch := w.output(run, "last", "change"); !strings.Contains(patch, "+half") || !strings.Contains(patch, "+blue") {
		t.Errorf("the patch of both attempts is %s", patch)
	}
	w.replays(id)
}

// A run whose tasks all wait for answers reports that. An unanswered question
// fails at its deadline, also if no service ran then.
//
// proves R-D6, R-O4, R-O6
func TestUnansweredQuestionOfARunExpires(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	const ask = `echo '{"question": "Which?"}' > .bailiwick/question.json`
	id := w.submit(planned("expires", shellTask("brief", ask, as("brief")), shellTask("below", "true", after("brief"))))
	run := w.awaitSettled(id)
	wantStates(t, run, "failed; brief failed timeout; below skipped")
	w.replays(id)

	patient := w.submit(planned("waits", shellTask("asks", inquiry)))
	w.awaitEvent(patient, event("task.waiting", "asks"))
	if run := w.run(patient); run.State != api.RunWaiting {
		t.Errorf("the run is %+v", run)
	}
	id = w.submit(planned("expires-alone", shellTask("brief", ask, as("brief"))))
	w.awaitEvent(id, event("task.waiting", "brief"))
	by := w.show(string(task(t, w.run(id), "brief").DispatchID)).AnswerBy
	w.must("down")
	if by == nil {
		t.Fatal("the question has no time limit")
	}
	time.Sleep(time.Until(*by)) // the service is down: nothing notices the expiry
	w.upRuns()
	wantStates(t, w.awaitSettled(id), "failed; brief failed timeout")
	// The verb of a dispatch also answers a task.
	w.must("dispatch", "answer", string(task(t, w.run(patient), "asks").DispatchID), "--option", "1", "--detach")
	wantStates(t, w.awaitSettled(patient), "done; asks done")
	w.replays(id, patient)
}
