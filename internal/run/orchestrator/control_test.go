package orchestrator_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
)

// The reference objects when one thing of a good log is changed, and so does the
// desk when an effect is wrong: they are what the random
// steps are judged by, and this is their control.
func TestReferenceModelFindsPlantedFaults(t *testing.T) {
	var log []audit.Committed
	var offered map[api.Digest]api.Plan
	var began time.Time
	bubble(t, orchestrator.Config{}, func(w *world) {
		lock := []api.Lock{{Key: "k"}}
		p := api.Plan{ID: "r", Tasks: []api.PlanTask{
			{ID: "a", Subagent: work, Locks: lock, Retry: api.Retry{Attempts: 2}},
			{ID: "b", Subagent: work, Locks: lock},
			{ID: "c", Subagent: work, DependsOn: []api.TaskID{"a"}},
			{ID: "d", Subagent: work, DependsOn: []api.TaskID{"b"}},
		}}
		began = w.log.began
		_, err := w.offer(as(ann), p)
		w.must(err)
		for _, state := range []api.Event{api.EventFailed, api.EventFailed} { // a is tried again while b runs, which fails
			synctest.Wait()
			reason := api.ReasonAgent
			j := w.desk.sorted((*job).active)[0]
			if j.order.Task == "b" {
				reason = api.ReasonOutput
			}
			time.Sleep(time.Millisecond)
			w.desk.end(j, state, reason, true)
		}
		time.Sleep(time.Hour)
		w.finishAll()
		log, err = w.ledger.List(context.Background(), audit.Query{Limit: 1000})
		w.must(err)
		offered = w.log.offered
	})
	judge := func(list []audit.Committed) []string {
		m := newReplay(map[api.Name]int{api.DefaultQueue: 2})
		m.offered, m.began = offered, began
		for i := range list {
			if i > 0 && !list[i].Entry.At.Equal(list[i-1].Entry.At) {
				m.step()
				m.boundary(list[i-1].Seq)
			}
			m.apply(&list[i])
		}
		m.boundary(m.next)
		return m.wrong
	}
	if wrong := judge(log); len(wrong) > 0 {
		t.Fatalf("a good log: %s", strings.Join(wrong, "\n"))
	}
	find := func(list []audit.Committed, kind record.Kind, task string) int {
		i := slices.IndexFunc(list, func(c audit.Committed) bool { return c.Entry.Kind == kind && c.Entry.Task == task })
		if i < 0 {
			t.Fatalf("no %s of task %q", kind, task)
		}
		return i
	}
	renumber := func(list []audit.Committed) []audit.Committed {
		for i := range list {
			list[i].Seq = uint64(i)
		}
		return list
	}
	type entries = []audit.Committed
	// with changes the first entry of a kind and task.
	with := func(kind record.Kind, task string, change func(*record.Entry)) func(entries) entries {
		return func(l entries) entries { change(&l[find(l, kind, task)].Entry); return l }
	}
	without := func(kind record.Kind, task string) func(entries) entries {
		return func(l entries) entries { i := find(l, kind, task); return renumber(slices.Delete(l, i, i+1)) }
	}
	again := func(kind record.Kind, task string) func(entries) entries {
		return func(l entries) entries { i := find(l, kind, task); return renumber(slices.Insert(l, i+1, l[i])) }
	}
	moved := func(kind record.Kind, task string, before record.Kind, beforeTask string) func(entries) entries {
		return func(l entries) entries {
			i := find(l, kind, task)
			e := l[i]
			l = slices.Delete(l, i, i+1)
			at := find(l, before, beforeTask)
			e.Entry.At = l[at].Entry.At
			return renumber(slices.Insert(l, at, e))
		}
	}
	start := func(change func(*record.TaskStart)) func(*record.Entry) {
		return func(e *record.Entry) { d := e.Detail.(record.TaskStart); change(&d); e.Detail = d }
	}
	step := func(change func(*record.TaskStep)) func(*record.Entry) {
		return func(e *record.Entry) { d := e.Detail.(record.TaskStep); change(&d); e.Detail = d }
	}
	for name, c := range map[string]struct {
		plant func(entries) entries
		want  string
	}{
		"a gap":                           {func(l entries) entries { return slices.Delete(l, 2, 3) }, "comes after"},
		"two submissions":                 {again(record.KindRunSubmitted, ""), "submitted twice"},
		"a plan that was not submitted":   {with(record.KindRunSubmitted, "", func(e *record.Entry) { e.Refs = nil }), "was not submitted"},
		"two starts":                      {again(record.KindTaskStarted, "a"), "task r/a is started and is running"},
		"a start before its time":         {moved(record.KindTaskStarted, "c", record.KindTaskStarted, "a"), "task r/c is started and is pending"},
		"two holders":                     {moved(record.KindTaskStarted, "b", record.KindTaskWaiting, "a"), `while r/a holds "k"`},
		"a lock that is not in the plan":  {with(record.KindTaskStarted, "a", start(func(d *record.TaskStart) { d.Locks = nil })), "is started with locks"},
		"an earlier fence":                {with(record.KindTaskStarted, "b", start(func(d *record.TaskStart) { d.Fence = 1 })), "has fence 1 after 1"},
		"another attempt's dispatch":      {with(record.KindTaskStarted, "b", func(e *record.Entry) { e.Dispatch = "t-other" }), "names dispatch"},
		"an attempt too many":             {with(record.KindTaskStarted, "b", func(e *record.Entry) { e.Attempt = 2 }), "attempt 2 of task r/b"},
		"a wait too long":                 {with(record.KindTaskWaiting, "a", step(func(d *record.TaskStep) { d.Until = "2001-01-01T00:00:00Z" })), "is tried again after"},
		"a retry for nothing":             {with(record.KindTaskWaiting, "a", step(func(d *record.TaskStep) { d.Reason = "output" })), "is tried again after attempt 1"},
		"a skip that is missing":          {without(record.KindTaskSkipped, "d"), "task r/d is pending in a commit"},
		"a skip without its cause":        {with(record.KindTaskSkipped, "d", step(func(d *record.TaskStep) { d.Cause = "a" })), "which it does not depend on"},
		"a skip because of a running one": {moved(record.KindTaskSkipped, "d", record.KindTaskFailed, "b"), "because of task b, which is running"},
		"a task that ends twice":          {again(record.KindTaskDone, "a"), "task.done of task r/a, which is done"},
		"a run that is never settled":     {without(record.KindRunSettled, ""), "does not settle it"},
		"a run that is settled twice":     {again(record.KindRunSettled, ""), "follows after run r was settled"},
		"a run that is settled early":     {moved(record.KindRunSettled, "", record.KindTaskDone, "c"), "is settled and task c is"},
		"a run that is settled as done":   {with(record.KindRunSettled, "", func(e *record.Entry) { d := e.Detail.(record.RunEnd); d.State = "done"; e.Detail = d }), "is settled as done, want failed"},
		"counts that are wrong":           {with(record.KindRunSettled, "", func(e *record.Entry) { d := e.Detail.(record.RunEnd); d.Skipped = 7; e.Detail = d }), "is settled with 7 tasks skipped"},
		"a cancel that was not requested": {with(record.KindTaskSkipped, "d", func(e *record.Entry) {
			e.Kind, e.Detail = record.KindTaskCancelled, record.TaskStep{}
		}), "was not requested"},
	} {
		if wrong := strings.Join(judge(c.plant(slices.Clone(log))), "\n"); !strings.Contains(wrong, c.want) {
			t.Errorf("%s: want an objection with %q, got\n%s", name, c.want, wrong)
		}
	}
}
