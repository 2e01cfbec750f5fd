package e2e

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// clockTime is a time of day, and wholeTime one with its date and zone.
var (
	clockTime = regexp.MustCompile(`\b\d\d:\d\d:\d\d\b`)
	wholeTime = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)(\s|$|[,:;)])`)
)

// On a pipe every verb prints times in RFC 3339 with the zone of TZ, or in UTC
// with --utc.
func TestTimesOnPipesHaveDateAndZone(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	w.env = append(w.env, "TZ=Asia/Kathmandu")
	id := w.submit(planned("r-times", shellTask("one", "true")))
	dispatch := string(task(t, w.awaitSettled(id), "one").DispatchID)
	w.must("stop", "--all", "--reason", "times")
	w.must("principal", "add", "agent:claude")
	w.must("token", "create", "agent:claude", "--expires", "1d", "--out", w.path("token"))
	for _, line := range []string{
		"audit list", "audit show 3", "run list", "run watch r-times", "run show r-times", "dispatch list", "dispatch show " + dispatch, "stop list",
		"token list", "status", "catalog history", "catalog show",
	} {
		got, utc := w.must(strings.Fields(line)...), w.must(append(strings.Fields(line), "--utc")...)
		if clockTime.MatchString(wholeTime.ReplaceAllString(got, " ")) {
			t.Errorf("%s: a time without date or zone:\n%s", line, got)
		}
		if !strings.Contains(got, "+05:45") || strings.Contains(utc, "+05:45") {
			t.Errorf("%s: times in another zone than that of TZ, or --utc:\n%s%s", line, got, utc)
		}
	}
	first, _, _ := strings.Cut(w.must("audit", "list", "--first", "1"), " ")
	if at, err := time.Parse(time.RFC3339, first); err != nil || time.Since(at) > time.Hour {
		t.Errorf("the first entry is of %q: %v", first, err)
	}
	if clock := "14:22:11 x"; wholeTime.MatchString(clock) || !clockTime.MatchString(clock) {
		t.Error("control: a time of day passes")
	}
}
