package console

import (
	"fmt"
	"strings"
	"time"
)

// zone is a time in the zone that the user reads times in.
func (o *Output) zone(at time.Time) time.Time {
	if o.UTC {
		return at.UTC()
	}
	return at.Local()
}

// Time is an instant for people: with date and zone on a terminal, in RFC 3339
// elsewhere. No answer shows a time in another way, but for JSON.
func (o *Output) Time(at time.Time) string {
	if o.Screen {
		return o.zone(at).Format("2006-01-02 15:04:05 MST")
	}
	return o.zone(at).Format(time.RFC3339)
}

// Ago is a time in a list: how long ago it was on a terminal, such as 2 h ago,
// and the same as Time elsewhere. A time to come is in 2 h.
func (o *Output) Ago(at time.Time) string {
	if !o.Screen {
		return o.Time(at)
	}
	d := o.Now().Sub(at)
	if d < 0 {
		return "in " + rough(-d)
	}
	return rough(d) + " ago"
}

// rough is a duration in one unit, rounded down.
func rough(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d d", d/(24*time.Hour))
}

// EntryLine is a line of record.Entry, which begins with a time in RFC 3339,
// with that time shown as Time shows it.
func (o *Output) EntryLine(line string) string {
	if word, rest, ok := strings.Cut(line, " "); ok {
		if at, err := time.Parse(time.RFC3339, word); err == nil {
			line = o.Time(at) + " " + rest
		}
	}
	return Line(line)
}
