package orchestrator_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
)

// Many people and workers at once, on real time, while the service is closed and
// opened under them: everything settles, nothing runs twice or under another's
// lock, and the log is whole.
//
// proves R-O3, R-O5, R-O6, R-O7
func TestManyClientsAcrossRestarts(t *testing.T) {
	w := newWorld(t, scratch(t), orchestrator.Config{Queues: map[api.Name]int{api.DefaultQueue: 16, narrow: 2}})
	defer func() { w.must(w.stop()) }()
	w.log.crowd = true
	const people, runs = 6, 8
	var plans []api.Plan
	for p := range people {
		for n := range runs {
			plan := dag(api.RunID(fmt.Sprintf("r-%d-%d", p, n)), 12)
			for i := range plan.Tasks {
				task := &plan.Tasks[i]
				task.Retry = api.Retry{Attempts: 3, Backoff: api.Backoff{Min: api.Duration(time.Millisecond), Max: api.Duration(2 * time.Millisecond)}}
				task.Locks = append(task.Locks, api.Lock{Key: fmt.Sprintf("hot/%d", i%3), Shared: (i+n)%2 == 0})
				if i%4 == 0 {
					task.Subagent = quick
				}
			}
			if n%3 == 0 {
				plan.Queue = narrow
			}
			w.remember(plan)
			plans = append(plans, plan)
		}
	}
	var o atomic.Pointer[orchestrator.Orchestrator]
	o.Store(w.o)
	var crowd, workers sync.WaitGroup
	for p := range people {
		crowd.Go(func() { w.person(t, &o, plans[p*runs:(p+1)*runs], uint64(p)) })
	}
	for n := range 3 {
		workers.Go(func() {
			r := rand.New(rand.NewPCG(9, uint64(n)))
			for w.desk.endAny(r) {
				runtime.Gosched()
			}
		})
	}
	for range 5 { // it comes and goes
		list, err := w.o.List(t.Context(), root, api.RunFilter{Limit: 1000})
		w.must(err)
		for len(list) < len(plans)/8 { // not before there is something
			changed := w.store.Committed()
			if list, err = w.o.List(t.Context(), root, api.RunFilter{Limit: 1000}); err == nil && len(list) < len(plans)/8 {
				<-changed
			}
		}
		w.desk.freeze()
		w.must(w.o.Close())
		w.open()
		o.Store(w.o)
	}
	crowd.Wait()
	w.desk.mu.Lock()
	w.desk.over = true
	w.desk.mu.Unlock()
	w.desk.moved.Broadcast()
	workers.Wait()
	w.finishCrowd()
	w.mu.Lock()
	w.heads = nil // what is between two of them is not looked at here
	w.mu.Unlock()
	w.read()
	if wrong := slices.Concat(w.log.wrong, w.desk.complaints(), w.running()); len(wrong) > 0 {
		t.Errorf("%s", strings.Join(wrong[:min(len(wrong), 20)], "\n"))
	}
	if n, err := w.ledger.Check(t.Context()); err != nil || n != w.log.next || len(w.log.runs) != len(plans) {
		t.Errorf("%d runs of %d; the log has %d entries, %d were read: %v", len(w.log.runs), len(plans), n, w.log.next, err)
	}
	t.Logf("%d entries: %v", w.log.next, w.log.kinds)
}

// finishCrowd has everything end that is left.
func (w *world) finishCrowd() {
	w.t.Helper()
	for {
		changed := w.store.Committed()
		list, err := w.o.List(context.Background(), root, api.RunFilter{Limit: 1000})
		w.must(err)
		if !slices.ContainsFunc(list, func(r api.Run) bool { return !r.State.Settled() }) {
			return
		}
		running := w.desk.sorted((*job).active)
		for _, j := range running {
			state := api.EventFinished
			if j.d.CancelBy != "" {
				state = api.EventCancelled
			}
			w.desk.end(j, state, "", true)
		}
		queues, err := w.o.Queues(context.Background())
		w.must(err)
		if len(running) == 0 && !slices.ContainsFunc(queues, func(q api.Queue) bool { return q.Running > 0 }) {
			<-changed // the backoff of an attempt elapses
		}
	}
}

// person submits plans and does things to them, insisting where the service is
// away.
func (w *world) person(t *testing.T, o *atomic.Pointer[orchestrator.Orchestrator], plans []api.Plan, seed uint64) {
	r := rand.New(rand.NewPCG(7, seed))
	ctx := context.Background()
	insist := func(call func(*orchestrator.Orchestrator) error) {
		for {
			current := o.Load()
			err := call(current)
			if code := api.CodeOf(err); err == nil || code == api.CodeConflict || code == api.CodeNotFound {
				return
			}
			if current.Err() != nil {
				t.Error(current.Err())
				return
			}
		}
	}
	for _, p := range plans {
		raw := w.remember(p)
		insist(func(o *orchestrator.Orchestrator) error {
			_, err := o.Submit(ctx, as(ann), api.RunRequest{Plan: raw})
			return err
		})
		task := p.Tasks[r.IntN(len(p.Tasks))].ID
		switch r.IntN(4) {
		case 0:
			insist(func(o *orchestrator.Orchestrator) error {
				_, err := o.Cancel(ctx, as(ann), p.ID, api.RunCancel{Task: task})
				return err
			})
		case 1:
			insist(func(o *orchestrator.Orchestrator) error { _, err := o.Pause(ctx, as(ann), p.ID); return err })
			insist(func(o *orchestrator.Orchestrator) error { _, err := o.Describe(ctx, ann, p.ID, "", 3); return err })
			insist(func(o *orchestrator.Orchestrator) error { _, err := o.Resume(ctx, as(ann), p.ID); return err })
		case 2:
			insist(func(o *orchestrator.Orchestrator) error {
				_, err := o.Answer(ctx, as(ann), p.ID, api.RunAnswer{Task: task, Text: "yes"})
				return err
			})
		}
		insist(func(o *orchestrator.Orchestrator) error { _, err := o.Events(ctx, ann, p.ID, "", 0); return err })
		insist(func(o *orchestrator.Orchestrator) error { _, err := o.Queues(ctx); return err })
	}
}

// endAny ends one of those that run, or waits for one, and tells of it if there
// is an engine to notify. False: the test has ended.
func (k *desk) endAny(r *rand.Rand) bool {
	k.mu.Lock()
	var found *job
	for found == nil && !k.over {
		for _, j := range k.jobs {
			if j.active() {
				found = j
			}
		}
		if found == nil {
			k.moved.Wait() // for an effect
		}
	}
	if k.over {
		k.mu.Unlock()
		return false
	}
	state, reason := api.EventFinished, api.Reason("")
	switch dice := r.IntN(4); {
	case found.d.CancelBy != "":
		state = api.EventCancelled
	case dice == 0:
		state, reason = api.EventFailed, api.ReasonAgent
	}
	k.finish(found, state, reason, "")
	tell, d := k.tell, found.d
	if found.untold = (time.Time{}); tell == nil {
		found.untold = k.now()
	}
	k.mu.Unlock()
	if tell != nil {
		tell(d)
	}
	return true
}
