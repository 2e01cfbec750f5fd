package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// runTree draws the tasks of a run as a tree: each stands below that of its
// dependencies which comes last. It knows no terminal; what it returns are
// lines that fit into so many columns and rows.
type runTree struct {
	order []int32 // of the tasks, as they are drawn
	depth []int   // by number of the task
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

// frame is where a tree is drawn.
type frame struct {
	width, height int // columns and rows; 0: not known
	colour        bool
	now           time.Time
}

// draw returns the lines of a run, at most f.height-1 of them, none as wide as
// f.width. Where not all tasks have room, those that are settled are folded
// first, then those that nothing can be done about yet.
func (t runTree) draw(run *api.Run, f frame) []string {
	if f.width <= 0 {
		f.width = 80
	}
	if f.height <= 0 {
		f.height = 24
	}
	lines := []string{cut(runHead(run, f.now), f.width-1)}
	shown := t.fit(run.Tasks, f.height-2)
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
	next := 0 // in the order: what has not been drawn or folded
	for _, at := range shown {
		lines = t.fold(lines, run.Tasks, next, at, f)
		i := t.order[at]
		lines = append(lines, t.line(&run.Tasks[i], t.indent(i, f.width), name, subagent, f))
		next = at + 1
	}
	return t.fold(lines, run.Tasks, next, len(t.order), f)
}

// indent is how far a task stands to the right. A long chain does not push its
// end out of the screen.
func (t runTree) indent(i int32, width int) int { return min(2*t.depth[i], width/6) }

// fit returns the places in the order of the tasks that have room, with a row
// for every gap between them.
func (t runTree) fit(tasks []api.RunTask, rows int) []int {
	places := make([]int, len(t.order))
	for at := range places {
		places[at] = at
	}
	if len(places) <= rows {
		return places
	}
	slices.SortStableFunc(places, func(a, b int) int {
		return cmp.Compare(urgency(&tasks[t.order[a]]), urgency(&tasks[t.order[b]]))
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
		return []int{} // one line that stands for all
	}
	return nil
}

// urgency orders tasks by how much somebody wants to see them.
func urgency(t *api.RunTask) int {
	switch t.State {
	case api.TaskWaiting:
		if t.Asks {
			return 0
		}
		return 3
	case api.TaskRunning:
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

// fold adds a line for the tasks that are not drawn between two places.
func (t runTree) fold(lines []string, tasks []api.RunTask, from, to int, f frame) []string {
	if from >= to {
		return lines
	}
	counts, indent := map[api.TaskState]int{}, f.width
	for _, i := range t.order[from:to] {
		counts[tasks[i].State]++
		indent = min(indent, t.indent(i, f.width))
	}
	return append(lines, cut(fmt.Sprintf("%-9s %s+ %s", "", strings.Repeat(" ", indent), countsText(counts)), f.width-1))
}

func (t runTree) line(task *api.RunTask, indent, name, subagent int, f frame) string {
	words := []string{
		pad(strings.Repeat(" ", indent)+lineOf(string(task.Task)), name), pad(lineOf(string(task.Subagent)), subagent), pad(attemptText(task), 5),
		pad(elapsed(task, f.now), 6), noteOf(task, f.now),
	}
	state := pad(lineOf(string(task.State)), 9)
	text := cut(strings.TrimRight(state+" "+strings.Join(words, "  "), " "), f.width-1)
	if code := colourOf(task); f.colour && code != "" && len(text) >= len(state) {
		return "\x1b[" + code + "m" + state + "\x1b[0m" + text[len(state):]
	}
	return text
}

// colourOf says again what the state says in words.
func colourOf(t *api.RunTask) string {
	switch t.State {
	case api.TaskDone:
		return "32"
	case api.TaskFailed, api.TaskDenied:
		return "31"
	case api.TaskWaiting:
		return "33"
	case api.TaskRunning:
		return "36"
	case api.TaskPending, api.TaskReady, api.TaskSkipped, api.TaskCancelled:
	}
	return ""
}

// runHead is the run in one line.
func runHead(run *api.Run, now time.Time) string {
	end := now
	if run.SettledAt != nil {
		end = *run.SettledAt
	}
	return fmt.Sprintf("run %s %s  %s of %d  %s", lineOf(string(run.RunID)), lineOf(string(run.State)), countsText(run.Counts), run.Total, short(end.Sub(run.SubmittedAt)))
}

// countsText says how many tasks are in each state.
func countsText(counts map[api.TaskState]int) string {
	var words []string
	for _, s := range []api.TaskState{
		api.TaskDone, api.TaskRunning, api.TaskWaiting, api.TaskReady, api.TaskPending, api.TaskFailed, api.TaskDenied, api.TaskSkipped, api.TaskCancelled,
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

// elapsed is how long the latest attempt of a task takes or took.
func elapsed(t *api.RunTask, now time.Time) string {
	switch {
	case t.StartedAt == nil || t.TakenOver:
		return ""
	case t.EndedAt != nil:
		return short(t.EndedAt.Sub(*t.StartedAt))
	case t.State == api.TaskRunning:
		return short(now.Sub(*t.StartedAt))
	}
	return ""
}

// short writes a time as people read it, in at most six columns below a
// thousand hours.
func short(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
}

// noteOf says in one line why a task is where it is.
func noteOf(t *api.RunTask, now time.Time) string {
	why := lineOf(string(t.Reason))
	if t.Message != "" && why != "" {
		why += ": "
	}
	why += lineOf(t.Message)
	switch {
	case t.State == api.TaskWaiting && t.Asks:
		return "asks: " + lineOf(t.Message)
	case t.State == api.TaskWaiting && t.NotBefore != nil:
		return fmt.Sprintf("again in %s after %s", short(t.NotBefore.Sub(now)), why)
	case t.State == api.TaskReady && t.Blocked != "":
		return lineOf(t.Blocked)
	case t.State == api.TaskRunning && why != "":
		return "after " + why
	case t.State == api.TaskSkipped && t.Cause != "":
		return "because of " + lineOf(string(t.Cause))
	case t.State == api.TaskCancelled && t.CancelBy != "":
		return "by " + lineOf(string(t.CancelBy))
	case t.TakenOver:
		return "taken over"
	case t.State == api.TaskDone:
		return ""
	}
	return why
}

// lineOf is text from outside as a part of a line that is ours.
func lineOf(s string) string { return strings.ReplaceAll(plainLine(s), "\t", `\x09`) }

// pad fills text up with blanks, or cuts it, to so many columns.
func pad(s string, width int) string {
	s = cut(s, width)
	return s + strings.Repeat(" ", max(0, width-columnsOf(s)))
}

// cut cuts text so that it has at most so many columns.
func cut(s string, width int) string {
	if len(s) <= width { // no character has more columns than bytes, but for the tab, and lineOf leaves none
		return s
	}
	if columnsOf(s) <= width {
		return s
	}
	at := 0
	for i, r := range s {
		if at += columns(r, at); at > width-1 {
			return s[:i] + "~"[:min(1, max(width, 0))]
		}
	}
	return s
}

func columnsOf(s string) int {
	at := 0
	for _, r := range s {
		at += columns(r, at)
	}
	return at
}
