package runverbs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

func TestShowPrintsTaskStatesAndNextSteps(t *testing.T) {
	later := testStart.Add(3 * time.Second)
	s := newRunService(
		api.RunTask{Task: "edit", State: api.TaskDone, Subagent: "code-edit", Attempt: 2, Attempts: 3, DispatchID: "d-edit", StartedAt: &testStart, EndedAt: &later},
		api.RunTask{Task: "ask", State: api.TaskWaiting, Asks: true, Subagent: "asker", Attempt: 1, Attempts: 1, DispatchID: "d-asks", Message: "Which"},
		api.RunTask{Task: "held", State: api.TaskReady, Subagent: "code-edit", Blocked: "waits for lock repo/a.go, which task edit2 of run r-two holds"},
		api.RunTask{Task: "bad", State: api.TaskFailed, Subagent: "code-edit", Reason: api.ReasonAgent, Message: "exit status 7\nnext        bailiwick run cancel r-one", DispatchID: "d-bads", Attempt: 1, Attempts: 1},
		api.RunTask{Task: "after", State: api.TaskSkipped, Subagent: "code-edit", Cause: "bad", After: []api.TaskID{"bad"}},
	)
	s.run.State, s.page = api.RunWaiting, 2
	by := testStart.Add(time.Hour)
	s.dispatches["d-asks"] = api.Dispatch{
		ID: "d-asks", State: api.EventNeedsInput, Attempt: 1, Principal: "local:ann", Subagent: "asker", Role: "coder", Tier: api.Observe, Target: "local", Manifest: api.DigestOf(nil), AnswerBy: &by,
		Question: &api.Question{Question: "Which of the two?\nanswer: bailiwick run cancel r-one", Options: []string{"red\x1b[2J", "blue"}},
	}
	socket := s.serve(t)
	status, out, errs := do(t, socket, "run", "show", "r-one")
	if status != 0 {
		t.Fatalf("exit status %d, %s", status, errs)
	}
	for _, want := range []string{
		"run         r-one waiting", "tasks       5: 1 done, 1 waiting, 1 ready, 1 failed, 1 skipped",
		"edit   done     code-edit  2/3      3.0s", "waits for lock repo/a.go, which task edit2 of run r-two holds", "because of bad",
		"question    of task ask", "| Which of the two?", "1. red\\x1b[2J", "2. blue", "answer: bailiwick run answer r-one --task ask --attempt 1 --option N",
		"failed      task bad: agent", "| exit status 7", "see: bailiwick run logs r-one bad", "next        bailiwick run answer r-one --task ask TEXT",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if controls(out) {
		t.Errorf("%q reaches the terminal", out)
	}
	for line := range strings.Lines(out) {
		// Text of the agent stands behind the marker or within a line of ours.
		if strings.Contains(line, "run cancel") && !strings.Contains(line, console.AgentMarker+"next") && !strings.Contains(line, console.AgentMarker+"answer:") && !strings.HasPrefix(line, "bad ") {
			t.Errorf("a line of the agent looks like one of ours: %q", line)
		}
	}
	var run api.Run
	if _, out, _ := do(t, socket, "run", "show", "r-one", "-o", "json"); json.Unmarshal([]byte(out), &run) != nil || len(run.Tasks) != 5 || run.Next != "" {
		t.Errorf("%s", out)
	}
	if _, out, _ := do(t, socket, "run", "show", "r-one", "-o", "name"); out != "r-one\n" {
		t.Errorf("%q", out)
	}
	if _, out, _ := do(t, socket, "run", "list"); !strings.Contains(out, "r-one") || !strings.Contains(out, "1/5") {
		t.Errorf("%s", out)
	}
}

func TestRunOutcomeIsTheExitStatus(t *testing.T) {
	for name, c := range map[string]struct {
		state api.RunState
		tasks []api.TaskState
		want  int
	}{
		"done":      {api.RunDone, []api.TaskState{api.TaskDone}, 0},
		"failed":    {api.RunFailed, []api.TaskState{api.TaskFailed, api.TaskSkipped}, 1},
		"cancelled": {api.RunCancelled, []api.TaskState{api.TaskCancelled}, 1},
		"denied":    {api.RunFailed, []api.TaskState{api.TaskDone, api.TaskDenied}, 3},
	} {
		s := newRunService()
		for i, state := range c.tasks {
			s.run.Tasks = append(s.run.Tasks, api.RunTask{Task: api.TaskID(fmt.Sprintf("t%d", i)), State: state, Subagent: "edit"})
		}
		s.count()
		s.run.State = c.state
		s.events = []api.RunEvent{event(4, "run.submitted", "", "", 0), event(5, "run.settled", "", "", 0)}
		socket := s.serve(t)
		for _, verb := range []string{"watch", "wait"} {
			if status, out, errs := do(t, socket, "run", verb, "r-one"); status != c.want || !strings.Contains(out, "r-one "+string(c.state)) {
				t.Errorf("%s, %s: exit status %d, %s%s", name, verb, status, out, errs)
			}
		}
		// As JSON lines, it is the events and nothing else.
		status, out, _ := do(t, socket, "run", "watch", "r-one", "-o", "jsonl")
		var got []string
		for line := range strings.Lines(out) {
			var e api.RunEvent
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Errorf("%v: %q", err, line)
			}
			got = append(got, e.Event)
		}
		if status != c.want || strings.Join(got, " ") != "run.submitted run.settled" {
			t.Errorf("%s: exit status %d, %v", name, status, got)
		}
	}
}

