package runverbs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// Each thing that waits has the command for it; text of agents is marked.
//
// proves R-D7
func TestWaitingShowsTheCommandForEach(t *testing.T) {
	s := newRunService()
	s.run.State = api.RunFailed
	until := testStart.Add(time.Hour)
	s.waiting = []api.Waiting{
		{Kind: api.WaitingQuestion, Since: testStart, Until: &until, Principal: "local:ann", DispatchID: "d-solo", Attempt: 1, Subagent: "asker", Text: "Which?\nfailed      run x\x1b[2J"},
		{Kind: api.WaitingQuestion, Since: testStart, Principal: "local:ann", RunID: "r-one", Task: "ask", DispatchID: "d-asks", Attempt: 2, Subagent: "asker", Text: "Why?"},
		{Kind: api.WaitingFailed, Since: testStart, Principal: "local:ben", RunID: "r-two", Counts: map[api.TaskState]int{api.TaskFailed: 1, api.TaskDone: 2}},
	}
	socket := s.serve(t)
	status, out, errs := do(t, socket, "waiting")
	want := `question    dispatch d-solo (asker), of local:ann, since 2026-01-02T03:04:05Z
            expires 2026-01-02T04:04:05Z
            | Which?\x0afailed      run x\x1b[2J
            bailiwick dispatch answer d-solo --attempt 1 TEXT
question    task ask of run r-one, of local:ann, since 2026-01-02T03:04:05Z
            | Why?
            bailiwick run answer r-one --task ask --attempt 2 TEXT
failed      run r-two, of local:ben, since 2026-01-02T03:04:05Z
            2 done, 1 failed
            bailiwick run show r-two
`
	if status != 0 || out != want {
		t.Errorf("status %d, %s%s\nwant\n%s", status, out, errs, want)
	}
	var list []waitingItem
	if _, out, _ := do(t, socket, "waiting", "-o", "json"); json.Unmarshal([]byte(out), &list) != nil || len(list) != 3 || list[2].Command != "bailiwick run show r-two" {
		t.Errorf("%s", out)
	}
	if _, out, _ := do(t, socket, "waiting", "-o", "name"); out != "d-solo\nr-one\nr-two\n" {
		t.Errorf("%q", out)
	}
	if status, _, errs := do(t, socket, "waiting", "--dismiss", "r-one"); status != 0 || s.seen.Load() != 1 {
		t.Errorf("status %d, %s", status, errs)
	}
	s.run.State = api.RunWaiting
	if status, _, errs := do(t, socket, "waiting", "--dismiss", "r-one"); status != 1 || s.seen.Load() != 1 || !strings.Contains(errs, "only a run that failed or reached its time limit can be dismissed") {
		t.Errorf("status %d, %s", status, errs)
	}
	s.waiting = nil
	if status, out, errs := do(t, socket, "waiting"); status != 0 || out != "" || errs != "nothing waits for a person\n" {
		t.Errorf("status %d, %q, %q", status, out, errs)
	}
}

func TestShowSelectsTasksByState(t *testing.T) {
	s := newRunService(api.RunTask{Task: "fine", State: api.TaskDone, Subagent: "edit"}, api.RunTask{Task: "bad", State: api.TaskFailed, Subagent: "edit", Reason: api.ReasonAgent},
		api.RunTask{Task: "no", State: api.TaskDenied, Subagent: "edit"}, api.RunTask{Task: "after", State: api.TaskSkipped, Subagent: "edit"})
	socket := s.serve(t)
	for line, want := range map[string]string{"": "fine bad no after", "--failed": "bad no", "--state done": "fine", "--state done --state skipped": "fine after", "--state running": ""} {
		var run api.Run
		_, out, errs := at(t, socket, "run show r-one -o json "+line)
		if err := json.Unmarshal([]byte(out), &run); err != nil {
			t.Fatal(err, errs)
		}
		var got []string
		for _, task := range run.Tasks {
			got = append(got, string(task.Task))
		}
		if strings.Join(got, " ") != want || run.Total != 4 {
			t.Errorf("%s: %v, want %s", line, got, want)
		}
		_, text, _ := at(t, socket, "run show r-one "+line)
		for _, task := range s.run.Tasks {
			if strings.Contains(text, "\n"+string(task.Task)+" ") != strings.Contains(" "+want+" ", " "+string(task.Task)+" ") {
				t.Errorf("%s: task %s in\n%s", line, task.Task, text)
			}
		}
	}
	if status, _, errs := at(t, socket, "run show r-one --state broken"); status != 1 || !strings.Contains(errs, `--state "broken": want one of pending, ready`) {
		t.Errorf("status %d, %s", status, errs)
	}
}

