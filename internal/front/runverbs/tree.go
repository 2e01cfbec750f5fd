package runverbs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// runTree draws the tasks of a run as a tree: each task stands below the last of
// its dependencies. The lines that it returns fit a given number of columns and
// rows.
type runTree struct {
	order []int32 // task numbers in drawing order
	depth []int   // by task number
}

func newRunTree(tasks []api.RunTask) runTree {
	after, _ := edges(tasks)
	order := inOrder(tasks)
	place := make([]int, len(tasks))
	for at, i := range order {
		place[i] = at
	}
	below, depth := make([][]int32, len(tasks)), make([]int, len(tasks))
	var roots []int32
	for _, i := range order {
		if len(after[i]) == 0 {
			roots = append(roots, i)
			continue
		}
		up := slices.MaxFunc(after[i], func(a, b int32) int { return cmp.Compare(place[a], place[b]) })
		below[up], depth[i] = append(below[up], i), depth[up]+1
	}
	t := runTree{depth: depth}
	slices.Reverse(roots)
	for stack := roots; len(stack) > 0; {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		t.order = append(t.order, i)
		slices.Reverse(below[i])
		stack = append(stack, below[i]...)
	}
	return t
}

// frame is the space that a tree is drawn in.
type frame struct {
	width, height int // columns and rows; 0: unknown
	colour        bool
	now           time.Time
}

// draw returns at most f.height-1 lines, all narrower than f.width. If not all
// tasks fit, settled ones are folded first, then those that cannot start yet.
func (t runTree) draw(run *api.Run, f frame) []string {
	if f.width <= 0 {
		f.width = 80
	}
	if f.height <= 0 {
		f.height = 24
	}
	lines := []string{console.Cut(runHead(run, f.now), f.width-1)}
	notes := approvalNotes(run, f.now)
	shown := t.fit(run.Tasks, f.height-2, notes)
	if shown == nil {
		return lines
	}
	name, subagent := 0, 0
	for _, at := range shown {
		i := t.order[at]
		name = max(name, t.indent(i, f.width)+len(run.Tasks[i].Task))
		subagent = max(subagent, len(run.Tasks[i].Subagent))
	}
	name, subagent = min(name, f.width/3), min(subagent, f.width/6)
	next := 0 // in the order: first task that is neither drawn nor folded
	for _, at := range shown {
		lines = t.fold(lines, run.Tasks, next, at, f)
		i := t.order[at]
		lines = append(lines, t.line(&run.Tasks[i], notes[run.Tasks[i].Task], t.indent(i, f.width), name, subagent, f))
		next = at + 1
	}
	return t.fold(lines, run.Tasks, next, len(t.order), f)
}

// indent is the indentation of a task. It is bounded, so that the end of a long
// chain stays on the screen.
func (t runTree) indent(i int32, width int) int { return min(2*t.depth[i], width/6) }

// fit returns the positions in the order of the tasks that fit into rows; a gap
// between them takes a row too.
func (t runTree) fit(tasks []api.RunTask, rows int, notes map[api.TaskID]string) []int {
	places := make([]int, len(t.order))
	for at := range places {
		places[at] = at
	}
	if len(places) <= rows {
		return places
	}
	slices.SortStableFunc(places, func(a, b int) int {
		x, y := &tasks[t.order[a]], &tasks[t.order[b]]
		return cmp.Compare(urgency(x, notes[x.Task]), urgency(y, notes[y.Task]))
	})
	for n := min(len(places), max(rows, 0)); n > 0; n-- {
		shown := slices.Sorted(slices.Values(places[:n]))
		gaps, next := 0, 0
		for _, at := range shown {
			if at > next {
				gaps++
			}
			next = at + 1
		}
		if next < len(t.order) {
			gaps++
		}
		if n+gaps <= rows {
			return shown
		}
	}
	if rows > 0 {
		return []int{} // one line for all tasks
	}
	return nil
}

// urgency orders tasks by how much a viewer wants to see them. waits is why people keep
// it waiting, if they do.
func urgency(t *api.RunTask, waits string) int {
	if t.Asks || waits != "" {
		return 0
	}
	switch t.State {
	case api.TaskWaiting:
		return 3
	case api.TaskRunning, api.TaskGrowing:
		return 1
	case api.TaskFailed, api.TaskDenied:
		return 2
	case api.TaskReady:
		return 4
	case api.TaskPending:
		return 5
	case api.TaskDone, api.TaskCancelled, api.TaskSkipped:
	}
	return 6
}

// fold adds a line for the tasks between two positions that are not drawn.
func (t runTree) fold(lines []string, tasks []api.RunTask, from, to int, f frame) []string {
	if from >= to {
		return lines
	}
	counts, indent := map[api.TaskState]int{}, f.width
	for _, i := range t.order[from:to] {
		counts[tasks[i].State]++
		indent = min(indent, t.indent(i, f.width))
	}
	return append(lines, console.Cut(fmt.Sprintf("%-9s %s+ %s", "", strings.Repeat(" ", indent), countsText(counts)), f.width-1))
}