func TestInterruptingAWaitLeavesTheRunAlone(t *testing.T) {
	s := newRunService(api.RunTask{Task: "slow", State: api.TaskRunning, Subagent: "edit", StartedAt: &testStart})
	s.run.State = api.RunRunning
	asked := make(chan struct{}, 10)
	s.waits = func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}
	s.submit = func(api.RunRequest) (any, error) { return s.run, nil }
	s.steer = func(string, []byte) (any, error) { return s.run, nil }
	socket := s.serve(t)
	plan := writePlan(t, goodPlan)
	for _, words := range [][]string{
		{"run", "wait", "r-one", "--timeout", "20ms"}, {"run", "submit", plan, "--wait", "20ms"}, {"run", "cancel", "r-one", "--wait", "20ms"}, {"run", "cancel", "r-one", "--task", "slow", "--wait", "20ms"},
	} {
		if status, _, errs := do(t, socket, words...); status != 8 || !strings.Contains(errs, "run r-one ") || !strings.Contains(errs, "bailiwick run show r-one") {
			t.Errorf("%v: exit status %d, %s", words, status, errs)
		}
	}
	for len(asked) > 0 {
		<-asked
	}
	for _, terminal := range []bool{false, true} {
		ctx, interrupt := context.WithCancel(t.Context())
		var errs screen
		ended := make(chan int, 1)
		go func() {
			v := invocation{Output: console.Output{Stdout: &screen{}, Stderr: &errs, Terminal: terminal, Env: []string{"NO_COLOR=1"}}, args: []string{"--socket", socket, "run", "watch", "r-one"}}
			ended <- v.run(ctx)
		}()
		<-asked
		interrupt()
		status := <-ended
		said := errs.b.String()
		if status != 130 || !strings.Contains(said, "run r-one continues; watch it with: bailiwick run watch r-one, cancel it with: bailiwick run cancel r-one") {
			t.Errorf("exit status %d, %q", status, said)
		}
		if terminal != strings.Contains(said, "running   slow  edit") || strings.Contains(said, "\x1b[36m") {
			t.Errorf("terminal %v: %q", terminal, said)
		}
	}
	for _, line := range []string{"run wait r-one --timeout -1s", "run submit x --wait -1s", "run cancel r-one --wait -1s"} {
		if status, _, errs := at(t, socket, line); status != 1 || !strings.Contains(errs, "no negative time") {
			t.Errorf("%s: exit status %d, %s", line, status, errs)
		}
	}
}

const goodPlan = "tasks:\n  - id: one\n    subagent: edit\n  - id: two\n    subagent: edit\n    depends_on: [one]\n"

