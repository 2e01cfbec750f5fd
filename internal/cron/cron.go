// Package cron says when a cron expression of five fields is due in a time zone. The
// zone database is part of the program, so that a machine without one agrees.
//
// A slot is a time of the clock on the wall. One that the zone skips is due at the
// first instant after the gap; one that exists twice is due once, at the first.
//
// Carries R-O10.
package cron

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // the zone database

	parser "github.com/netresearch/go-cron"
)

// searchYears is how far the next slot may be: the longest time without a 29 February
// on a day of the week is 40 years.
const searchYears = 41

var form = regexp.MustCompile(`^[0-9A-Za-z*/,-]+( [0-9A-Za-z*/,-]+){4}$`)

// Schedule is a cron expression in a zone.
type Schedule struct {
	spec parser.Schedule // in UTC, which has no gaps
	zone *time.Location
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
	s := &Schedule{spec, loc}
	if s.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, fmt.Errorf("cron %.80q: no date matches it", expression)
	}
	return s, nil
}

// Zone returns a zone of the IANA database.
func Zone(name string) (*time.Location, error) {
	if name == "" || strings.EqualFold(name, "local") || strings.EqualFold(name, "localtime") { // of the machine
		return nil, errors.New("zone: want the name of a zone of the IANA database, such as Europe/Rome or UTC")
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("zone %.80q: no such zone in the IANA database; want a name such as Europe/Rome or UTC", name)
	}
	return loc, nil
}

// Next returns the first slot after t, in the zone; the zero time if no slot follows.
func (s *Schedule) Next(t time.Time) time.Time {
	local := t.In(s.zone)
	wall := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), 0, time.UTC)
	for {
		if wall = s.spec.Next(wall); wall.IsZero() {
			return time.Time{}
		}
		// Within the hour that is repeated, the instant may be one before t.
		if at := instant(wall, s.zone); at.After(t) {
			return at
		}
	}
}

// Has reports whether t is a slot.
func (s *Schedule) Has(t time.Time) bool { return s.Next(t.Add(-time.Nanosecond)).Equal(t) }

// instant returns the first instant at which the clock on the wall of a zone shows
// wall, or has passed it.
func instant(wall time.Time, zone *time.Location) time.Time {
	for at := wall.Add(-48 * time.Hour).In(zone); ; { // no two offsets differ by more
		begin, end := at.ZoneBounds()
		_, offset := at.Zone()
		found := wall.Add(-time.Duration(offset) * time.Second).In(zone)
		switch {
		case !begin.IsZero() && found.Before(begin): // wall is in the gap before begin
			return begin
		case end.IsZero() || found.Before(end):
			return found
		}
		at = end
	}
}
