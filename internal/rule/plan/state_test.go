package plan

import (
	"flag"
	"slices"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

var update = flag.Bool("update", false, "write the files that the tests compare")

func TestEveryRunStateIsReachedAndOnlySettledStatesAreFinal(t *testing.T) {
	reached := map[api.RunState]bool{api.RunRunning: true}
	for range api.RunStates() {
		for _, tr := range RunTransitions() {
			reached[tr.To] = reached[tr.To] || reached[tr.From]
		}
	}
	for _, s := range api.RunStates() {
		leaves := slices.ContainsFunc(RunTransitions(), func(tr RunTransition) bool { return tr.From == s })
		if !reached[s] || leaves == s.Settled() {
			t.Errorf("%s: reached %v, left %v", s, reached[s], leaves)
		}
	}
}

func TestRunStateFollowsFromItsTasks(t *testing.T) {
	for _, c := range []struct {
		paused, blocked bool
		want            api.RunState
	}{{false, false, api.RunRunning}, {false, true, api.RunWaiting}, {true, false, api.RunPaused}, {true, true, api.RunPaused}} {
		if got := RunState(c.paused, c.blocked); got != c.want {
			t.Errorf("paused %t, blocked %t: %s, want %s", c.paused, c.blocked, got, c.want)
		}
	}
	counts := func(done, failed, cancelled int) map[api.TaskState]int {
		return map[api.TaskState]int{api.TaskDone: done, api.TaskFailed: failed, api.TaskCancelled: cancelled}
	}
	for _, c := range []struct {
		counts    map[api.TaskState]int
		cancelled bool
		want      api.RunState
	}{
		{counts(2, 0, 0), false, api.RunDone},
		{counts(2, 0, 0), true, api.RunDone}, // it was cancelled too late to stop a task
		{counts(1, 1, 0), false, api.RunFailed},
		{counts(1, 0, 1), false, api.RunCancelled}, // one task was cancelled, not the run
		{counts(0, 0, 2), false, api.RunCancelled},
		{counts(1, 1, 1), false, api.RunFailed},
		{map[api.TaskState]int{api.TaskDone: 1, api.TaskCancelled: 1, api.TaskSkipped: 3}, false, api.RunCancelled},
		{map[api.TaskState]int{api.TaskDenied: 1, api.TaskCancelled: 1}, false, api.RunFailed},
		{map[api.TaskState]int{api.TaskFailed: 1, api.TaskSkipped: 1}, false, api.RunFailed},
		{counts(1, 0, 1), true, api.RunCancelled},
		{counts(1, 1, 0), true, api.RunFailed},
		{counts(1, 1, 1), true, api.RunCancelled},
	} {
		for _, from := range []api.RunState{api.RunRunning, api.RunWaiting, api.RunPaused} {
			if got := Settle(from, c.counts, c.cancelled); got != c.want {
				t.Errorf("%v from %s, cancelled %t: %s, want %s", c.counts, from, c.cancelled, got, c.want)
			}
		}
	}
}

// MIN of a backoff is a minimum, and MAX a maximum.
//
// proves R-O4
func TestDelayLiesBetweenMinAndTheDoubledBound(t *testing.T) {
	of := func(low, high string) *api.PlanTask {
		var b api.Backoff
		if err := b.UnmarshalText([]byte(low + ".." + high)); err != nil {
			t.Fatal(err)
		}
		return &api.PlanTask{Retry: api.Retry{Attempts: 20, Backoff: b}}
	}
	for _, c := range []struct {
		task      *api.PlanTask
		failed    int
		low, high string
	}{
		{of("1s", "2s"), 1, "1s", "2s"},
		{of("1s", "2s"), 9, "1s", "2s"},
		{of("1s", "1m"), 1, "1s", "2s"},
		{of("1s", "1m"), 2, "1s", "4s"},
		{of("1s", "1m"), 19, "1s", "1m0s"},
		{of("3s", "3s"), 4, "3s", "3s"},
		{of("24h", "24h"), 20, "24h0m0s", "24h0m0s"},
		{&api.PlanTask{}, 3, "2s", "16s"},
	} {
		if low, high := Delay(c.task, c.failed); low.String() != c.low || high.String() != c.high {
			t.Errorf("%v after %d failures: %s to %s, want %s to %s", c.task.Retry.Backoff, c.failed, low, high, c.low, c.high)
		}
	}
}