func writePlan(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// proves R-O2
func TestSubmitChecksThePlanFirst(t *testing.T) {
	s := newRunService()
	s.submit = func(api.RunRequest) (any, error) {
		t.Error("the invalid plan was submitted")
		return s.run, nil
	}
	socket := s.serve(t)
	path := writePlan(t, "tasks:\n  - id: one\n    subagent: edit\n    depends_on: [nobody]\n  - id: one\n    subagent: Bad Name\n    what: 1\n")
	status, out, errs := do(t, socket, "run", "submit", path)
	if status != 1 || out != "" {
		t.Errorf("exit status %d, %q", status, out)
	}
	for _, want := range []string{path + ":4:", path + ":6:5:", path + ":7:5:", "problems"} {
		if !strings.Contains(errs, want) {
			t.Errorf("no %q in\n%s", want, errs)
		}
	}
	if status, _, errs := do(t, socket, "run", "submit", path+"-not-there"); status != 1 || !strings.Contains(errs, "no such file") {
		t.Errorf("exit status %d, %s", status, errs)
	}
}

// proves R-O8
func TestSubmitChoosesTheRunID(t *testing.T) {
	s := newRunService()
	var got api.RunRequest
	s.submit = func(req api.RunRequest) (any, error) {
		got, s.run.RunID, s.run.Total = req, req.RunID, 2
		return s.run, nil
	}
	socket := s.serve(t)
	path := writePlan(t, goodPlan)
	status, out, errs := do(t, socket, "run", "submit", path)
	if status != 0 || out != string(got.RunID)+"\n" || got.RunID == "" || !strings.Contains(string(got.Plan), `"depends_on":["one"]`) {
		t.Errorf("exit status %d, %q, %q, %+v", status, out, errs, got)
	}
	if status, out, _ := do(t, socket, "run", "submit", path, "--id", "mine", "-o", "name"); status != 0 || out != "mine\n" || got.RunID != "mine" {
		t.Errorf("exit status %d, %q", status, out)
	}
	if status, out, _ := do(t, socket, "run", "submit", writePlan(t, "id: own\n"+goodPlan)); status != 0 || out != "own\n" {
		t.Errorf("exit status %d, %q", status, out)
	}
	if status, out, _ := with(t, invocation{Stdin: strings.NewReader(goodPlan)}, socket, "run", "submit", "-", "--id", "piped", "-o", "json"); status != 0 || !strings.Contains(out, `"runId": "piped"`) {
		t.Errorf("exit status %d, %q", status, out)
	}
	own := writePlan(t, "id: own\n"+goodPlan)
	if status, out, _ := do(t, socket, "run", "submit", own, "--id", "other"); status != 0 || out != "other\n" || !strings.Contains(string(got.Plan), `"id":"own"`) {
		t.Errorf("--id beside an id of the plan: exit status %d, %q", status, out)
	}
	if status, out, _ := do(t, socket, "run", "submit", own, "--new"); status != 0 || out == "own\n" || out != string(got.RunID)+"\n" {
		t.Errorf("--new: exit status %d, %q", status, out)
	}
	s.submit = func(api.RunRequest) (any, error) {
		return nil, &api.Error{Code: api.CodeDenied, Message: "the plan is denied", Problems: []api.Problem{{Path: "$.tasks[0].subagent", Message: "no grant"}}}
	}
	if status, _, errs := do(t, socket, "run", "submit", path); status != 3 || !strings.Contains(errs, "$.tasks[0].subagent: no grant") {
		t.Errorf("exit status %d, %q", status, errs)
	}
}

// proves R-O8
func TestSubmitSaysThatTheRunExists(t *testing.T) {
	s := newRunService(api.RunTask{Task: "a", Subagent: "x", State: api.TaskDone}, api.RunTask{Task: "b", Subagent: "x", State: api.TaskFailed})
	s.run.Existing, s.run.RunID, s.run.State = true, "own", api.RunFailed
	s.submit = func(api.RunRequest) (any, error) { return s.run, nil }
	s.steer = func(string, []byte) (any, error) { return s.run, nil }
	socket := s.serve(t)
	later := func() time.Time { return testStart.Add(2*time.Hour + 2*time.Minute) }
	path := writePlan(t, "id: own\n"+goodPlan)
	for _, flag := range []string{"", "--watch", "--wait=9s"} {
		status, out, errs := with(t, invocation{Output: console.Output{Now: later}}, socket, strings.Fields("run submit "+path+" "+flag)...)
		if status != 5 || out != "own\n" || strings.Contains(errs, "submitted") {
			t.Errorf("%s: exit status %d, %q, %q", flag, status, out, errs)
		}
		for _, want := range []string{"run own already exists: failed 2 hours ago, 1 of 2 tasks done", "bailiwick run retry own", "bailiwick run submit " + path + " --new, or --id NEW"} {
			if !strings.Contains(errs, want) {
				t.Errorf("%s: no %q in %q", flag, want, errs)
			}
		}
	}
	if status, out, _ := at(t, socket, "run retry r-one --id own -o json"); status != 5 || !strings.Contains(out, `"existing": true`) {
		t.Errorf("retry: exit status %d, %q", status, out)
	}
	s.run.State, s.run.SettledAt = api.RunRunning, nil
	status, _, errs := with(t, invocation{Output: console.Output{Now: later}}, socket, "run", "submit", path)
	if status != 5 || !strings.Contains(errs, "already exists: running, submitted 2 hours ago") || strings.Contains(errs, "retry") {
		t.Errorf("an open run: exit status %d, %q", status, errs)
	}
}

// proves R-O8
func TestALostAnswerNamesTheRunID(t *testing.T) {
	asked := make(chan api.RunID, 1)
	socket := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		var req api.RunRequest
		_ = json.NewDecoder(r.Body).Decode(&req)
		asked <- req.RunID
		panic(http.ErrAbortHandler)
	})
	path := writePlan(t, goodPlan)
	status, _, errs := do(t, socket, "run", "submit", path)
	id := <-asked
	if again := fmt.Sprintf("bailiwick run submit %s --id %s", path, id); status != 1 || id == "" || !strings.Contains(errs, again) {
		t.Errorf("exit status %d, %s, want %q", status, errs, again)
	}
}