func (t runTree) line(task *api.RunTask, waits string, indent, name, subagent int, f frame) string {
	words := []string{
		console.Pad(strings.Repeat(" ", indent)+console.Line(string(task.Task)), name), console.Pad(console.Line(string(task.Subagent)), subagent), console.Pad(attemptText(task), 5),
		console.Pad(elapsed(task, f.now), 6), cmp.Or(waits, noteOf(task, f.now)),
	}
	state := console.Pad(console.Line(string(task.State)), 9)
	text := console.Cut(strings.TrimRight(state+" "+strings.Join(words, "  "), " "), f.width-1)
	if code := colourOf(task); f.colour && code != "" && len(text) >= len(state) {
		return "\x1b[" + code + "m" + state + "\x1b[0m" + text[len(state):]
	}
	return text
}

// colourOf is the colour of a state. It only repeats what the text says.
func colourOf(t *api.RunTask) string {
	switch t.State {
	case api.TaskDone:
		return "32"
	case api.TaskFailed, api.TaskDenied:
		return "31"
	case api.TaskWaiting:
		return "33"
	case api.TaskRunning, api.TaskGrowing:
		return "36"
	case api.TaskPending, api.TaskReady, api.TaskSkipped, api.TaskCancelled:
	}
	return ""
}

// runHead is the state of a run in one line.
func runHead(run *api.Run, now time.Time) string {
	end := now
	if run.SettledAt != nil {
		end = *run.SettledAt
	}
	return fmt.Sprintf("run %s %s  %s of %d  %s", console.Line(string(run.RunID)), console.Line(string(run.State)), countsText(run.Counts), run.Total, console.Duration(end.Sub(run.SubmittedAt)))
}

// countsText is the number of tasks in each state.
func countsText(counts map[api.TaskState]int) string {
	var words []string
	for _, s := range []api.TaskState{
		api.TaskDone, api.TaskRunning, api.TaskGrowing, api.TaskWaiting, api.TaskReady, api.TaskPending, api.TaskFailed, api.TaskDenied, api.TaskSkipped, api.TaskCancelled,
	} {
		if counts[s] > 0 {
			words = append(words, fmt.Sprintf("%d %s", counts[s], s))
		}
	}
	if words == nil {
		return "no task"
	}
	return strings.Join(words, ", ")
}

func attemptText(t *api.RunTask) string {
	if t.Attempt == 0 || t.Attempts <= 1 && t.Attempt == 1 {
		return ""
	}
	return fmt.Sprintf("%d/%d", t.Attempt, t.Attempts)
}

// elapsed is the duration of the latest attempt of a task, so far if it is running.
func elapsed(t *api.RunTask, now time.Time) string {
	switch {
	case t.StartedAt == nil || t.TakenOver:
		return ""
	case t.EndedAt != nil:
		return console.Duration(t.EndedAt.Sub(*t.StartedAt))
	case t.State == api.TaskRunning:
		return console.Duration(now.Sub(*t.StartedAt))
	}
	return ""
}

// reusedText says whose result a task has, and how old that was by then.
func reusedText(t *api.RunTask) string {
	text := "reused from dispatch " + console.Line(string(t.Reused.DispatchID))
	if t.Reused.Principal != "" {
		text += " of " + console.Line(string(t.Reused.Principal))
	}
	if t.EndedAt != nil {
		text += ", " + console.Duration(max(0, t.EndedAt.Sub(t.Reused.EndedAt))) + " old"
	}
	return text
}

// noteOf explains the state of a task in one line.
func noteOf(t *api.RunTask, now time.Time) string {
	why := console.Line(string(t.Reason))
	if t.Message != "" && why != "" {
		why += ": "
	}
	why += console.Line(t.Message)
	switch {
	case t.State == api.TaskWaiting && t.Asks:
		return "asks: " + console.Line(t.Message)
	case t.State == api.TaskWaiting && t.NotBefore != nil:
		return fmt.Sprintf("retry in %s after %s", console.Duration(t.NotBefore.Sub(now)), why)
	case t.State == api.TaskReady && t.Blocked != "":
		return console.Line(t.Blocked)
	case t.State == api.TaskRunning && t.Blocked != "":
		return "waits for " + console.Line(t.Blocked)
	case t.State == api.TaskRunning && t.Unreachable != nil:
		return "model " + console.Unreachable(t.Unreachable)
	case t.State == api.TaskRunning && t.Progress != nil:
		return "reports: " + console.Line(t.Progress.Text)
	case t.State == api.TaskRunning && why != "":
		return "after " + why
	case t.State == api.TaskSkipped && t.Message != "": // its condition does not hold
		return console.Line(t.Message)
	case t.State == api.TaskSkipped && t.Cause != "":
		return "because of " + console.Line(string(t.Cause))
	case t.State == api.TaskCancelled && t.CancelBy != "":
		return "by " + console.Line(string(t.CancelBy))
	case t.TakenOver:
		return "taken over"
	case t.Reused != nil && t.State == api.TaskDone:
		return reusedText(t)
	case t.State == api.TaskDone:
		return ""
	}
	return why
}
