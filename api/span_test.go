package api

import (
	"math"
	"testing"
	"time"
)

// A number of units that does not fit becomes the longest duration, never a short or
// negative one.
func TestASpanDoesNotOverflow(t *testing.T) {
	for n, want := range map[int64]time.Duration{
		0: 0, 1: time.Second, -1: -time.Second, 9223372036: 9223372036 * time.Second, 9223372037: math.MaxInt64,
		math.MaxInt64: math.MaxInt64, -9223372037: math.MinInt64, math.MinInt64: math.MinInt64, 18446744074: math.MaxInt64,
	} {
		if got := Span(n, time.Second); got != want {
			t.Errorf("%d seconds are %s, want %s", n, got, want)
		}
	}
	if got := Span(math.MaxInt64, 1); got != math.MaxInt64 {
		t.Errorf("nanoseconds: %s", got)
	}
}