func TestSteeringVerbsSendTheirRequest(t *testing.T) {
	s := newRunService(api.RunTask{Task: "ask", State: api.TaskWaiting, Asks: true, Subagent: "edit", DispatchID: "d-asks"})
	s.run.State = api.RunRunning
	var verb, body string
	s.steer = func(v string, b []byte) (any, error) {
		verb, body = v, strings.TrimSpace(string(b))
		if strings.HasPrefix(v, "queues") {
			q := api.Queue{Name: "default", Slots: 8, Running: 2, Ready: 1, Runs: 3, PausedBy: "local:ann", PausedAt: &testStart}
			if v == "queues" {
				return []api.Queue{q}, nil
			}
			return q, nil
		}
		return s.run, nil
	}
	socket := s.serve(t)
	for line, want := range map[string]string{
		"run cancel r-one --wait 0 --reason enough":  `runs/r-one/cancel {"reason":"enough"}`,
		"run cancel r-one --wait 0 --task ask":       `runs/r-one/cancel {"task":"ask"}`,
		"run pause r-one":                            "runs/r-one/pause ",
		"run resume r-one":                           "runs/r-one/resume ",
		"run retry r-one --id r-two":                 `runs/r-one/retry {"runId":"r-two"}`,
		"run answer r-one --task ask blue":           `runs/r-one/answer {"task":"ask","dispatchId":"d-asks","text":"blue"}`,
		"run answer r-one --task ask --option 2":     `runs/r-one/answer {"task":"ask","dispatchId":"d-asks","option":2}`,
		"queue list":                                 "queues ",
		"queue pause default":                        "queues/default/pause ",
		"queue resume default -o json":               "queues/default/resume ",
		"queue list -o name":                         "queues ",
		"run cancel r-one --wait 0 -o json --task a": `runs/r-one/cancel {"task":"a"}`,
	} {
		verb, body = "", ""
		status, out, errs := at(t, socket, line)
		body, _, _ = strings.Cut(body, `,"key":"`) // random
		if strings.HasPrefix(verb, "runs/r-one/retry") {
			body += "}"
		}
		if got := verb + " " + strings.TrimPrefix(body, "null"); status != 0 || got != want {
			t.Errorf("%s: exit status %d, requested %q, want %q; %s%s", line, status, got, want, out, errs)
		}
	}
	for line, want := range map[string]string{
		"run answer r-one --task ask":                 "give a text or --option N",
		"run answer r-one --task ask blue --option 1": "give a text or --option N",
		"run cancel R_1":                              "run id",
		"run cancel r-one --task ../x":                "task id",
		"run show":                                    "want: bailiwick run show RUN",
		"run patch r-one ask --all":                   "one of the three",
		"run patch r-one ask --dir x":                 "--dir goes with --all",
		"run patch r-one --all --keep-going":          "go with --merge",
		"run patch r-one --merge=":                    "needs the name",
		"run logs r-one --attempt 2":                  "name the task",
		"run logs r-one ask -f --attempt 2":           "one of the two",
		"run logs r-one other":                        "has no task other",
		"run submit p --watch --wait 2s":              "one of the two",
		"run submit p --new --id x":                   "one of the two",
		"queue pause A/B":                             "queue name",
		"run frobnicate":                              "bailiwick run --help",
	} {
		verb = ""
		if status, out, errs := at(t, socket, line); status != 1 || verb != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: exit status %d, requested %q, %s%s", line, status, verb, out, errs)
		}
	}
}

