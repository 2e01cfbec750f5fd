package console

import (
	"testing"
	"time"
)

func TestAgoUsesTheLargestUnit(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour: "just now", 900 * time.Millisecond: "just now", time.Second: "1 second ago", 119 * time.Second: "1 minute ago",
		2*time.Hour + 59*time.Minute: "2 hours ago", 36 * time.Hour: "1 day ago", 100 * 24 * time.Hour: "100 days ago",
	} {
		if got := Ago(d); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}
