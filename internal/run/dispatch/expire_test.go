package dispatch

import (
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// A question does not expire early because the clock is set forward while it
// waits. The controls are a clock that is not set, and time that passes.
//
// proves R-D6, R-D4
func TestQuestionDoesNotExpireWhenTheClockIsSet(t *testing.T) {
	for name, c := range map[string]struct {
		set, passes time.Duration
		want        api.Event
	}{
		"control: not set":             {0, 59 * time.Minute, api.EventNeedsInput},
		"forward":                      {2 * time.Hour, 59 * time.Minute, api.EventNeedsInput},
		"back":                         {-2 * time.Hour, 59 * time.Minute, api.EventNeedsInput},
		"control: not set, its time":   {0, 61 * time.Minute, api.EventFailed},
		"forward, and its time passes": {2 * time.Hour, 61 * time.Minute, api.EventFailed},
		"back, and longer passes":      {-2 * time.Hour, 181 * time.Minute, api.EventFailed},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t)
			set, passed := time.Duration(0), time.Duration(0)
			began := time.Now()
			g.cfg.Now = func() time.Time { return began.Add(set + passed) }
			g.cfg.Steady = func() time.Time { return began.Add(passed) }
			r := g.asks(t, func(_ *api.Dispatch, m *record.Manifest, _ *record.Result) { m.Limits.Answer = api.Duration(time.Hour) })
			if err := g.collect(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if _, err := g.expireDue(); err != nil { // as the loop does when it is told of the question
				t.Fatal(err)
			}
			set, passed = c.set, c.passes
			if _, err := g.expireDue(); err != nil {
				t.Fatal(err)
			}
			got, _, err := g.row(t.Context(), r.record.ID)
			if err != nil || got.record.State != c.want {
				t.Errorf("it is %s, want %s; %v", got.record.State, c.want, err)
			}
			if c.want == api.EventNeedsInput && g.times.left(&got.record) <= 0 {
				t.Error("it can no longer be answered")
			}
		})
	}
}
