package e2e

import (
	"iter"
	"testing"
	"time"
)

// longestPause is the longest pause between two polls. What a test polls with often is
// a command, whose processor time the other tests need.
const longestPause = 100 * time.Millisecond

// polling yields false at once and then after pauses that double, and true one last
// time when bound has passed. Tests poll where nothing can tell them of a change.
func polling(bound time.Duration) iter.Seq[bool] {
	return func(yield func(late bool) bool) {
		end := time.Now().Add(bound)
		for pause := time.Millisecond; ; pause = min(2*pause, longestPause) {
			late := time.Now().After(end)
			if !yield(late) || late {
				return
			}
			time.Sleep(pause)
		}
	}
}

func TestPollingEndsLate(t *testing.T) {
	t.Parallel()
	polls, lates := 0, 0
	began := time.Now()
	for late := range polling(20 * time.Millisecond) {
		polls++
		if late {
			lates++
		}
	}
	if polls < 3 || lates != 1 || time.Since(began) < 20*time.Millisecond {
		t.Errorf("%d polls, %d of them late, within %v", polls, lates, time.Since(began))
	}
}
