package background

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// loop runs l for howLong and returns when its steps began.
func loop(t *testing.T, howLong time.Duration, l Loop) (at []time.Duration) {
	t.Helper()
	begin, step := time.Now(), l.Step
	l.Step = func(ctx context.Context) time.Duration {
		at = append(at, time.Since(begin))
		return step(ctx)
	}
	ctx, cancel := context.WithTimeout(t.Context(), howLong)
	defer cancel()
	l.Run(ctx)
	if got := time.Since(begin); got != howLong {
		t.Errorf("the loop ended after %v, its context after %v", got, howLong)
	}
	return at
}

func TestALoopRepeatsAfterTheWaitOfItsStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits := []time.Duration{time.Second, 0, -time.Second, 3 * time.Second, Never}
		at := loop(t, time.Hour, Loop{First: 2 * time.Second, Step: func(context.Context) time.Duration {
			next := waits[0]
			waits = waits[1:]
			return next
		}})
		if want := []time.Duration{2 * time.Second, 3 * time.Second, 3 * time.Second, 3 * time.Second, 6 * time.Second}; !slices.Equal(at, want) {
			t.Errorf("steps at %v, want %v", at, want)
		}
	})
}

func TestASignalEndsAWaitAndIsNotLostDuringAStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSignal()
		for _, after := range []time.Duration{60, 120, 121, 122, 123, 180} { // three during the second step
			time.AfterFunc(after*time.Second, s.Send)
		}
		at := loop(t, time.Hour, Loop{First: Never, Wake: s.Sent, Step: func(ctx context.Context) time.Duration {
			_ = Pause(ctx, 5*time.Second)
			return Never
		}})
		want := []time.Duration{60 * time.Second, 120 * time.Second, 125 * time.Second, 180 * time.Second}
		if !slices.Equal(at, want) {
			t.Errorf("steps at %v, want %v", at, want)
		}
	})
}

// A channel that is closed at the next change is asked for before the step reads what
// may change.
func TestAChangeDuringAStepRepeatsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changed, steps := make(chan struct{}), 0
		loop(t, time.Hour, Loop{Wake: func() <-chan struct{} { return changed }, Step: func(context.Context) time.Duration {
			if steps++; steps == 1 {
				close(changed)
				changed = make(chan struct{})
			}
			return Never
		}})
		if steps != 2 {
			t.Errorf("%d steps, want 2", steps)
		}
	})
}

func TestALoopWhoseContextIsDoneTakesNoStep(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := NewSignal()
	s.Send()
	for range 100 { // a select picks at random
		Loop{Wake: s.Sent, Step: func(context.Context) time.Duration { t.Error("a step"); return 0 }}.Run(ctx)
	}
}

func TestAKeeperOutlivesItsCallerAndEndsWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
		k := Start(ctx)
		cancel()
		ended := false
		k.Go(func(ctx context.Context) {
			if ctx.Value(key{}) != "v" {
				t.Error("the value of the context is missing")
			}
			if err := Pause(ctx, time.Hour); err != nil {
				t.Errorf("the pause ended with the caller's context: %v", err)
			}
			<-ctx.Done()
			time.Sleep(time.Second)
			ended = true
		})
		time.Sleep(2 * time.Hour)
		k.Close()
		if !ended {
			t.Error("Close did not wait")
		}
		(*Keeper)(nil).Close()
	})
}

func TestAPauseEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := Pause(ctx, time.Second); err != nil {
			t.Error(err)
		}
		if err := Pause(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want that the context is done", err)
		}
	})
}

func TestABackoffDoublesUpToItsMost(t *testing.T) {
	b := Backoff{First: time.Second, Most: 10 * time.Second}
	for failures, want := range map[int]time.Duration{1: 1, 2: 2, 3: 4, 4: 8, 5: 10, 6: 10, 1 << 40: 10} {
		if got, want := b.After(failures), want*time.Second; got != want {
			t.Errorf("after %d failures: %v, want %v", failures, got, want)
		}
	}
	if got := (Backoff{First: time.Hour, Most: time.Minute}).After(1); got != time.Minute {
		t.Errorf("the first wait is %v, longer than the longest", got)
	}
	for range 100 {
		if got := Jitter(time.Minute); got < time.Minute || got > 66*time.Second {
			t.Errorf("a minute with jitter is %v", got)
		}
	}
}
