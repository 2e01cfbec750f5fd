package runverbs

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

func treeOf(tasks ...api.RunTask) *api.Run {
	s := newRunService(tasks...)
	s.run.SettledAt = nil
	return &s.run
}

// checkFrame checks that what was drawn fits its screen.
func checkFrame(t *testing.T, name string, lines []string, width, height int) {
	t.Helper()
	if len(lines) > height-1 || len(lines) == 0 {
		t.Errorf("%s: %d lines on %d rows", name, len(lines), height)
	}
	for _, l := range lines {
		if n := console.Columns(l); n >= width {
			t.Errorf("%s: %d columns on %d: %q", name, n, width, l)
		}
		if controls(l) || strings.ContainsAny(l, "\n\t") {
			t.Errorf("%s: %q reaches the terminal", name, l)
		}
	}
}

func TestTreePutsTasksBelowTheirLastDependency(t *testing.T) {
	run := treeOf(
		api.RunTask{Task: "merge", After: []api.TaskID{"left", "right"}, State: api.TaskPending, Subagent: "merger"},
		api.RunTask{Task: "left", State: api.TaskDone, Subagent: "edit", Attempt: 1, Attempts: 1},
		api.RunTask{Task: "right", After: []api.TaskID{"left"}, State: api.TaskRunning, Subagent: "edit", Attempt: 2, Attempts: 3, Reason: api.ReasonTimeout, StartedAt: &testStart},
		api.RunTask{Task: "alone", State: api.TaskWaiting, Asks: true, Subagent: "edit", Message: "which?"},
	)
	got := newRunTree(run.Tasks).draw(run, frame{width: 80, height: 24, now: testStart.Add(65 * time.Second)})
	want := []string{
		"run r-one done  1 done, 1 running, 1 waiting, 1 pending of 4  1m05s",
		"done      left       edit",
		"running     right    edit    2/3    1m05s   after timeout",
		"pending       merge  merger",
		"waiting   alone      edit                   asks: which?",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("drawn\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Text that others wrote leaves neither its line nor its columns, on any screen.
//
// proves R-D7
func TestTreeKeepsHostileTextOnItsLine(t *testing.T) {
	hostile := "\x1b[2J\x1b[1A\r\nrun r-one done\u202e\u0301\t\u4e16\u754c" + strings.Repeat("\u4e16", 300)
	at := testStart.Add(time.Second)
	var tasks []api.RunTask
	for i, state := range api.TaskStates() {
		for _, asks := range []bool{false, true} {
			tasks = append(tasks, api.RunTask{
				Task: api.TaskID(fmt.Sprintf("t%d%v%s", i, asks, hostile)), State: state, Subagent: api.Name("s" + hostile), Reason: api.Reason(hostile), Message: hostile,
				Cause: api.TaskID(hostile), Asks: asks, Blocked: hostile, CancelBy: api.Actor(hostile), NotBefore: &at, StartedAt: &testStart, Attempt: 12, Attempts: 20,
			})
		}
	}
	run := treeOf(tasks...)
	for _, width := range []int{1, 2, 10, 40, 80, 200} {
		for _, height := range []int{2, 3, 10, 24, 60} {
			for _, colour := range []bool{false, true} {
				lines := newRunTree(run.Tasks).draw(run, frame{width, height, colour, testStart})
				for i := range lines {
					lines[i] = ours.ReplaceAllString(lines[i], "")
				}
				checkFrame(t, fmt.Sprintf("%dx%d", width, height), lines, width+1, height)
			}
		}
	}
	// Control: the check finds what gets through.
	if !controls(hostile) || !controls(strings.ReplaceAll(hostile, "\u202e", "")) {
		t.Error("control: the check sees nothing")
	}
}

// ours matches the colours, the only control sequences that are allowed.
var ours = regexp.MustCompile("\x1b\\[[0-9]*m")

func TestTreeFoldsWhatMattersLeast(t *testing.T) {
	const n = 10_000
	tasks := make([]api.RunTask, n)
	for i := range tasks {
		tasks[i] = api.RunTask{Task: api.TaskID(fmt.Sprintf("t%d", i)), State: api.TaskDone, Subagent: "edit"}
		switch {
		case i >= 2:
			tasks[i].After = []api.TaskID{tasks[i/2].Task, tasks[i-1].Task}
		case i > 6000:
			tasks[i].State = api.TaskPending
		}
	}
	tasks[17].State, tasks[17].Message, tasks[17].Reason = api.TaskFailed, "exit status 7", api.ReasonAgent
	tasks[5000].State, tasks[5000].Asks = api.TaskWaiting, true
	for i := 4000; i < 4008; i++ {
		tasks[i].State = api.TaskRunning
	}
	run := treeOf(tasks...)
	shape := newRunTree(run.Tasks)
	if len(shape.order) != n {
		t.Fatalf("%d tasks are drawn", len(shape.order))
	}
	for _, width := range []int{40, 80, 200} {
		for _, height := range []int{2, 3, 5, 24, 100} {
			lines := shape.draw(run, frame{width, height, false, testStart})
			checkFrame(t, fmt.Sprintf("%dx%d", width, height), lines, width, height)
			text := strings.Join(lines, "\n")
			if height >= 24 {
				for _, want := range []string{"t17 ", "t5000 ", "t4000 ", "t4007 ", "+ "} {
					if !strings.Contains(text+" ", want) {
						t.Errorf("%dx%d: no %q in\n%s", width, height, want, text)
					}
				}
			}
			// Every task is either a line or counted in a fold.
			if height > 2 && width >= 80 && total(t, lines) != n {
				t.Errorf("%dx%d: %d tasks are there\n%s", width, height, total(t, lines), text)
			}
		}
	}
}

// total counts the tasks of a picture: its lines, and those that are folded.
func total(t *testing.T, lines []string) int {
	t.Helper()
	n := 0
	for _, l := range lines[1:] {
		_, fold, folded := strings.Cut(l, "+ ")
		if !folded {
			n++
			continue
		}
		for part := range strings.SplitSeq(fold, ", ") {
			var c int
			if _, err := fmt.Sscanf(part, "%d", &c); err != nil {
				t.Errorf("%q: %v", l, err)
			}
			n += c
		}
	}
	return n
}

func TestTreeBoundsTheIndentOfAChain(t *testing.T) {
	tasks := make([]api.RunTask, api.MaxPlanTasks)
	for i := range tasks {
		tasks[i] = api.RunTask{Task: api.TaskID(fmt.Sprintf("t%d", i)), State: api.TaskPending, Subagent: "edit"}
		if i > 0 {
			tasks[i].After = []api.TaskID{tasks[i-1].Task}
		}
	}
	tasks[len(tasks)-1].State = api.TaskRunning
	run := treeOf(tasks...)
	lines := newRunTree(run.Tasks).draw(run, frame{40, 24, false, testStart})
	checkFrame(t, "a chain", lines, 40, 24)
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "running ") || !strings.Contains(last, "t9999") {
		t.Errorf("the end of the chain is %q", last)
	}
}

func TestRedrawnOverwritesTheLastPicture(t *testing.T) {
	var out strings.Builder
	s := redrawn{to: &out}
	s.draw([]string{"one", "two"}, 80, 24)
	s.draw([]string{"three"}, 80, 24)
	s.draw([]string{"four"}, 40, 24)
	want := "one\x1b[K\ntwo\x1b[K\n\x1b[J" + "\x1b[2A\rthree\x1b[K\n\x1b[J" + "\x1b[H\x1b[2Jfour\x1b[K\n\x1b[J"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

func FuzzTree(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 1, 1}, 80, 24, "x")
	f.Add([]byte{9, 9, 9, 200, 13}, 3, 2, "\x1b[2J\u202e\u4e16")
	f.Fuzz(func(t *testing.T, graph []byte, width, height int, words string) {
		width, height = 1+int(uint(width)%250), 2+int(uint(height)%100)
		var tasks []api.RunTask
		for i, b := range graph {
			task := api.RunTask{Task: api.TaskID(fmt.Sprintf("%d%s", i, words)), State: api.TaskStates()[int(b)%9], Subagent: api.Name(words), Message: words}
			for j := range i {
				if (int(b)+j)%5 == 0 {
					task.After = append(task.After, tasks[j].Task)
				}
			}
			tasks = append(tasks, task)
		}
		run := treeOf(tasks...)
		checkFrame(t, "fuzz", newRunTree(run.Tasks).draw(run, frame{width, height, false, testStart}), width+1, height)
	})
}

func BenchmarkTreeOf10000(b *testing.B) {
	tasks := make([]api.RunTask, api.MaxPlanTasks)
	for i := range tasks {
		tasks[i] = api.RunTask{Task: api.TaskID(fmt.Sprintf("t%d", i)), State: api.TaskStates()[i%9], Subagent: "edit"}
		if i > 0 {
			tasks[i].After = []api.TaskID{tasks[i/3].Task}
		}
	}
	run := treeOf(tasks...)
	shape := newRunTree(run.Tasks)
	for b.Loop() {
		shape.draw(run, frame{120, 50, true, testStart})
	}
}

// controls reports whether a terminal would not just show s.
func controls(s string) bool {
	return !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool {
		return r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs)
	})
}

// Several runs share the screen: together they are not higher than it, and each
// shows at least its state while there is a row for it.
func TestSeveralTreesFitTheScreen(t *testing.T) {
	var runs []*liveRun
	for range 5 {
		var tasks []api.RunTask
		for i := range 30 {
			tasks = append(tasks, api.RunTask{Task: api.TaskID(fmt.Sprintf("t%d", i)), State: api.TaskRunning, Subagent: "edit", StartedAt: &testStart})
		}
		run := treeOf(tasks...)
		runs = append(runs, &liveRun{*run, newRunTree(run.Tasks)})
	}
	for _, height := range []int{0, 2, 4, 6, 10, 24, 40, 200} {
		lines := drawRuns(runs, frame{60, height, false, testStart})
		if height == 0 {
			height = 24
		}
		checkFrame(t, fmt.Sprint(height), lines, 60, height)
		heads := 0
		for _, l := range lines {
			if strings.HasPrefix(l, "run r-one ") {
				heads++
			}
		}
		if heads < min(5, height/2) {
			t.Errorf("%d rows show the state of %d runs", height, heads)
		}
	}
}
