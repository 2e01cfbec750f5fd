package cron

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// fields are the five fields of an expression, each as the set of its values.
type fields struct {
	minute, hour, dom, month, dow uint64
	either                        bool // dom and dow are alternatives
	interval                      bool // the minute or the hour is an interval
}

// set is a field written out by hand, so that the reference parses nothing.
func set(from, to, step int) (m uint64) {
	for i := from; i <= to; i += step {
		m |= 1 << i
	}
	return m
}

// minute is what the clock on the wall shows.
type minute struct{ minute, hour, dom, month, dow uint64 }

func minuteOf(n int64) minute {
	t := time.Unix(n*60, 0).UTC()
	return minute{1 << t.Minute(), 1 << t.Hour(), 1 << t.Day(), 1 << int(t.Month()), 1 << int(t.Weekday())}
}

func (f *fields) match(m minute) bool {
	day := f.dom&m.dom != 0 && f.dow&m.dow != 0
	if f.either {
		day = f.dom&m.dom != 0 || f.dow&m.dow != 0
	}
	return day && f.minute&m.minute != 0 && f.hour&m.hour != 0 && f.month&m.month != 0
}

// reference lists the slots of each example by brute force. It walks over all instants,
// minute by minute, and watches the clock on the wall: each value of it counts once, or
// for an interval each time it is shown, and what the clock jumps over counts at the
// instant after. It shares no code with the scheduler.
func reference(list []example, zone *time.Location, from, to time.Time) [][]time.Time {
	wallOf := func(t time.Time) int64 {
		_, offset := t.In(zone).Zone()
		return (t.Unix() + int64(offset)) / 60
	}
	slots := make([][]time.Time, len(list))
	shown := wallOf(from.Add(-24 * time.Hour)) // the latest minute that the clock has shown
	for t := from.Add(-24 * time.Hour); t.Before(to); t = t.Add(time.Minute) {
		now := wallOf(t)
		var passed []minute
		for n := shown + 1; n < now; n++ {
			passed = append(passed, minuteOf(n))
		}
		is, first := minuteOf(now), now > shown
		shown = max(shown, now)
		if t.Before(from) {
			continue
		}
		for i := range list {
			f := &list[i].fields
			if (first || f.interval) && f.match(is) || slices.ContainsFunc(passed, f.match) {
				slots[i] = append(slots[i], t)
			}
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
		{"30 2 * * *", fields{set(30, 30, 1), set(2, 2, 1), doms, months, any7, false, false}},
		{"*/7 1-3 * * *", fields{set(0, 59, 7), set(1, 3, 1), doms, months, any7, false, true}},
		{"0 0 29 2 *", fields{set(0, 0, 1), set(0, 0, 1), set(29, 29, 1), set(2, 2, 1), any7, false, false}},
		{"15 2 1,15 * 1-5", fields{set(15, 15, 1), set(2, 2, 1), set(1, 15, 14), months, set(1, 5, 1), true, false}},
		{"0 */6 * 3,10 0", fields{set(0, 0, 1), set(0, 23, 6), doms, set(3, 10, 7), set(0, 0, 1), false, true}},
		{"* * * * *", fields{all, set(0, 23, 1), doms, months, any7, false, true}},
		{"20 * * * *", fields{set(20, 20, 1), set(0, 23, 1), doms, months, any7, false, true}},
		{"10-50/20 2 * * *", fields{set(10, 50, 20), set(2, 2, 1), doms, months, any7, false, true}},
		{"10,40 0-3 * * *", fields{set(10, 40, 30), set(0, 3, 1), doms, months, any7, false, false}},
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
			zone, err := load(name)
			if err != nil {
				t.Fatal(err)
			}
			want := reference(examples(), zone, begin, end)
			for i, x := range examples() {
				s, err := Parse(x.expression, name)
				if err != nil {
					t.Fatal(err)
				}
				to := end
				if x.expression == "* * * * *" { // four million slots
					to = begin.AddDate(1, 0, 7)
					want[i] = slices.DeleteFunc(want[i], func(at time.Time) bool { return !at.Before(to) })
				}
				if err := compare(s.Next, want[i], begin, to); err != nil {
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
			zone, err := load(z.name)
			if err != nil {
				t.Fatal(err)
			}
			from := time.Date(z.from, 1, 1, 0, 0, 0, 0, time.UTC)
			to := from.AddDate(1, 0, 15)
			want := reference(examples(), zone, from, to)
			for n, x := range examples() {
				s, err := Parse(x.expression, z.name)
				if err != nil {
					t.Fatal(err)
				}
				if err := compare(s.Next, want[n], from, to); err != nil {
					t.Errorf("%s: %v", x.expression, err)
				}
				for i, at := range want[n] {
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
	zone, err := load("Europe/Rome")
	if err != nil {
		t.Fatal(err)
	}
	want := reference([]example{x}, zone, begin, end)[0]
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

// The last day of a leap year after the listed changes of a zone, where Time.ZoneBounds
// of Go names an end that has passed, does not stop the search. The control is that it
// still does so; without it, periodEnd is simpler.
func TestTheLastDayOfALeapYear(t *testing.T) {
	for _, name := range []string{"Europe/Rome", "America/New_York", "Australia/Lord_Howe"} {
		for _, expression := range []string{"0 12 * * *", "0 */12 * * *"} {
			s, err := Parse(expression, name)
			if err != nil {
				t.Fatal(err)
			}
			last := time.Date(2040, 12, 31, 12, 0, 0, 0, s.zone)
			if _, end := last.ZoneBounds(); end.After(last) {
				t.Errorf("control: in %s the period of %s ends at %s", name, last, end)
			}
			at := last.Add(-49 * time.Hour)
			for _, want := range []int{0, 24, 48, 72} {
				for at = s.Next(at); at.Hour() != 12; at = s.Next(at) {
				}
				if from := last.AddDate(0, 0, -2); !at.Equal(from.Add(time.Duration(want) * time.Hour)) {
					t.Errorf("%s in %s: slot %s, want %d hours after %s", expression, name, at, want, from)
				}
			}
		}
	}
}

// Intervals continue while the clock on the wall shows an hour again; a fixed time is due
// once. The rule before, by which old entries are verified, paused both.
//
// proves R-O10
func TestTheRepeatedHour(t *testing.T) {
	first, again := time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC), time.Date(2026, 10, 25, 1, 30, 0, 0, time.UTC) // both 02:30 in Rome
	for expression, both := range map[string]bool{"* * * * *": true, "*/30 * * * *": true, "30 * * * *": true, "*/10 2 * * *": true, "0-40/10 2 * * *": true, "30 2 * * *": false, "30 1-3 * * *": false} {
		s, err := Parse(expression, "Europe/Rome")
		if err != nil {
			t.Fatal(err)
		}
		if !s.Has(first) || s.Has(again) != both || !s.HadOnce(first) || s.HadOnce(again) {
			t.Errorf("%s: has %t, %t, had once %t, %t", expression, s.Has(first), s.Has(again), s.HadOnce(first), s.HadOnce(again))
		}
	}
	s, err := Parse("* * * * *", "Europe/Rome")
	if err != nil {
		t.Fatal(err)
	}
	for at := first; at.Before(again.Add(2 * time.Hour)); at = at.Add(time.Minute) {
		if next := s.Next(at); !next.Equal(at.Add(time.Minute)) {
			t.Fatalf("after %s comes %s", at, next)
		}
	}
}

// Zones are those of the program, whatever ZONEINFO and the machine say. The control:
// time.LoadLocation takes them.
//
// proves R-O10
func TestZonesAreThoseOfTheProgram(t *testing.T) {
	if os.Getenv("ZONEINFO") == "" {
		dir := t.TempDir()
		for name, from := range map[string]string{"Europe/Rome": "Asia/Tokyo", "Planted/Zone": "Asia/Tokyo"} {
			files, err := database()
			if err != nil {
				t.Fatal(err)
			}
			r, err := files[from].Open()
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command(os.Args[0], "-test.run", "^TestZonesAreThoseOfTheProgram$") // time reads the variable once
		cmd.Env = append(os.Environ(), "ZONEINFO="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	summer := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	ours, err := Zone("Europe/Rome")
	if err != nil {
		t.Fatal(err)
	}
	machine, err := time.LoadLocation("Europe/Rome")
	if err != nil {
		t.Fatal(err)
	}
	if got := summer.In(ours).Hour(); got != 14 {
		t.Errorf("it is %d o'clock in Rome", got)
	}
	if got := summer.In(machine).Hour(); got != 21 {
		t.Errorf("the control: it is %d o'clock in the planted Rome", got)
	}
	if _, err := Zone("Planted/Zone"); err == nil {
		t.Error("a zone of the machine is accepted")
	}
	if _, err := time.LoadLocation("Planted/Zone"); err != nil {
		t.Errorf("the control: %v", err)
	}
	for _, name := range []string{"localtime", "posixrules", "right/UTC"} {
		if _, err := Zone(name); err == nil {
			t.Errorf("zone %s is accepted", name)
		}
	}
}

// A zone may skip a whole day, and a program's zone may differ from its machine's.
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
