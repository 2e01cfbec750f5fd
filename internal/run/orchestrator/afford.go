package orchestrator

import (
	"cmp"
	"errors"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
)

// A task for which others have reserved the rest of a budget has started and waits: it
// keeps its locks, as it would while its dispatch runs, and gives its slot back. Nothing
// is stored or logged while it waits.
//
// Tasks take from a budget in the order in which they started: one that would take from a
// budget for which an earlier one waits comes into that line, whether it would fit or not.
// An earlier task never waits for a later one, and a task reserves all its budgets at once,
// so that tasks that share several budgets do not wait for each other.

// budgetLines is every budget that tasks wait for.
type budgetLines struct {
	lines []*budgetLine
	ends  map[api.Principal]int // attempts of a principal that have ended
}

// budgetLine is the tasks of a principal that wait for room in one budget, in the order
// in which they started.
type budgetLine struct {
	by      api.Principal
	name    string // see dispatch.Reserved; empty: of tasks that a restart found, for budgets that are not known yet
	tasks   []taskRef
	refused taskRef // the first, if it was tried and no attempt has ended since
}

// affording is how a task waits for room in a budget. It is in its line until it is
// admitted, or does not want to be any more.
type affording struct {
	line   *budgetLine
	budget string // with its period; empty after a restart
	due    bool   // it waits for a slot, to be submitted again
	tries  bool   // it has a slot and is submitted again
}

// reserved returns why a task waits for room in a budget; nil: it does not.
func (f submitted) reserved() *dispatch.Reserved {
	w, _ := errors.AsType[*dispatch.Reserved](f.err)
	return w
}

// hasSlot reports whether a task that runs has a slot of its queue: it does not wait for
// room in a budget.
func (t *task) hasSlot() bool { return t.affording == nil || t.affording.tries }

// wait makes a task that runs, and has a slot, wait for room in a budget.
func (q *budgetLines) wait(r *run, i int32, name, title string) {
	t := &r.tasks[i]
	r.queue.running--
	if t.affording != nil && t.affording.line.name == name {
		*t.affording = affording{line: t.affording.line, budget: title}
		return
	}
	q.leave(r, i)
	n := slices.IndexFunc(q.lines, func(l *budgetLine) bool { return l.by == r.principal && l.name == name })
	if n < 0 {
		n = len(q.lines)
		q.lines = append(q.lines, &budgetLine{by: r.principal, name: name})
	}
	t.affording = &affording{line: q.lines[n], budget: title}
	q.lines[n].add(taskRef{r, i})
}

// add puts a task into its place in the line.
func (l *budgetLine) add(t taskRef) {
	at, _ := slices.BinarySearchFunc(l.tasks, t, func(a, b taskRef) int { return cmp.Compare(a.get().fence, b.get().fence) })
	l.tasks = slices.Insert(l.tasks, at, t)
}

func (t taskRef) get() *task { return &t.run.tasks[t.task] }

// leave takes a task out of its line, if it is in one; its slot is its caller's to
// count.
func (q *budgetLines) leave(r *run, i int32) {
	t := &r.tasks[i]
	if t.affording == nil {
		return
	}
	l := t.affording.line
	t.affording = nil
	l.tasks = slices.DeleteFunc(l.tasks, func(t taskRef) bool { return t == taskRef{r, i} })
	if len(l.tasks) == 0 {
		q.lines = slices.DeleteFunc(q.lines, func(o *budgetLine) bool { return o == l })
	}
}

// counts reports whether a task holds back those behind it: it would begin if there was
// room.
func (t taskRef) counts() bool {
	return t.run.pausedBy == "" && !t.run.queue.paused() && t.get().cancelBy == ""
}

// first returns the task of a line that is the next to take from its budget; nil: all are
// paused or cancelled.
func (l *budgetLine) first() (t taskRef) {
	if n := slices.IndexFunc(l.tasks, taskRef.counts); n >= 0 {
		t = l.tasks[n]
	}
	return t
}

// behind returns the budgets for which earlier tasks than this one wait.
func (q *budgetLines) behind(r *run, i int32) (names []string) {
	for _, l := range q.lines {
		if l.by != r.principal {
			continue
		}
		if first := l.first(); first.run != nil && first.get().fence < r.tasks[i].fence {
			names = append(names, l.name)
		}
	}
	return names
}

// follow makes a task that has a slot wait without being submitted, if an earlier attempt
// of its subagent in its run waits: both have the same budgets.
func (q *budgetLines) follow(r *run, i int32) bool {
	for _, l := range q.lines {
		if l.by != r.principal || l.name == "" { // it may have no budget
			continue
		}
		for _, t := range l.tasks {
			if t.get().fence >= r.tasks[i].fence {
				break
			}
			if t.run == r && r.plan.Tasks[t.task].Subagent == r.plan.Tasks[i].Subagent && t.counts() {
				q.wait(r, i, l.name, t.get().affording.budget)
				return true
			}
		}
	}
	return false
}

// recheck lets the first task of each line of a principal try again: an attempt has ended.
func (q *budgetLines) recheck(by api.Principal) {
	q.ends[by]++
	for _, l := range q.lines {
		if l.by == by {
			l.refused = taskRef{}
		}
	}
}

// queueFirst queues the first task of each line for a slot, to be submitted again, unless
// it was refused and no attempt has ended since.
func (q *budgetLines) queueFirst() {
	for _, l := range q.lines {
		t := l.first()
		if t.run == nil || t == l.refused {
			continue
		}
		if a := t.get().affording; !a.due && !a.tries {
			a.due = true
			t.run.queue.push(t.get().lease)
		}
	}
}

// retryAdmission submits a task that has its slot again.
func (e *engine) retryAdmission(b *batch, w *lease) {
	r, i := w.run, w.task
	t := &r.tasks[i]
	t.affording.due = false
	if t.cancelBy != "" {
		return // it ends as soon as its dispatch is known not to run
	}
	t.affording.tries = true
	r.queue.running++
	if !e.resources.budgets.follow(r, i) {
		t.inFlight = true
		b.effects = append(b.effects, e.resources.budgets.submission(r, i))
	}
}

// refuse makes a task wait whose submission has found no room in a budget.
func (q *budgetLines) refuse(r *run, i int32, full *dispatch.Reserved) {
	t := &r.tasks[i]
	q.wait(r, i, full.Line, full.Budget)
	// If an attempt has ended since the submission, there may be room; and the earlier tasks
	// may be gone that this one was behind.
	if l, ref := t.affording.line, (taskRef{r, i}); !full.Behind && q.ends[r.principal] == t.ends && l.first() == ref {
		l.refused = ref
	}
}

// reconsider lets the first task of every line try again: a day may have begun, or a
// budget is larger.
func (q *budgetLines) reconsider() {
	for _, l := range q.lines {
		l.refused = taskRef{}
	}
}

// submission is the effect that submits or resumes the dispatch of a task that runs.
func (q *budgetLines) submission(r *run, i int32) effect {
	t := &r.tasks[i]
	t.ends = q.ends[r.principal]
	ef := r.effect(effectSubmit, i)
	ef.behind = q.behind(r, i)
	if t.answer != nil {
		ef.kind, ef.questionOf, ef.answer = effectResume, t.questionOf, *t.answer
	} else {
		ef.request = r.taskRequest(i)
	}
	return ef
}
