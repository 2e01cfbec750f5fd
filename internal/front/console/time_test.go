package console

import (
	"testing"
	"time"
)

// A pipe gets RFC 3339 with a zone, a terminal a date and a zone, and a list on a
// terminal an age. --utc is UTC everywhere.
func TestTimesHaveADateAndAZone(t *testing.T) {
	local := time.Local
	time.Local = time.FixedZone("CET", 3600)
	defer func() { time.Local = local }()
	at := time.Date(2026, 11, 21, 23, 22, 11, 123, time.UTC)
	for _, c := range []struct {
		screen, utc     bool
		time, ago, line string
	}{
		{false, false, "2026-11-22T00:22:11+01:00", "2026-11-22T00:22:11+01:00", "2026-11-22T00:22:11+01:00 x [#1]"},
		{false, true, "2026-11-21T23:22:11Z", "2026-11-21T23:22:11Z", "2026-11-21T23:22:11Z x [#1]"},
		{true, false, "2026-11-22 00:22:11 CET", "2 h ago", "2026-11-22 00:22:11 CET x [#1]"},
		{true, true, "2026-11-21 23:22:11 UTC", "2 h ago", "2026-11-21 23:22:11 UTC x [#1]"},
	} {
		o := Output{Screen: c.screen, UTC: c.utc, Now: func() time.Time { return at.Add(2*time.Hour + time.Minute) }}
		if got := o.Time(at); got != c.time {
			t.Errorf("Time = %q, want %q", got, c.time)
		}
		if got := o.Ago(at); got != c.ago {
			t.Errorf("Ago = %q, want %q", got, c.ago)
		}
		if got := o.EntryLine("2026-11-21T23:22:11Z x [#1]"); got != c.line {
			t.Errorf("EntryLine = %q, want %q", got, c.line)
		}
	}
}

func TestAges(t *testing.T) {
	at := time.Date(2026, 11, 21, 14, 22, 11, 0, time.UTC)
	for want, d := range map[string]time.Duration{
		"0 s ago": 0, "59 s ago": 59*time.Second + 999*time.Millisecond, "1 min ago": time.Minute, "59 min ago": time.Hour - 1,
		"1 h ago": time.Hour, "47 h ago": 48*time.Hour - 1, "2 d ago": 48 * time.Hour, "400 d ago": 400 * 24 * time.Hour,
		"in 5 min": -5*time.Minute - 2*time.Second, "in 30 d": -30 * 24 * time.Hour,
	} {
		o := Output{Screen: true, Now: func() time.Time { return at.Add(d) }}
		if got := o.Ago(at); got != want {
			t.Errorf("%s: Ago = %q, want %q", d, got, want)
		}
	}
}

// A line that begins otherwise is shown as it is, escaped.
func TestEntryLineWithoutATime(t *testing.T) {
	o := Output{}
	for in, want := range map[string]string{"": "", "no time": "no time", "14:22:11 x": "14:22:11 x", "a\x1b[2Jb\n": `a\x1b[2Jb\x0a`} {
		if got := o.EntryLine(in); got != want {
			t.Errorf("EntryLine(%q) = %q, want %q", in, got, want)
		}
	}
}
