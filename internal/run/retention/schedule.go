package retention

import (
	"context"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/background"
)

// schedule runs collections in the background: at once when an earlier service
// left one unfinished, and then at an interval since the last one, which may have
// been by an earlier service.
type schedule struct {
	every   time.Duration // 0: never
	last    time.Time     // zero: never
	pending bool
	now     func() time.Time
	jitter  func(time.Duration) time.Duration // a random duration below the argument
	collect func(context.Context)
}

func (s *schedule) run(ctx context.Context) {
	first := s.wait()
	if s.pending {
		first = 0
	}
	background.Loop{First: first, Step: func(ctx context.Context) time.Duration {
		s.collect(ctx)
		s.last = s.now()
		return s.wait()
	}}.Run(ctx)
}

// wait returns the time until the next collection, with up to a tenth of jitter,
// so that services started together do not collect together.
func (s *schedule) wait() time.Duration {
	if s.every <= 0 {
		return background.Never
	}
	due := s.every - s.now().Sub(s.last) + s.jitter(s.every/10+1)
	return min(max(due, s.jitter(min(s.every/10, time.Minute)+1)), s.every+s.every/10)
}
