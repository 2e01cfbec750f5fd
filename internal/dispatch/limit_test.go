package dispatch

import (
	"math"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// A request can shorten the limit of a subagent and nothing else, whatever
// number it gives: in nanoseconds a large one is a negative one.
func TestTimeoutNeverRaisesALimit(t *testing.T) {
	target := api.Target{Limits: api.Limits{Timeout: api.Duration(10 * time.Minute)}}
	for seconds, want := range map[int]time.Duration{
		0: 10 * time.Minute, 1: time.Second, 60: time.Minute, 600: 10 * time.Minute, 601: 10 * time.Minute,
		math.MaxInt32: 10 * time.Minute, math.MaxInt64 / int(time.Second): 10 * time.Minute, math.MaxInt64/int(time.Second) + 1: 10 * time.Minute,
		1_000_000_000_000_000_000: 10 * time.Minute, math.MaxInt64 - 1: 10 * time.Minute, math.MaxInt64: 10 * time.Minute, 18_446_744_074: 10 * time.Minute,
	} {
		a := &submission{request: api.DispatchRequest{TimeoutSeconds: seconds}}
		if got := time.Duration(a.limits(target).Timeout); got != want {
			t.Errorf("with %d seconds it is %s, want %s", seconds, got, want)
		}
	}
}
