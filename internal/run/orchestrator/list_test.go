package orchestrator_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// ids joins the ids of runs.
func ids(list []api.Run) string {
	var words []string
	for i := range list {
		words = append(words, string(list[i].RunID))
	}
	return strings.Join(words, " ")
}

// endOne ends the oldest active dispatch of a run.
func (w *world) endOne(id api.RunID, state api.Event, reason api.Reason) {
	w.t.Helper()
	synctest.Wait()
	for _, j := range w.desk.sorted((*job).active) {
		if j.order.Run == id {
			w.desk.end(j, state, reason, true)
			synctest.Wait()
			return
		}
	}
	w.t.Fatalf("run %s has no active dispatch", id)
}

// A list has the runs that the caller may see and the filter selects, newest
// first; pages neither repeat nor omit one, and an open run never falls off the
// list that asks for all of them.
//
// proves R-O8
func TestListFiltersAndPages(t *testing.T) {
	bubble(t, orchestrator.Config{Queues: map[api.Name]int{"night": 2}}, func(w *world) {
		ctx := context.Background()
		submit := func(by api.Principal, p api.Plan) {
			_, err := w.offer(as(by), p)
			w.must(err)
			time.Sleep(time.Minute)
		}
		began := time.Now()
		submit(ann, fan("open1", 1))
		submit(ann, fan("done1", 1))
		night := fan("night1", 1)
		night.Queue, night.Labels = "night", map[api.Name]string{"team": "web", "kind": "night ly=1"}
		submit(ben, night)
		submit(ben, fan("failed1", 1))
		slowly := fan("slow1", 1)
		slowly.Tasks[0].Subagent = fickle
		submit(ann, slowly)
		w.endOne("done1", api.EventFinished, "")
		w.endOne("failed1", api.EventFailed, api.ReasonAgent)
		check := func(p api.Principal, f api.RunFilter, want string) {
			t.Helper()
			list, err := w.o.List(ctx, p, f)
			if err != nil || ids(list) != want {
				t.Errorf("%s, %+v: %q, want %q: %v", p, f, ids(list), want, err)
			}
		}
		look := func() {
			t.Helper()
			check(root, api.RunFilter{}, "slow1 failed1 night1 done1 open1")
			check(ann, api.RunFilter{}, "slow1 done1 open1")
			check(ann, api.RunFilter{Principal: ben}, "")
			check(root, api.RunFilter{Principal: ben}, "failed1 night1")
			check(root, api.RunFilter{Queue: "night"}, "night1")
			check(root, api.RunFilter{Queue: "nothing"}, "")
			check(root, api.RunFilter{Labels: []api.Label{{Key: "team", Value: "web"}, {Key: "kind", Value: "night ly=1"}}}, "night1")
			check(root, api.RunFilter{Labels: []api.Label{{Key: "team", Value: "web"}, {Key: "kind", Value: "other"}}}, "")
			check(root, api.RunFilter{Labels: []api.Label{{Key: "absent"}}}, "")
			check(root, api.RunFilter{Subagent: fickle}, "slow1")
			check(root, api.RunFilter{Subagent: work, States: []api.RunState{api.RunDone, api.RunFailed}}, "failed1 done1")
			check(root, api.RunFilter{States: []api.RunState{api.RunRunning}}, "slow1 night1 open1")
			check(root, api.RunFilter{Since: began.Add(3 * time.Minute)}, "slow1 failed1")
			check(root, api.RunFilter{Limit: 2}, "slow1 failed1")
			check(root, api.RunFilter{Limit: 2, After: "failed1"}, "night1 done1")
			check(root, api.RunFilter{Limit: 2, After: "done1"}, "open1")
			check(root, api.RunFilter{Limit: 2, After: "open1"}, "")
			check(root, api.RunFilter{Limit: 2, Open: true}, "slow1 failed1 night1 open1")
			for _, hidden := range []api.RunID{"night1", "unknown"} {
				if _, err := w.o.List(ctx, ann, api.RunFilter{After: hidden}); api.CodeOf(err) != api.CodeNotFound {
					t.Errorf("after %s: %v", hidden, err)
				}
			}
		}
		look()
		w.restart()
		synctest.Wait()
		look()
		w.finishAll()
		check(root, api.RunFilter{Labels: []api.Label{{Key: "team", Value: "web"}}, States: []api.RunState{api.RunDone}}, "night1")
		check(root, api.RunFilter{Queue: "night", States: []api.RunState{api.RunDone}}, "night1")
	})
}

