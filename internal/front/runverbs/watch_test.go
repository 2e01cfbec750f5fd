package runverbs

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// Without a terminal, changes of a run that come together are one line with the
// number of tasks in each state; a change after them is another one, no sooner
// than a second later. No line has an escape sequence.
func TestWatchPrintsALinePerChange(t *testing.T) {
	s := newRunService(api.RunTask{Task: "a", State: api.TaskDone, Subagent: "edit"}, api.RunTask{Task: "b", State: api.TaskRunning, Subagent: "edit"})
	s.run.State = api.RunRunning
	s.events = append(s.events, event(1, "run.submitted", "", "", 0))
	for i := range 500 {
		s.events = append(s.events, event(2*i+2, "task.started", "a", "d-aaaa", 1), event(2*i+3, "dispatch.started", "a", "d-aaaa", 1))
	}
	waiting := func(seq int, task api.TaskID, reason api.Reason) api.RunEvent {
		e := event(seq, "task.waiting", task, "d-aaaa", 1)
		e.Reason = reason
		return e
	}
	// One question was answered, one is open, one task waits for its next attempt.
	s.events = append(s.events, waiting(1100, "was", ""), event(1101, "task.answered", "was", "", 0), waiting(1102, "asks", ""), waiting(1103, "later", api.ReasonAgent), event(1104, "task.started", "a", "d-aaaa", 1))
	waits := 0
	var first time.Time
	s.waits = func(w http.ResponseWriter, _ *http.Request) {
		page := api.RunEvents{Next: strconv.Itoa(len(s.events))}
		switch waits++; waits {
		case 1: // the lines so far are due within a tenth of a second
			time.Sleep(3 * lineInterval / 10)
			first = time.Now()
			page.Events = []api.RunEvent{event(9000, "task.done", "b", "d-bbbb", 1)}
		default:
			time.Sleep(lineInterval)
			page.Events, page.Done = []api.RunEvent{event(9001, "run.settled", "", "", 0)}, true
		}
		_ = json.NewEncoder(w).Encode(page)
	}
	status, out, errs := do(t, s.serve(t), "run", "watch", "r-one")
	lines := strings.Split(out, "\n")
	if status != 1 || len(lines) < 4 || controls(out) {
		t.Fatalf("status %d, %q, %s", status, out, errs)
	}
	for i, want := range []string{"task.started of a [#1104]; 1 done, 1 running (505 events not shown)", "task.done of b [#9000]; 1 done, 1 running", "run.settled of  [#9001]"} {
		if !strings.HasSuffix(lines[i], want) {
			t.Errorf("line %d is %q, want %q in\n%s", i+1, lines[i], want, out)
		}
	}
	if errs != "task asks asks; see: bailiwick run show r-one, answer with: bailiwick run answer r-one --task asks TEXT\n" {
		t.Errorf("%q", errs)
	}
	if took := time.Since(first); took < lineInterval/2 {
		t.Errorf("all lines came within %s", took)
	}
}

// Watching or waiting for several runs ends when all are settled; the exit status
// is that of the worst.
func TestSeveralRunsAreWatchedTogether(t *testing.T) {
	s := newRunService(api.RunTask{Task: "a", State: api.TaskDone, Subagent: "edit"})
	s.events = []api.RunEvent{event(1, "run.submitted", "", "", 0), event(2, "run.settled", "", "", 0)}
	socket := s.serve(t)
	for _, verb := range []string{"watch", "wait"} {
		status, out, errs := do(t, socket, "run", verb, "r-one", "r-two", "r-one")
		if status != 0 || strings.Count(out, "\nr-one ") != 2 { // the service of this test has one run
			t.Errorf("%s: status %d, %s%s", verb, status, out, errs)
		}
	}
	status, out, _ := do(t, socket, "run", "watch", "r-one", "r-two", "-o", "jsonl")
	var runs []string
	for line := range strings.Lines(out) {
		var e struct{ RunID, Event string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Error(err)
		}
		runs = append(runs, e.RunID)
	}
	if status != 0 || strings.Count(fmt.Sprint(runs), "r-one") != 2 || strings.Count(fmt.Sprint(runs), "r-two") != 2 {
		t.Errorf("status %d, %v", status, runs)
	}
	s.run.State, s.run.Counts = api.RunFailed, map[api.TaskState]int{api.TaskDenied: 1}
	if status, _, _ := do(t, socket, "run", "wait", "r-one", "r-two"); status != 3 {
		t.Errorf("status %d", status)
	}
	if status, _, errs := do(t, socket, "run", "wait", "r-one", "NOT"); status != 1 || !strings.Contains(errs, "run id") {
		t.Errorf("status %d, %s", status, errs)
	}
}

