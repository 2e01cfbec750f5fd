package cron

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// fields are the five fields of an expression, each as the set of its values.
type fields struct {
	minute, hour, dom, month, dow map[int]bool
	either                        bool // dom and dow are alternatives
}

// set is a field written out by hand, so that the reference parses nothing.
func set(from, to, step int) map[int]bool {
	m := map[int]bool{}
	for i := from; i <= to; i += step {
		m[i] = true
	}
	return m
}

func (f *fields) match(t time.Time) bool {
	day := f.dom[t.Day()] && f.dow[int(t.Weekday())]
	if f.either {
		day = f.dom[t.Day()] || f.dow[int(t.Weekday())]
	}
	return day && f.minute[t.Minute()] && f.hour[t.Hour()] && f.month[int(t.Month())]
}

// reference lists the slots by brute force. It walks over all instants, minute by
// minute, and watches the clock on the wall: each value of it counts once, and what the
// clock jumps over counts at the instant after. It shares no code with the scheduler.
func reference(f *fields, zone *time.Location, from, to time.Time) (slots []time.Time) {
	wallOf := func(t time.Time) int64 {
		l := t.In(zone)
		return time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), 0, 0, time.UTC).Unix() / 60
	}
	shown := wallOf(from.Add(-24 * time.Hour)) // the latest minute that the clock has shown
	for t := from.Add(-24 * time.Hour); t.Before(to); t = t.Add(time.Minute) {
		now := wallOf(t)
		due := false
		for ; shown < now; shown++ {
			due = f.match(time.Unix((shown+1)*60, 0).UTC()) || due
		}
		if due && !t.Before(from) {
			slots = append(slots, t)
		}
	}
	return slots
}

