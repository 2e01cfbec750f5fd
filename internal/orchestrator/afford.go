package orchestrator

import (
	"errors"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/dispatch"
)

// A task for which others have reserved the rest of a budget has started and waits: it
// keeps its locks, as it would while its dispatch runs, and gives its slot back. Nothing
// is stored or logged while it waits. After a restart its dispatch is submitted again.

// budgetLine is the tasks of a principal that wait for room in one budget, in the order
// in which they started.
type budgetLine struct {
	by     api.Principal
	budget string
	tasks  []taskRef
}

// affording is how a task waits for room in a budget.
type affording struct {
	line *budgetLine
	due  bool // it is not in the line but waits for a slot, to be submitted again
}

// reserved returns why a task waits for room in a budget; nil: it does not.
func (f submitted) reserved() *dispatch.Reserved {
	w, _ := errors.AsType[*dispatch.Reserved](f.err)
	return w
}

// awaitBudget makes a task that runs wait for room in a budget.
func (e *engine) awaitBudget(r *run, i int32, budget string) {
	n := slices.IndexFunc(e.lines, func(l *budgetLine) bool { return l.by == r.principal && l.budget == budget })
	if n < 0 {
		n = len(e.lines)
		e.lines = append(e.lines, &budgetLine{by: r.principal, budget: budget})
	}
	r.queue.running--
	r.tasks[i].affording = &affording{line: e.lines[n]}
	e.lines[n].add(r, i)
}

// add puts a task into its place in the line.
func (l *budgetLine) add(r *run, i int32) {
	at := 0
	for at < len(l.tasks) && l.tasks[at].fence() < r.tasks[i].fence {
		at++
	}
	l.tasks = slices.Insert(l.tasks, at, taskRef{r, i})
}

func (t taskRef) fence() uint64 { return t.run.tasks[t.task].fence }

// leaveLine ends the wait of a task; its slot is its caller's to count.
func (e *engine) leaveLine(r *run, i int32) {
	l := r.tasks[i].affording.line
	r.tasks[i].affording = nil
	l.tasks = slices.DeleteFunc(l.tasks, func(t taskRef) bool { return t == taskRef{r, i} })
	if len(l.tasks) == 0 {
		e.lines = slices.DeleteFunc(e.lines, func(o *budgetLine) bool { return o == l })
	}
}

// behind returns the line in which another attempt of a subagent waits, which has the
// same budgets; nil if none does.
func (e *engine) behind(r *run, i int32) *budgetLine {
	for _, l := range e.lines {
		if l.by != r.principal {
			continue
		}
		for _, t := range l.tasks {
			if t.run == r && r.plan.Tasks[t.task].Subagent == r.plan.Tasks[i].Subagent {
				return l
			}
		}
	}
	return nil
}

// recheck lets the first task of each line of a principal try again: an attempt has ended.
func (e *engine) recheck(by api.Principal) {
	e.ends[by]++
	for _, l := range slices.Clone(e.lines) {
		if l.by == by {
			e.admitNext(l)
		}
	}
}

// admitNext queues the first task of a line that is not paused for a slot, to be
// submitted again.
func (e *engine) admitNext(l *budgetLine) {
	for n, t := range l.tasks {
		if t.run.pausedBy != "" || t.run.queue.paused() {
			continue
		}
		l.tasks = slices.Delete(l.tasks, n, n+1)
		r := t.run
		r.tasks[t.task].affording.due = true
		r.queue.push(r.tasks[t.task].lease)
		return
	}
}

// retryAdmission submits a task that has its slot again.
func (e *engine) retryAdmission(b *batch, w *lease) {
	r, i := w.run, w.task
	t := &r.tasks[i]
	t.tried = t.affording.line
	e.leaveLine(r, i)
	r.queue.running++
	if t.cancelBy == "" {
		t.inFlight = true
		b.effects = append(b.effects, e.submission(r, i))
	}
}

// parkAffording puts a task that waits for a slot back into its line: its run or its
// queue is paused.
func (e *engine) parkAffording(r *run, i int32) {
	a := r.tasks[i].affording
	if a == nil || !a.due {
		return
	}
	r.queue.remove(r.tasks[i].lease)
	e.leaveLine(r, i)
	r.queue.running++ // as awaitBudget expects
	e.awaitBudget(r, i, a.line.budget)
}

// submission is the effect that submits or resumes the dispatch of a task that runs.
func (e *engine) submission(r *run, i int32) effect {
	t := &r.tasks[i]
	t.ends = e.ends[r.principal]
	ef := r.effect(effectSubmit, i)
	if t.answer != nil {
		ef.kind, ef.questionOf, ef.answer = effectResume, t.questionOf, *t.answer
	} else {
		ef.request = r.taskRequest(i)
	}
	return ef
}
