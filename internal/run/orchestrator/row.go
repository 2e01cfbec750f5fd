package orchestrator

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

const (
	selectRun  = "SELECT seq, id, principal, submitted, coalesce(settled, 0), state, paused_by, cancel_by, cancel_why, doc, plan FROM run "
	upsertTask = `INSERT INTO run_task(run, task, state, attempt, fence, dispatch, asked, reason, message, cause, not_before, answer, cancel_by, cancel_why, started, ended, taken_over)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET state = excluded.state, attempt = excluded.attempt, fence = excluded.fence,
dispatch = excluded.dispatch, asked = excluded.asked, reason = excluded.reason, message = excluded.message, cause = excluded.cause, not_before = excluded.not_before,
answer = excluded.answer, cancel_by = excluded.cancel_by, cancel_why = excluded.cancel_why, started = excluded.started, ended = excluded.ended, taken_over = excluded.taken_over`
	selectTask = `SELECT task, state, attempt, fence, dispatch, asked, reason, message, cause, not_before, answer, cancel_by, cancel_why, started, ended, taken_over
FROM run_task WHERE run = ? ORDER BY task`
)

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func instant(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// insertRun stores a new run, and the tasks that it takes over.
func insertRun(tx *store.Tx, r *run) error {
	doc, err := json.Marshal(r.doc)
	if err != nil {
		return err
	}
	if err := tx.Get("INSERT INTO run(id, principal, submitted, state, counts, paused_by, cancel_by, cancel_why, doc, plan) VALUES (?, ?, ?, '', '', '', '', '', ?, ?) RETURNING seq",
		store.Args{r.id, r.principal, r.submitted.UnixNano(), string(doc), string(r.plan.Canonical())}, &r.seq); err != nil {
		return err
	}
	for number := range r.growths {
		if err := saveGrowth(tx, r, int32(number)); err != nil { //nolint:gosec // G115: bounded by api.MaxRunTasks
			return err
		}
	}
	for i := range r.tasks {
		if !r.tasks[i].takenOver && r.tasks[i].state != api.TaskGrowing {
			continue
		}
		if err := saveTask(tx, r, int32(i)); err != nil { //nolint:gosec // G115: bounded by api.MaxPlanTasks
			return err
		}
		if r.tasks[i].dispatch == "" {
			continue
		}
		if err := dispatch.Reserve(tx, r.id, r.tasks[i].dispatch); err != nil {
			return err
		}
	}
	return nil
}

// saveRun stores what changes in a run.
func saveRun(tx *store.Tx, r *run) error {
	var settled any
	counts := ""
	if !r.settled.IsZero() {
		b, err := json.Marshal(r.counts)
		if err != nil {
			return err
		}
		settled, counts = r.settled.UnixNano(), string(b)
	}
	n, err := tx.Exec("UPDATE run SET settled = ?, state = ?, counts = ?, paused_by = ?, cancel_by = ?, cancel_why = ? WHERE seq = ? AND settled IS NULL",
		settled, r.state, counts, r.pausedBy, r.cancelBy, r.cancelWhy, r.seq)
	if err == nil && n != 1 {
		err = fmt.Errorf("run %s is already settled", r.id)
	}
	return err
}

// saveTask stores a task. A ready task is stored as what it was before, with what
// made it ready.
func saveTask(tx *store.Tx, r *run, i int32) error {
	t := &r.tasks[i]
	state, ans := t.state, ""
	if t.state == api.TaskReady {
		state = api.TaskPending
		if t.attempt > 0 {
			state = api.TaskWaiting
		}
	}
	if t.answer != nil {
		b, err := json.Marshal(t.answer)
		if err != nil {
			return err
		}
		ans = string(b)
	}
	_, err := tx.Exec(upsertTask, r.seq, i, state, t.attempt, int64(t.fence), t.dispatch, t.questionOf, t.reason, t.message, t.cause, //nolint:gosec // G115: counts up from 1
		nanos(t.notBefore), ans, t.cancelBy, t.cancelWhy, nanos(t.started), nanos(t.ended), t.takenOver)
	return err
}

// loadRun reads one run with its tasks.
func loadRun(v store.Reader, where string, args store.Args) (*run, error) {
	var head, doc, text string
	var seq, submitted, settled int64
	r := &run{}
	err := v.Get(selectRun+where, args, &seq, &head, &r.principal, &submitted, &settled, &r.state, &r.pausedBy, &r.cancelBy, &r.cancelWhy, &doc, &text)
	if err != nil {
		return nil, err
	}
	var d runDoc
	if err := json.Unmarshal([]byte(doc), &d); err != nil {
		return nil, fmt.Errorf("run %s: %w", head, err)
	}
	p, problems := plan.Parse([]byte(text))
	if len(problems) > 0 {
		return nil, fmt.Errorf("run %s: stored plan: %s", head, problems[0])
	}
	if got := api.DigestOf(p.Canonical()); got != d.Digest {
		return nil, fmt.Errorf("run %s: the stored plan has digest %s, the submitted one %s", head, got.Short(), d.Digest.Short())
	}
	full := newRun(api.RunID(head), p, d)
	full.seq, full.principal, full.submitted, full.settled = seq, r.principal, instant(submitted), instant(settled)
	full.state, full.pausedBy, full.cancelBy, full.cancelWhy = r.state, r.pausedBy, r.cancelBy, r.cancelWhy
	if err := loadGrowths(v, full); err != nil {
		return nil, err
	}
	if err := loadTasks(v, full); err != nil {
		return nil, err
	}
	full.countChildren()
	return full, nil
}

func loadTasks(v store.Reader, r *run) error {
	return v.Each(selectTask, store.Args{r.seq}, func(scan store.Scan) error {
		var i int
		var t task
		var notBefore, started, ended, fence int64
		var ans string
		if err := scan(&i, &t.state, &t.attempt, &fence, &t.dispatch, &t.questionOf, &t.reason, &t.message, &t.cause, &notBefore, &ans,
			&t.cancelBy, &t.cancelWhy, &started, &ended, &t.takenOver); err != nil {
			return err
		}
		if i < 0 || i >= len(r.tasks) {
			return fmt.Errorf("run %s: no task %d in the plan", r.id, i)
		}
		if ans != "" {
			if err := json.Unmarshal([]byte(ans), &t.answer); err != nil {
				return fmt.Errorf("run %s task %d: %w", r.id, i, err)
			}
		}
		t.fence = uint64(fence) //nolint:gosec // G115: counts up from 1
		t.notBefore, t.started, t.ended, t.deps = instant(notBefore), instant(started), instant(ended), r.tasks[i].deps
		r.set(int32(i), t.state) //nolint:gosec // G115: checked above
		r.tasks[i] = t
		if t.asking() {
			r.asking++
		}
		return nil
	})
}

// openRuns reads all unsettled runs in the order of submission.
func openRuns(v store.Reader) (list []*run, err error) {
	var seqs []int64
	if err := v.Each("SELECT seq FROM run WHERE settled IS NULL ORDER BY seq", nil, func(scan store.Scan) error {
		var seq int64
		err := scan(&seq)
		seqs = append(seqs, seq)
		return err
	}); err != nil {
		return nil, err
	}
	for _, seq := range seqs {
		r, err := loadRun(v, "WHERE seq = ?", store.Args{seq})
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

// runByID reads a run, and reports whether it exists.
func runByID(v store.Reader, id api.RunID) (*run, bool, error) {
	r, err := loadRun(v, "WHERE id = ?", store.Args{id})
	if errors.Is(err, store.ErrNoRow) {
		return nil, false, nil
	}
	return r, err == nil, err
}
