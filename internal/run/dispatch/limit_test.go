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
		a := &subject{request: api.DispatchRequest{TimeoutSeconds: seconds}}
		if got := time.Duration(a.limits(target).Timeout); got != want {
			t.Errorf("with %d seconds it is %s, want %s", seconds, got, want)
		}
	}
}

// The refusal of a long timeout says what was asked for and what the limit is, also of a
// number that is no duration.
func TestALongTimeoutIsRefusedReadably(t *testing.T) {
	for seconds, want := range map[int]string{
		601:                  "timeout of 10m1s: ",
		1_000_000_000_000:    "timeout of 1000000000000 seconds: ",
		math.MaxInt64:        "timeout of 9223372036854775807 seconds: ",
		18_446_744_074 + 600: "timeout of 18446744674 seconds: ", // whose nanoseconds are 10 minutes, modulo 2^64
	} {
		a := &subject{request: api.DispatchRequest{TimeoutSeconds: seconds}, subagent: api.Subagent{Name: "edit", Limits: api.Limits{Timeout: api.Duration(10 * time.Minute)}}}
		err := a.checkTimeout()
		if want += `subagent "edit" has the limit 10m0s, which a request may only shorten`; err == nil || err.Error() != want {
			t.Errorf("%d: %v, want %s", seconds, err, want)
		}
	}
}
