package retain

import (
	"context"
	"time"
)

// schedule is when the keeper does something by itself: what an earlier
// service left undone at once, and then every so often since the last time,
// whoever was running then.
type schedule struct {
	every   time.Duration // 0: never
	last    time.Time     // zero: it never was
	pending bool
	now     func() time.Time
	wanted  <-chan struct{}
	jitter  func(time.Duration) time.Duration // from 0 up to the given
	collect func(context.Context)
	measure func(context.Context)
}

func (s *schedule) run(ctx context.Context) {
	if s.pending {
		s.collect(ctx)
		s.last = s.now()
	}
	timer := time.NewTimer(s.wait())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			if s.every > 0 {
				s.collect(ctx)
				s.last = s.now()
			}
			timer.Reset(s.wait())
		case <-s.wanted:
			s.measure(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// wait is how long until the next time: with up to a tenth on top, so that
// services that start together do not collect together.
func (s *schedule) wait() time.Duration {
	if s.every <= 0 {
		return 24 * time.Hour // for nothing
	}
	due := s.every - s.now().Sub(s.last) + s.jitter(s.every/10+1)
	return min(max(due, s.jitter(min(s.every/10, time.Minute)+1)), s.every+s.every/10)
}
