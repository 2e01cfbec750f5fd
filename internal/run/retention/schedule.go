package retention

import (
	"context"
	"time"
)

// schedule runs collections in the background: at once when an earlier service
// left one unfinished, and then at an interval since the last one, which may have
// been by an earlier service.
type schedule struct {
	every   time.Duration // 0: never
	last    time.Time     // zero: never
	pending bool
	now     func() time.Time
	wanted  <-chan struct{}
	jitter  func(time.Duration) time.Duration // a random duration below the argument
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

// wait returns the time until the next collection, with up to a tenth of jitter,
// so that services started together do not collect together.
func (s *schedule) wait() time.Duration {
	if s.every <= 0 {
		return 24 * time.Hour // the timer has no effect
	}
	due := s.every - s.now().Sub(s.last) + s.jitter(s.every/10+1)
	return min(max(due, s.jitter(min(s.every/10, time.Minute)+1)), s.every+s.every/10)
}