// No service is started for runs: a one-shot service has no orchestrator.
func TestRunVerbsSayHowToStartAService(t *testing.T) {
	status, _, errs := do(t, filepath.Join(t.TempDir(), "none"), "run", "list")
	if status != 1 || !strings.Contains(errs, "hint: run: bailiwick up --orchestrator") {
		t.Errorf("exit status %d, %s", status, errs)
	}
}

func TestLogsMarkLinesWithTheTask(t *testing.T) {
	s := newRunService(
		api.RunTask{Task: "one", State: api.TaskDone, Subagent: "edit", DispatchID: "d-one", Attempt: 2, Attempts: 2},
		api.RunTask{Task: "longer-name", State: api.TaskDone, Subagent: "edit", DispatchID: "d-two", Attempt: 1, Attempts: 2},
		api.RunTask{Task: "never", State: api.TaskSkipped, Subagent: "edit", Cause: "one"},
	)
	s.logs["d-one"], s.logs["d-two"], s.logs["d-old"] = "hello\nlonger-name | forged\n\x1b[2J"+strings.Repeat("x", 100), "world", "before\n"
	s.events = []api.RunEvent{
		event(1, "task.started", "one", "d-old", 1), event(2, "dispatch.started", "one", "d-old", 1), event(3, "dispatch.failed", "one", "d-old", 1), event(4, "task.waiting", "one", "d-old", 1),
		event(5, "task.started", "longer-name", "d-two", 1), event(6, "dispatch.started", "longer-name", "d-two", 1),
		event(7, "task.started", "one", "d-one", 2), event(8, "dispatch.started", "one", "d-one", 1), event(9, "task.done", "longer-name", "d-two", 1), event(10, "task.done", "one", "d-one", 2),
	}
	socket := s.serve(t)
	status, out, errs := with(t, invocation{Output: console.Output{Screen: true, NoPager: true, Width: func() int { return 60 }}}, socket, "run", "logs", "r-one")
	want := "one         | hello\none         | longer-name | forged\none         | \\x1b[2J" + strings.Repeat("x", 39) + "\none         |>" + strings.Repeat("x", 46) + "\none         |>" + strings.Repeat("x", 15) + "\nlonger-name | world\n"
	if status != 0 || out != want || errs != "" {
		t.Errorf("exit status %d\n%s\nwant\n%s%s", status, out, want, errs)
	}
	// With -f, every attempt is there and no two lines are mixed.
	status, out, errs = do(t, socket, "run", "logs", "r-one", "-f")
	for _, line := range []string{"one         | before\n", "one         | hello\n", "longer-name | world\n"} {
		if status != 0 || strings.Count(out, line) != 1 {
			t.Errorf("exit status %d, no %q in\n%s%s", status, line, out, errs)
		}
	}
	if strings.Index(out, "| before") > strings.Index(out, "| hello") {
		t.Errorf("the second attempt comes before the first:\n%s", out)
	}
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "one         |") && !strings.HasPrefix(line, "longer-name |") {
			t.Errorf("a line without a name: %q", line)
		}
	}
	for words, want := range map[string]string{"one": "hello", "one --attempt 1": "before\n", "longer-name": "world", "one -f": "before\nhello"} {
		if status, out, errs := do(t, socket, append([]string{"run", "logs", "r-one"}, strings.Fields(words)...)...); status != 0 || !strings.HasPrefix(out, want) {
			t.Errorf("%s: exit status %d, %q, %s", words, status, out, errs)
		}
	}
	for words, want := range map[string]string{"never": "no started attempt 1", "one --attempt 7": "no started attempt 7"} {
		if status, out, errs := do(t, socket, append([]string{"run", "logs", "r-one"}, strings.Fields(words)...)...); status != 1 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: exit status %d, %q, %s", words, status, out, errs)
		}
	}
	// Work taken over from another run is shown too, and not waited for.
	s.run.Tasks[1].TakenOver, s.events = true, nil
	for words, want := range map[string]string{"longer-name -f": "world", "-f": "longer-name | world\n"} {
		if status, out, errs := do(t, socket, append([]string{"run", "logs", "r-one"}, strings.Fields(words)...)...); status != 0 || out != want {
			t.Errorf("%s: exit status %d, %q, %s", words, status, out, errs)
		}
	}
	_, out, _ = do(t, socket, "run", "logs", "r-one", "longer-name", "-o", "jsonl")
	var text strings.Builder
	for line := range strings.Lines(out) {
		var l taskLogLine
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Task != "longer-name" || l.Dispatch != "d-two" {
			t.Errorf("%v: %s", err, line)
		}
		text.Write(l.Data)
	}
	if text.String() != "world" {
		t.Errorf("%q", &text)
	}
}