// No line of a run is wider than a narrow terminal, except for those that hold a
// command or a long word.
func TestNarrowTerminalShowsEveryTask(t *testing.T) {
	s := newRunService(api.RunTask{Task: "a-task", State: api.TaskFailed, Subagent: "code-edit", Reason: api.ReasonAgent, Message: strings.Repeat("words ", 30), DispatchID: "t-fnq9pd1c15f9te241p967q5k", Attempt: 1, Attempts: 1})
	v := invocation{Output: console.Output{Screen: true, NoPager: true, Width: func() int { return 60 }}}
	_, out, _ := with(t, v, s.serve(t), "run", "show", "r-one")
	_, table, _ := strings.Cut(out, "\nTASK")
	table, _, _ = strings.Cut("TASK"+table, "\n\n")
	for line := range strings.Lines(table) {
		if console.Columns(strings.TrimSuffix(line, "\n")) > 60 {
			t.Errorf("wider than 60 columns: %q", line)
		}
	}
	if !strings.Contains(table, "agent: words") {
		t.Errorf("no reason in\n%s", out)
	}
}

func TestLogsSelectTasksAndLines(t *testing.T) {
	late := testStart.Add(time.Hour)
	s := newRunService(api.RunTask{Task: "old", State: api.TaskFailed, Subagent: "edit", DispatchID: "d-olds", EndedAt: &testStart},
		api.RunTask{Task: "new", State: api.TaskFailed, Subagent: "edit", DispatchID: "d-news", EndedAt: &late},
		api.RunTask{Task: "fine", State: api.TaskDone, Subagent: "edit", DispatchID: "d-fine", EndedAt: &late})
	s.logs["d-olds"], s.logs["d-news"], s.logs["d-fine"] = "a\nb\nc\n", "1\n2\n\n3", "x\n"
	socket := s.serve(t)
	for line, want := range map[string]string{
		"run logs r-one":                                       "old  | a\nold  | b\nold  | c\nnew  | 1\nnew  | 2\nnew  | \nnew  | 3\nfine | x\n",
		"run logs r-one --tail 2":                              "old  | b\nold  | c\nnew  | \nnew  | 3\nfine | x\n",
		"run logs r-one --failed --tail 1":                     "old  | c\nnew  | 3\n",
		"run logs r-one --failed --since 2026-01-02T03:30:00Z": "new  | 1\nnew  | 2\nnew  | \nnew  | 3\n",
		"run logs r-one old --tail 1":                          "c\n",
		"run logs r-one new --tail 99":                         "1\n2\n\n3",
		"run logs r-one --since 2026-01-02T03:30:00Z --tail 1": "new  | 3\nfine | x\n",
		"run logs r-one --failed --since 2026-01-03 --tail 1":  "",
	} {
		if status, out, errs := at(t, socket, line); status != 0 || out != want {
			t.Errorf("%s: status %d\n%q, want\n%q; %s", line, status, out, want, errs)
		}
	}
	if _, out, errs := at(t, socket, "run logs r-one old --tail 1 -o jsonl"); !strings.HasPrefix(out, `{"task":"old","dispatchId":"d-olds","offset":4,`) {
		t.Errorf("%s%s", out, errs)
	}
	for line, want := range map[string]string{"--tail -1": "--tail -1: want 1 to", "-f --tail 3": "one of the two", "-f --failed": "one of the two", "--since never": `--since "never": want a time`} {
		if status, _, errs := at(t, socket, "run logs r-one "+line); status != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: status %d, %s", line, status, errs)
		}
	}
}

