package retention

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// trial runs a schedule for a time and returns when it collected.
func trial(t *testing.T, s schedule, howLong time.Duration) (collected []time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), howLong)
		defer cancel()
		begin := time.Now()
		if !s.last.IsZero() {
			s.last = begin.Add(s.last.Sub(noon)) // relative to the begin
		}
		s.now, s.jitter = time.Now, func(time.Duration) time.Duration { return 0 }
		s.collect = func(context.Context) { collected = append(collected, time.Since(begin)) }
		s.run(ctx)
	})
	return collected
}

func TestTheScheduleKeepsItsInterval(t *testing.T) {
	for name, c := range map[string]struct {
		schedule
		want []time.Duration
	}{
		"no interval":                        {schedule{}, nil},
		"never was":                          {schedule{every: time.Hour}, []time.Duration{0, time.Hour, 2 * time.Hour}},
		"an earlier service did":             {schedule{every: time.Hour, last: noon.Add(-20 * time.Minute)}, []time.Duration{40 * time.Minute, 100 * time.Minute}},
		"long ago":                           {schedule{every: time.Hour, last: noon.Add(-100 * time.Hour)}, []time.Duration{0, time.Hour, 2 * time.Hour}},
		"the clock was set back":             {schedule{every: time.Hour, last: noon.Add(100 * time.Hour)}, []time.Duration{66 * time.Minute, 126 * time.Minute}},
		"something is left undone":           {schedule{every: time.Hour, last: noon.Add(-20 * time.Minute), pending: true}, []time.Duration{0, time.Hour, 2 * time.Hour}},
		"something is left undone, no timer": {schedule{pending: true}, []time.Duration{0}},
	} {
		got := trial(t, c.schedule, 150*time.Minute)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: collected after %v, want %v", name, got, c.want)
		}
	}
}
