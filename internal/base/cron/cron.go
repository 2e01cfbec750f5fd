// Package cron says when a cron expression of five fields is due in a time zone. The
// zone database is part of the program; that of the machine is never read, so that two
// machines agree.
//
// A slot is a time of the clock on the wall. One that the zone skips is due at the
// first instant after the gap. One that exists twice is due once, at the first; where
// the minute or the hour is an interval, with * or /, it is due both times.
//
// Carries R-O10.
package cron

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"

	parser "github.com/netresearch/go-cron"
)

// searchYears is how far the next slot may be: the longest time without a 29 February
// on a day of the week is 40 years.
const searchYears = 41

var form = regexp.MustCompile(`^[0-9A-Za-z*/,-]+( [0-9A-Za-z*/,-]+){4}$`)

var errNoZone = errors.New("not in the database")

// Schedule is a cron expression in a zone.
type Schedule struct {
	spec     parser.Schedule // in UTC, which has no gaps
	zone     *time.Location
	interval bool // the minute or the hour is one
}

// Parse reads an expression and the name of a zone. Day of the month and day of the
// week are alternatives where both are restricted, as in crontab(5).
func Parse(expression, zone string) (*Schedule, error) {
	loc, err := Zone(zone)
	if err != nil {
		return nil, err
	}
	text := strings.Join(strings.Fields(expression), " ")
	if !form.MatchString(text) || len(text) > 256 {
		return nil, fmt.Errorf("cron %.80q: want five fields: minute, hour, day of the month, month, day of the week; such as \"0 2 * * 1-5\"", expression)
	}
	p := parser.MustNewParser(parser.Minute | parser.Hour | parser.Dom | parser.Month | parser.Dow | parser.DowOrDom).WithMaxSearchYears(searchYears)
	spec, err := p.Parse("CRON_TZ=UTC " + text)
	if err != nil {
		return nil, fmt.Errorf("cron %.80q: %w", expression, err)
	}
	fields := strings.Fields(text)
	s := &Schedule{spec, loc, strings.ContainsAny(fields[0]+fields[1], "*/")}
	if s.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, fmt.Errorf("cron %.80q: no date matches it", expression)
	}
	return s, nil
}

// Zone returns a zone of the IANA database that is part of the program.
func Zone(name string) (*time.Location, error) {
	if name == "" || strings.EqualFold(name, "local") || strings.EqualFold(name, "localtime") { // of the machine
		return nil, errors.New("zone: want the name of a zone of the IANA database, such as Europe/Rome or UTC")
	}
	loc, err := load(name)
	if err != nil {
		return nil, fmt.Errorf("zone %.80q: no such zone in the IANA database; want a name such as Europe/Rome or UTC", name)
	}
	return loc, nil
}

// Next returns the first slot after t, in the zone; the zero time if no slot follows.
func (s *Schedule) Next(t time.Time) time.Time {
	once := s.nextOnce(t)
	if !s.interval || once.IsZero() {
		return once
	}
	return s.nextShown(t, once)
}

// nextShown returns the first instant after t, and before end, at which the clock on the
// wall shows a time of the expression; end if no instant is. It looks only where times
// may be shown again: in the period of t, and in those that begin with a step back.
func (s *Schedule) nextShown(t, end time.Time) time.Time {
	after, was := t, math.MaxInt
	for at := t.In(s.zone); at.Before(end); at = periodEnd(at) {
		_, offset := at.Zone()
		if offset < was {
			shown := time.Duration(offset) * time.Second
			wall := s.match(after.UTC().Add(shown))
			if found := wall.Add(-shown); !wall.IsZero() && found.Before(end) && found.Before(periodEnd(at)) {
				return found.In(s.zone)
			}
		}
		after, was = periodEnd(at).Add(-time.Nanosecond), offset
	}
	return end
}

// nextOnce returns the first slot after t if each time of the clock on the wall is due
// once.
func (s *Schedule) nextOnce(t time.Time) time.Time {
	local := t.In(s.zone)
	wall := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), 0, time.UTC)
	for {
		if wall = s.match(wall); wall.IsZero() {
			return time.Time{}
		}
		// Within the hour that is repeated, the instant may be one before t.
		if at := instant(wall, s.zone); at.After(t) {
			return at
		}
	}
}

// match returns the first time of the expression after a time of the clock on the wall.
// The parser steps through the seconds of a minute one by one; all but the last are left
// out.
func (s *Schedule) match(wall time.Time) time.Time {
	return s.spec.Next(wall.Truncate(time.Minute).Add(59 * time.Second))
}

// Has reports whether t is a slot.
func (s *Schedule) Has(t time.Time) bool { return s.Next(t.Add(-time.Nanosecond)).Equal(t) }

// HadOnce reports whether t was a slot under the rules before version 5 (see plan.Rules):
// intervals paused while the clock on the wall showed times again.
func (s *Schedule) HadOnce(t time.Time) bool {
	return s.nextOnce(t.Add(-time.Nanosecond)).Equal(t)
}

// instant returns the first instant at which the clock on the wall of a zone shows
// wall, or has passed it.
func instant(wall time.Time, zone *time.Location) time.Time {
	for at := wall.Add(-48 * time.Hour).In(zone); ; at = periodEnd(at) { // no two offsets differ by more
		_, offset := at.Zone()
		found := wall.Add(-time.Duration(offset) * time.Second).In(zone)
		switch {
		case found.Before(at): // wall is in the gap before at
			return at
		case found.Before(periodEnd(at)):
			return found
		}
	}
}

// periodEnd returns an instant after t until which the zone of t has one offset.
//
// On the last day of a leap year, Time.ZoneBounds of Go 1.26 says that the period ended
// when that day began, if the offset follows from a rule, not from a list of changes. No
// rule changes the offset on that day.
func periodEnd(t time.Time) time.Time {
	_, end := t.ZoneBounds()
	switch {
	case end.IsZero():
		return time.Unix(1<<42, 0) // after all slots that are searched for
	case !end.After(t):
		return time.Date(t.UTC().Year()+1, 1, 1, 0, 0, 0, 0, time.UTC).In(t.Location())
	}
	return end
}