// Of 10,000 runs a list reads its page, whatever the filter. Removing a run
// removes what it was found by.
func TestListOfTenThousandRuns(t *testing.T) {
	w := newWorld(t, scratch(t), orchestrator.Config{})
	defer func() { w.must(w.stop()) }()
	ctx := t.Context()
	_, err := w.offer(as(ann), fan("first", 40))
	w.must(err)
	for len(w.desk.sorted((*job).active)) > 0 || w.o.Busy() {
		for _, j := range w.desk.sorted((*job).active) {
			w.desk.end(j, api.EventFinished, "", true)
		}
		if list, err := w.o.List(ctx, ann, api.RunFilter{States: []api.RunState{api.RunDone}}); err == nil && len(list) == 1 {
			break
		}
	}
	const total = 10_000
	w.must(w.store.Update(ctx, func(tx *store.Tx) error {
		_, err := tx.Exec(`WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
INSERT INTO run(id, principal, submitted, settled, state, counts, paused_by, cancel_by, cancel_why, doc, plan)
SELECT 'r' || i, principal, submitted, settled, iif(i % 100, 'done', 'failed'), counts, '', '', '', json_set(doc, '$.queue', iif(i = 7, 'rare', 'default')), plan FROM n, run WHERE id = 'first'`, total)
		return err
	}))
	for _, f := range []struct {
		filter api.RunFilter
		want   int
	}{
		{api.RunFilter{}, 50},
		{api.RunFilter{Limit: 1 << 30}, 1000},
		{api.RunFilter{Queue: "rare"}, 1},
		{api.RunFilter{Queue: "absent"}, 0},
		{api.RunFilter{Subagent: work, States: []api.RunState{api.RunFailed}, Limit: 1000}, total / 100},
		{api.RunFilter{States: []api.RunState{api.RunCancelled}}, 0},
		{api.RunFilter{After: "r11"}, 10},
	} {
		list, err := w.o.List(ctx, ann, f.filter)
		if err != nil || len(list) != f.want {
			t.Errorf("%+v: %d runs, want %d: %v", f.filter, len(list), f.want, err)
		}
	}
	seen, last := map[api.RunID]bool{}, api.RunID("")
	for {
		list, err := w.o.List(ctx, ann, api.RunFilter{After: last, Limit: 1000})
		w.must(err)
		if len(list) == 0 {
			break
		}
		for i := range list {
			if last = list[i].RunID; seen[last] {
				t.Fatalf("run %s is on two pages", last)
			}
			seen[last] = true
		}
	}
	if len(seen) != total {
		t.Errorf("the pages have %d runs", len(seen))
	}
	w.must(w.store.Update(ctx, func(tx *store.Tx) error {
		_, err := tx.Exec("DELETE FROM run WHERE id = 'r7'")
		return err
	}))
	var terms int
	w.must(w.store.Read(ctx, func(v *store.View) error {
		return v.Get("SELECT count(*) FROM run_term WHERE term = 'queue rare'", nil, &terms)
	}))
	if terms != 0 {
		t.Errorf("%d terms of a removed run", terms)
	}
}

// What waits for a person is a question until its answer, and a failed run until
// its owner or the caller has looked at it. It survives a restart, and nobody
// sees what belongs to others.
func TestWaitingListsQuestionsAndFailedRuns(t *testing.T) {
	bubble(t, orchestrator.Config{}, func(w *world) {
		ctx := context.Background()
		for _, id := range []api.RunID{"asks", "fails", "fine"} {
			_, err := w.offer(as(ann), fan(id, 1))
			w.must(err)
		}
		check := func(p api.Principal, want string) {
			t.Helper()
			list, err := w.o.Waiting(ctx, p)
			var got []string
			for _, item := range list {
				got = append(got, fmt.Sprintf("%s %s", item.Kind, item.RunID))
			}
			if err != nil || strings.Join(got, ", ") != want {
				t.Errorf("%s: %q, want %q: %v", p, got, want, err)
			}
		}
		check(ann, "")
		w.endOne("asks", api.EventNeedsInput, "")
		w.endOne("fails", api.EventFailed, api.ReasonAgent)
		w.endOne("fine", api.EventFinished, "")
		for range 2 {
			check(ann, "question asks, failed fails")
			check(root, "question asks, failed fails")
			check(ben, "")
			w.restart()
			synctest.Wait()
		}
		w.must(w.o.See(ctx, as(root), "fails"))
		check(root, "question asks")
		check(ann, "question asks, failed fails")
		if err := w.o.See(ctx, as(ben), "fails"); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("another principal: %v", err)
		}
		w.must(w.o.See(ctx, as(ann), "asks")) // it is not settled: nothing to look at yet
		w.must(w.o.See(ctx, as(ann), "fails"))
		w.must(w.o.See(ctx, as(ann), "fails"))
		check(ann, "question asks")
		_, err := w.o.Answer(ctx, as(ann), "asks", api.RunAnswer{Task: "t0", Text: "yes"})
		w.must(err)
		check(ann, "")
		w.endOne("asks", api.EventFailed, api.ReasonAgent)
		check(ann, "failed asks")
		w.restart()
		synctest.Wait()
		check(ann, "failed asks")
	})
}