var zones = []string{"Europe/Rome", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Chatham", "America/Sao_Paulo", "UTC"}

type example struct {
	expression string
	fields
}

func examples() []example {
	all, any7, months, doms := set(0, 59, 1), set(0, 6, 1), set(1, 12, 1), set(1, 31, 1)
	return []example{
		{"30 2 * * *", fields{set(30, 30, 1), set(2, 2, 1), doms, months, any7, false}},
		{"*/7 1-3 * * *", fields{set(0, 59, 7), set(1, 3, 1), doms, months, any7, false}},
		{"0 0 29 2 *", fields{set(0, 0, 1), set(0, 0, 1), set(29, 29, 1), set(2, 2, 1), any7, false}},
		{"15 2 1,15 * 1-5", fields{set(15, 15, 1), set(2, 2, 1), set(1, 15, 14), months, set(1, 5, 1), true}},
		{"0 */6 * 3,10 0", fields{set(0, 0, 1), set(0, 23, 6), doms, set(3, 10, 7), set(0, 0, 1), false}},
		{"* * * * *", fields{all, set(0, 23, 1), doms, months, any7, false}},
	}
}

// span is the years that are simulated: both changes in each, and two leap days.
var (
	begin = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	end   = time.Date(2032, 1, 1, 0, 0, 0, 0, time.UTC)
)

// compare returns the first difference between Next and the reference.
func compare(next func(time.Time) time.Time, want []time.Time, from, to time.Time) error {
	at := from.Add(-time.Nanosecond)
	for i, w := range want {
		if at = next(at); !at.Equal(w) {
			return fmt.Errorf("slot %d is %s, want %s", i, at, w.In(at.Location()))
		}
	}
	if at = next(at); at.Before(to) {
		return fmt.Errorf("%s is a slot more", at)
	}
	return nil
}

// proves R-O10 (which slots there are: no slot is lost and none is twice over both
// changes of daylight saving time and leap days, against an independent reference)
func TestSlotsOfEightYearsInSevenZones(t *testing.T) {
	for _, name := range zones {
		t.Run(strings.ReplaceAll(name, "/", "-"), func(t *testing.T) {
			t.Parallel()
			zone, err := time.LoadLocation(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range examples() {
				from, to := begin, end
				if x.expression == "* * * * *" { // the reference takes long
					to = begin.AddDate(1, 0, 0)
				}
				want := reference(&x.fields, zone, from, to)
				s, err := Parse(x.expression, name)
				if err != nil {
					t.Fatal(err)
				}
				if err := compare(s.Next, want, from, to); err != nil {
					t.Errorf("%s: %v", x.expression, err)
				}
			}
		})
	}
}

// A half hour and three quarters, a zone that changes both ways within them, a zone that
// left out a day, one that changed by 24 hours while it had daylight saving time, and one
// that moved by a quarter of an hour.
//
// proves R-O10
func TestSlotsInUnusualZones(t *testing.T) {
	for _, z := range []struct {
		name string
		from int // year
	}{{"Asia/Kolkata", 2024}, {"Asia/Kathmandu", 1985}, {"America/St_Johns", 2024}, {"Pacific/Apia", 2011}, {"Pacific/Kwajalein", 1993}, {"Asia/Pyongyang", 2018}} {
		t.Run(strings.ReplaceAll(z.name, "/", "-"), func(t *testing.T) {
			t.Parallel()
			zone, err := time.LoadLocation(z.name)
			if err != nil {
				t.Fatal(err)
			}
			from := time.Date(z.from, 1, 1, 0, 0, 0, 0, time.UTC)
			to := from.AddDate(1, 0, 15)
			for _, x := range examples() {
				s, err := Parse(x.expression, z.name)
				if err != nil {
					t.Fatal(err)
				}
				want := reference(&x.fields, zone, from, to)
				if err := compare(s.Next, want, from, to); err != nil {
					t.Errorf("%s: %v", x.expression, err)
				}
				for i, at := range want {
					if !s.Has(at) || i%10 == 0 && s.Has(at.Add(time.Second)) {
						t.Fatalf("%s: Has(%s) is wrong", x.expression, at)
					}
				}
			}
		})
	}
}

// proves R-O10 (the reference finds a scheduler that is wrong)
func TestTheReferenceFindsWrongSchedulers(t *testing.T) {
	x := examples()[0] // 30 2 * * *
	zone, err := time.LoadLocation("Europe/Rome")
	if err != nil {
		t.Fatal(err)
	}
	want := reference(&x.fields, zone, begin, end)
	s, err := Parse(x.expression, "Europe/Rome")
	if err != nil {
		t.Fatal(err)
	}
	for what, next := range map[string]func(time.Time) time.Time{
		"drops what is in a gap": func(t time.Time) time.Time {
			at := s.Next(t)
			if at.Hour() != 2 || at.Minute() != 30 {
				at = s.Next(at)
			}
			return at
		},
		"fires twice where the clock is set back": func(t time.Time) time.Time {
			if l := t.Add(time.Hour).In(zone); l.Hour() == 2 && l.Minute() == 30 && t.In(zone).Hour() == 2 {
				return l
			}
			return s.Next(t)
		},
		"counts in UTC": func(t time.Time) time.Time {
			u, _ := Parse("30 1 * * *", "UTC")
			return u.Next(t)
		},
		"adds 24 hours": func(t time.Time) time.Time {
			if t.Before(begin) {
				return s.Next(t)
			}
			return t.Add(24 * time.Hour)
		},
		"knows no leap day": func(t time.Time) time.Time {
			at := s.Next(t)
			if at.Month() == time.February && at.Day() == 29 {
				at = s.Next(at)
			}
			return at
		},
	} {
		if err := compare(next, want, begin, end); err == nil {
			t.Errorf("a scheduler that %s passes", what)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, x := range []struct{ expression, zone, want string }{
		{"0 2 * *", "UTC", "five fields"},
		{"0 2 * * * *", "UTC", "five fields"},
		{"@daily", "UTC", "five fields"},
		{"TZ=Asia/Tokyo 0 2 * * *", "UTC", "five fields"},
		{"60 2 * * *", "UTC", "cron"},
		{"0 0 30 2 *", "UTC", "no date"},
		{"H 2 * * *", "UTC", "cron"},
		{"0 2 L * *", "UTC", "cron"},
		{"0 2 * * 1#2", "UTC", "five fields"},
		{"*/0 2 * * *", "UTC", "cron"},
		{strings.Repeat("1,", 200) + "1 2 * * *", "UTC", "five fields"},
		{"0 2 * * *", "", "IANA"},
		{"0 2 * * *", "Local", "IANA"},
		{"0 2 * * *", "localtime", "IANA"},
		{"0 2 * * *", "../../etc/passwd", "IANA"},
		{"0 2 * * *", "Europe/Atlantis", "IANA"},
	} {
		if _, err := Parse(x.expression, x.zone); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("Parse(%q, %q): %v, want an error with %q", x.expression, x.zone, err, x.want)
		}
	}
	for _, good := range []string{"0 2 * * mon-fri", "  0   2 * JAN 7", "0 0 29 2 1", "0-59/5 * * * *", "0 22-2 * * *"} {
		if _, err := Parse(good, "Europe/Rome"); err != nil {
			t.Error(err)
		}
	}
}

// A zone may skip a whole day, and a program's zone is not that of its machine.
func TestASkippedDay(t *testing.T) {
	s, err := Parse("0 12 * * *", "Pacific/Apia")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	at := time.Date(2011, 12, 28, 23, 0, 0, 0, time.UTC)
	for range 4 {
		at = s.Next(at)
		got = append(got, at.Format("02T15:04"))
	}
	if want := []string{"29T12:00", "31T00:00", "31T12:00", "01T12:00"}; !slices.Equal(got, want) {
		t.Errorf("slots %v, want %v", got, want)
	}
}

func BenchmarkNext(b *testing.B) {
	s, err := Parse("* * * * *", "Europe/Rome")
	if err != nil {
		b.Fatal(err)
	}
	at := begin
	for b.Loop() {
		at = s.Next(at)
	}
}