func TestPatchesAreOnlyWrittenToNewFiles(t *testing.T) {
	commit := strings.Repeat("a", 40)
	s := newRunService()
	s.did("edit", commit, "patch of edit\n")
	s.did("nothing", commit, "")
	s.did("half", commit, "half a patch\n").State = api.TaskFailed
	d := s.dispatches["d-half"]
	d.Outcome.Partial = true
	s.run.Tasks = append(s.run.Tasks, api.RunTask{Task: "never", State: api.TaskSkipped, Subagent: "edit"})
	socket := s.serve(t)
	if status, out, errs := do(t, socket, "run", "patch", "r-one", "edit"); status != 0 || out != "patch of edit\n" {
		t.Errorf("exit status %d, %q, %s", status, out, errs)
	}
	if status, _, errs := do(t, socket, "run", "patch", "r-one", "never"); status != 1 || !strings.Contains(errs, "never started") {
		t.Errorf("exit status %d, %s", status, errs)
	}
	if status, out, errs := do(t, socket, "run", "patch", "r-one", "-o", "name"); status != 0 || out != "edit\nhalf\n" {
		t.Errorf("exit status %d, %q, %s", status, out, errs)
	}
	dir := filepath.Join(t.TempDir(), "patches")
	status, out, errs := do(t, socket, "run", "patch", "r-one", "--all", "--dir", dir)
	if status != 0 {
		t.Fatalf("exit status %d, %s", status, errs)
	}
	for _, want := range []string{filepath.Join(dir, "edit.patch") + " 14 bytes", "nothing  done     none: no file that a patch can contain has changed", "never    skipped  none: it was never started", "partial: captured before"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "half.patch")); err != nil || string(b) != "half a patch\n" {
		t.Errorf("%q, %v", b, err)
	}
	// Neither an existing file nor the target of a link is overwritten.
	if status, _, errs := do(t, socket, "run", "patch", "r-one", "--all", "--dir", dir); status != 1 || !strings.Contains(errs, "existing files are not overwritten") {
		t.Errorf("exit status %d, %s", status, errs)
	}
	outside := filepath.Join(t.TempDir(), "outside")
	linked := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(linked, "edit.patch")); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := do(t, socket, "run", "patch", "r-one", "--all", "--dir", linked); status != 1 || !strings.Contains(errs, "existing files are not overwritten") {
		t.Errorf("exit status %d, %s", status, errs)
	}
	if _, err := os.Stat(outside); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file was written through a link: %v", err)
	}
}

// screen is a writer that a test can look at while others write.
type screen struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}