// A failed run was looked at once it was shown, watched or retried; waiting for
// it in a script is no look.
func TestLookingAtAFailedRunIsRecorded(t *testing.T) {
	for verb, want := range map[string]int32{"show": 1, "watch": 1, "retry": 1, "wait": 0} {
		s := newRunService(api.RunTask{Task: "a", State: api.TaskFailed, Subagent: "edit"})
		s.run.State = api.RunFailed
		s.steer = func(string, []byte) (any, error) { return s.run, nil }
		s.events = []api.RunEvent{event(2, "run.settled", "", "", 0)}
		if _, _, errs := do(t, s.serve(t), "run", verb, "r-one"); s.seen.Load() != want {
			t.Errorf("%s: looked %d times, want %d; %s", verb, s.seen.Load(), want, errs)
		}
	}
}

// The person at a terminal is asked the question of a task at once; the answer
// goes to that question. Nothing of the question reaches the terminal unmarked.
//
// proves R-D7
func TestWatchAsksOnATerminal(t *testing.T) {
	for input, want := range map[string]string{
		"2\n":           `{"task":"ask","dispatchId":"d-asks","option":2,"attempt":3}`,
		"9\n1\n":        `{"task":"ask","dispatchId":"d-asks","option":1,"attempt":3}`,
		"use the old\n": `{"task":"ask","dispatchId":"d-asks","text":"use the old","attempt":3}`,
		"\n":            "",
		"":              "",
	} {
		s := newRunService(api.RunTask{Task: "ask", State: api.TaskWaiting, Asks: true, Subagent: "edit", DispatchID: "d-asks", Attempt: 1, Attempts: 1})
		s.run.State = api.RunWaiting
		s.dispatches["d-asks"] = api.Dispatch{
			ID: "d-asks", Run: "r-one", Task: "ask", State: api.EventNeedsInput, Attempt: 3, Principal: "local:ann", Subagent: "edit", Role: "coder", Target: "local", Manifest: api.DigestOf(nil),
			Question: &api.Question{Question: "Which?\x1b[2J\nrun r-one done", Options: []string{"red", "blue\nanswer: x"}},
		}
		sent := ""
		s.steer = func(_ string, b []byte) (any, error) {
			sent = strings.TrimSpace(string(b))
			return s.run, nil
		}
		s.waits = func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(3 * console.RedrawInterval / 2)
			_ = json.NewEncoder(w).Encode(api.RunEvents{Done: true})
		}
		v := invocation{Stdin: strings.NewReader(input)}
		v.Terminal, v.Interactive, v.Env = true, true, []string{"TERM=xterm"}
		_, _, errs := with(t, v, s.serve(t), "run", "watch", "r-one")
		if sent != want {
			t.Errorf("%q: sent %s, want %s\n%s", input, sent, want, errs)
		}
		for _, part := range []string{"task ask of run r-one asks:\n| Which?\\x1b[2J\n| run r-one done\n  1. red\n  2. blue\\x0aanswer: x\n"} {
			if !strings.Contains(errs, part) {
				t.Errorf("%q: no %q in %q", input, part, errs)
			}
		}
		if left := strings.Contains(errs, "the question stays open; answer it with: bailiwick run answer r-one --task ask --attempt 3 --option N"); left != (want == "") {
			t.Errorf("%q: %q", input, errs)
		}
		if strings.Count(errs, "asks:\n") != 1 {
			t.Errorf("%q: the question is asked more than once: %q", input, errs)
		}
	}
}