// Outputs are written below the folder and nowhere else; an existing file stays
// without --force.
//
// proves R-S4
func TestOutputsAreConfinedAndNeverOverwritten(t *testing.T) {
	s := newRunService()
	s.did("one", "", "").EndedAt = &testStart
	s.did("two", "", "")
	outputs := func(task api.TaskID, paths ...string) {
		d := s.dispatches[api.DispatchID("d-"+task)]
		d.Outcome = &api.ResultSummary{}
		for _, p := range paths {
			d.Outcome.Outputs = append(d.Outcome.Outputs, api.Artifact{Path: p, Size: 3, Digest: api.DigestOf([]byte(p))})
		}
		s.dispatches[d.ID] = d
	}
	outputs("one", "report.md", "sub/data.json")
	outputs("two", "report.md")
	socket, dir := s.serve(t), filepath.Join(t.TempDir(), "results")
	status, out, errs := at(t, socket, "run outputs r-one")
	if lines := strings.Split(strings.TrimSpace(out), "\n"); status != 0 || len(lines) != 4 || !strings.HasPrefix(lines[2], "one   sub/data.json  3 bytes") {
		t.Errorf("status %d, %s%s", status, out, errs)
	}
	if status, _, errs := at(t, socket, "run outputs r-one --dir "+dir); status != 0 {
		t.Fatal(errs)
	}
	for _, name := range []string{"one/report.md", "one/sub/data.json", "two/report.md"} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.HasPrefix(string(b), "content of ") {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	mine := filepath.Join(dir, "one/report.md")
	if err := os.WriteFile(mine, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := at(t, socket, "run outputs r-one one --dir "+filepath.Join(dir, "one")); status != 1 || !strings.Contains(errs, "not overwritten") {
		t.Errorf("status %d, %s", status, errs)
	}
	if b, _ := os.ReadFile(mine); string(b) != "mine" {
		t.Errorf("overwritten: %q", b)
	}
	outside := filepath.Join(t.TempDir(), "outside")
	for _, c := range []struct{ remove, link string }{{mine, outside}, {filepath.Join(dir, "two"), filepath.Dir(outside)}} {
		if err := os.RemoveAll(c.remove); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(c.link, c.remove); err != nil {
			t.Fatal(err)
		}
	}
	if status, _, _ := at(t, socket, "run outputs r-one --dir "+dir+" --force"); status != 1 { // two is a link to the outside
		t.Errorf("status %d", status)
	}
	if entries, _ := os.ReadDir(filepath.Dir(outside)); len(entries) > 0 {
		t.Errorf("written outside: %v", entries)
	}
	if b, err := os.ReadFile(mine); err != nil || string(b) != "content of report.md" { // the control: the link itself was replaced
		t.Errorf("%q, %v", b, err)
	}
	outputs("one", "../../escape")
	if status, _, errs := at(t, socket, "run outputs r-one one --force --dir "+dir); status != 1 || !strings.Contains(errs, "escape") {
		t.Errorf("status %d, %s", status, errs)
	}
	for line, want := range map[string]string{"r-one --force": "--force goes with --dir", "r-one other": "no task other"} {
		if status, _, errs := at(t, socket, "run outputs "+line); status != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: status %d, %s", line, status, errs)
		}
	}
}

// A verb that can have no effect because the run or the task has ended says so
// and sends nothing; cancelling what is cancelled succeeds.
func TestSteeringASettledRunSaysItsState(t *testing.T) {
	for _, c := range []struct {
		state api.RunState
		line  string
		want  int
		text  string
	}{
		{api.RunDone, "run cancel r-one", 1, "run r-one is done: there is nothing to cancel"},
		{api.RunFailed, "run pause r-one", 1, "run r-one is failed: there is nothing to pause"},
		{api.RunCancelled, "run resume r-one", 1, "run r-one is cancelled: there is nothing to resume"},
		{api.RunCancelled, "run cancel r-one", 0, "run r-one is already cancelled"},
		{api.RunRunning, "run cancel r-one --task over", 1, "task over of run r-one is done: there is nothing to cancel"},
		{api.RunRunning, "run cancel r-one --task gone", 0, "task gone of run r-one is already cancelled"},
		{api.RunRunning, "run pause r-one", 0, "run r-one is paused"}, // the control
	} {
		s := newRunService(api.RunTask{Task: "over", State: api.TaskDone, Subagent: "edit"}, api.RunTask{Task: "gone", State: api.TaskCancelled, Subagent: "edit"})
		s.run.State = c.state
		sent := 0
		s.steer = func(string, []byte) (any, error) { sent++; return s.run, nil }
		status, out, errs := at(t, s.serve(t), c.line)
		if status != c.want || !strings.Contains(out+errs, c.text) || (sent > 0) != (c.text == "run r-one is paused") {
			t.Errorf("%s, %s: status %d, sent %d, %s", c.state, c.line, status, sent, fmt.Sprint(out, errs))
		}
	}
}

// The next step of a settled run is a command that works as it is printed.
func TestNextOfASettledRunIsOnlyACommand(t *testing.T) {
	for state, want := range map[api.RunState]string{api.RunDone: "bailiwick run apply r-one", api.RunFailed: "bailiwick run retry r-one", api.RunCancelled: "bailiwick run retry r-one"} {
		if got := nextCommand(&api.Run{RunID: "r-one", State: state}); got != want {
			t.Errorf("%s: %q, want %q", state, got, want)
		}
	}
}

// Who denied a task, and what to do about it, differs between a person, a budget, a stop
// and policy. Nobody is told to change grants because a person said no.
func TestADenialSaysWhoDenied(t *testing.T) {
	for _, c := range []struct{ message, by, next, then string }{
		{"human:bob denied approval a-1: no grant lets you", "by a person", "bailiwick approval show a-1", "once human:bob agrees: it asks again"},
		{"human:bob denied approval a-1", "by a person", "bailiwick approval show a-1", "once human:bob agrees"},
		{`budget of grant "night" for 2026-11-24 (UTC): cost: 1usd of 1usd spent`, "by a budget", "bailiwick budget list", "once the budget has room"},
		{"emergency stop s-1 is engaged; only an operator can lift it: bailiwick stop lift s-1", "by an emergency stop", "bailiwick stop list", "once an operator has lifted the stop"},
		{`no grant lets local:ann dispatch subagent "edit"`, "by policy", "bailiwick can local:ann dispatch edit", "once a grant or a ceiling covers it"},
		{`grant "human:bob denied approval a-1" has the ceiling observe`, "by policy", "bailiwick can local:ann dispatch edit", ""},
	} {
		s := newRunService(api.RunTask{Task: "one", State: api.TaskDenied, Subagent: "edit", Reason: api.ReasonDenied, Message: c.message})
		s.run.State = api.RunFailed
		_, out, errs := at(t, s.serve(t), "run show r-one")
		for _, want := range []string{"task one: " + c.by + "\n", "next        " + c.next + "\n", c.then, "bailiwick run retry r-one, once "} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: %q is not in:\n%s%s", c.message, want, out, errs)
			}
		}
	}
	s := newRunService(api.RunTask{Task: "one", State: api.TaskFailed, Subagent: "edit", Reason: api.ReasonAgent}) // the control
	s.run.State = api.RunFailed
	if _, out, _ := at(t, s.serve(t), "run show r-one"); !strings.Contains(out, "next        bailiwick run retry r-one\n") || strings.Contains(out, "once") {
		t.Errorf("a failure:\n%s", out)
	}
}
