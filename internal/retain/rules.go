package retain

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Rules say what may go. The zero value lets nothing go.
type Rules struct {
	Checkouts Limit         // Age since the last use; Count has no meaning
	Content   Limit         // Age since the end; Count of dispatches
	Evidence  time.Duration // since the end of the dispatch; 0: kept for ever
}

// Limit bounds one class. Zero fields bound nothing.
type Limit struct {
	Age   time.Duration // older ones go
	Count int           // the newest so many stay
	Size  int64         // in bytes of all that is stored: the oldest go until it fits
}

// Check refuses rules that contradict each other: evidence that would be gone
// while the content that it vouches for is still there.
func (r Rules) Check() error {
	if min(r.Checkouts.Age, r.Content.Age, r.Evidence) < 0 || min(r.Checkouts.Size, r.Content.Size) < 0 || min(r.Checkouts.Count, r.Content.Count) < 0 {
		return errors.New("a rule is negative")
	}
	switch {
	case r.Checkouts.Count != 0:
		return errors.New("checkouts are not counted: give an age or a size")
	case r.Evidence == 0:
		return nil
	case r.Content.Age == 0:
		return fmt.Errorf("evidence would go after %s and content stay for ever: give content an age too, at most that of evidence, or leave out that of evidence", Age(r.Evidence))
	case r.Evidence < r.Content.Age:
		return fmt.Errorf("evidence would go after %s, before content, which goes after %s: evidence is kept at least as long as content", Age(r.Evidence), Age(r.Content.Age))
	}
	return nil
}

// Strings returns the rules, one in a line, in the form of the configuration.
func (r Rules) Strings() []string {
	out := slices.Concat(limitStrings(api.ClassCheckouts, r.Checkouts), limitStrings(api.ClassContent, r.Content))
	if r.Evidence > 0 {
		out = append(out, ageRule(api.ClassEvidence, r.Evidence))
	}
	return out
}

func limitStrings(c api.Class, l Limit) (out []string) {
	if l.Age > 0 {
		out = append(out, ageRule(c, l.Age))
	}
	if l.Count > 0 {
		out = append(out, countRule(c, l.Count))
	}
	if l.Size > 0 {
		out = append(out, sizeRule(c, l.Size))
	}
	return out
}

func ageRule(c api.Class, age time.Duration) string { return fmt.Sprintf("%s.age %s", c, Age(age)) }
func countRule(c api.Class, n int) string           { return fmt.Sprintf("%s.count %d", c, n) }
func sizeRule(c api.Class, n int64) string          { return fmt.Sprintf("%s.size %s", c, size(n)) }

// Age writes a duration as the configuration has it: in days where it is whole
// days.
func Age(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	return d.String()
}

func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for n >= 1024 && n%1024 == 0 && i < len(units)-1 {
		n, i = n/1024, i+1
	}
	return fmt.Sprintf("%d%s", n, units[i])
}

// Item is a dispatch as far as retention is concerned.
type Item struct {
	ID       api.DispatchID
	Ended    time.Time    // zero while it runs, waits for an answer, or may be needed by a run that goes on: nothing of it goes
	Pinned   bool         // nothing of it goes either
	Content  []api.Digest // nil once it was removed
	Evidence []api.Digest // nil once it was removed
}

// removal is one thing that a rule lets go.
type removal struct {
	id    api.DispatchID
	class api.Class
	rule  string
	bytes int64
}

// stored is an Item of which something may go.
type stored struct {
	id                api.DispatchID
	ended             time.Time
	content, evidence []key
}

// plan applies the rules, and takes what goes out of the heap. What is not in
// list is in the heap only, so it counts for the size and does not go.
//
// Age comes first, then count, then size, each on what the one before it has
// left, oldest first.
func (r Rules) plan(list []stored, h heap, now time.Time) []removal {
	slices.SortFunc(list, func(a, b stored) int {
		if c := a.ended.Compare(b.ended); c != 0 {
			return c
		}
		if a.id < b.id {
			return -1
		}
		return 1
	})
	var out []removal
	var left []stored // those whose content stays
	for _, s := range list {
		if len(s.content) > 0 {
			left = append(left, s)
		}
	}
	drop := func(rule string) {
		out = append(out, removal{left[0].id, api.ClassContent, rule, h.drop(left[0].content, false)})
		left = left[1:]
	}
	for r.Content.Age > 0 && len(left) > 0 && now.Sub(left[0].ended) > r.Content.Age {
		drop(ageRule(api.ClassContent, r.Content.Age))
	}
	for r.Content.Count > 0 && len(left) > r.Content.Count {
		drop(countRule(api.ClassContent, r.Content.Count))
	}
	if r.Content.Size > 0 {
		for total := h.totals().content; total > r.Content.Size && len(left) > 0; {
			drop(sizeRule(api.ClassContent, r.Content.Size))
			total -= out[len(out)-1].bytes
		}
	}
	for _, s := range list {
		if r.Evidence > 0 && len(s.evidence) > 0 && now.Sub(s.ended) > r.Evidence {
			out = append(out, removal{s.id, api.ClassEvidence, ageRule(api.ClassEvidence, r.Evidence), h.drop(s.evidence, true)})
		}
	}
	return out
}
