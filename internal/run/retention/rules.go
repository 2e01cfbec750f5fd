package retention

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Rules say what to remove. The zero value keeps everything.
type Rules struct {
	Checkouts Limit         // Age since the last use; no Count
	Content   Limit         // Age since the end of the dispatch; Count of dispatches
	Evidence  time.Duration // age since the end of the dispatch; 0: kept for ever
	Runs      time.Duration // rows and plan of a run: age since it was settled; 0: kept for ever
}

// Limit limits one class. Zero fields are no limit.
type Limit struct {
	Age   time.Duration // remove older ones
	Count int           // keep this many of the newest
	Size  int64         // total bytes: remove the oldest until it fits
}

// Check refuses negative rules, and rules that would remove evidence before the
// content that it vouches for.
func (r Rules) Check() error {
	if min(r.Checkouts.Age, r.Content.Age, r.Evidence, r.Runs) < 0 || min(r.Checkouts.Size, r.Content.Size) < 0 || min(r.Checkouts.Count, r.Content.Count) < 0 {
		return errors.New("negative limit")
	}
	switch {
	case r.Checkouts.Count != 0:
		return errors.New("checkouts have no count limit: set an age or a size")
	case r.Evidence == 0:
		return nil
	case r.Content.Age == 0:
		return fmt.Errorf("evidence would be removed after %s and content kept for ever: set an age for content too, at most the age of evidence, or remove the age of evidence", Age(r.Evidence))
	case r.Evidence < r.Content.Age:
		return fmt.Errorf("evidence would be removed after %s, before content, which is removed after %s: keep evidence at least as long as content", Age(r.Evidence), Age(r.Content.Age))
	}
	return nil
}

// Strings returns each rule as the configuration has it.
func (r Rules) Strings() (out []string) {
	for _, rule := range []struct {
		set  bool
		text string
	}{
		{r.Checkouts.Age > 0, ageRule(api.ClassCheckouts, r.Checkouts.Age)},
		{r.Checkouts.Size > 0, sizeRule(api.ClassCheckouts, r.Checkouts.Size)},
		{r.Content.Age > 0, ageRule(api.ClassContent, r.Content.Age)},
		{r.Content.Count > 0, countRule(api.ClassContent, r.Content.Count)},
		{r.Content.Size > 0, sizeRule(api.ClassContent, r.Content.Size)},
		{r.Evidence > 0, ageRule(api.ClassEvidence, r.Evidence)},
		{r.Runs > 0, ageRule(api.ClassRuns, r.Runs)},
	} {
		if rule.set {
			out = append(out, rule.text)
		}
	}
	return out
}

func ageRule(c api.Class, age time.Duration) string { return fmt.Sprintf("%s.age %s", c, Age(age)) }
func countRule(c api.Class, n int) string           { return fmt.Sprintf("%s.count %d", c, n) }
func sizeRule(c api.Class, n int64) string          { return fmt.Sprintf("%s.size %s", c, size(n)) }

// Age formats a duration as the configuration has it: in days, if whole.
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

// Item is a dispatch as retention sees it.
type Item struct {
	ID       api.DispatchID
	Ended    time.Time    // zero while it runs, waits for an answer, or an active run may need it: nothing is removed
	Pinned   bool         // nothing is removed either
	Content  []api.Digest // nil once removed
	Evidence []api.Digest // nil once removed
}

// removal is content or evidence of a dispatch to remove under a rule.
type removal struct {
	id    api.DispatchID
	class api.Class
	rule  string
	bytes int64
}

// stored is an Item with something to remove.
type stored struct {
	id                api.DispatchID
	ended             time.Time
	content, evidence []key
}

// plan applies the rules to list and removes the references of what they select
// from h. Blobs of dispatches outside list count for the size, but stay.
//
// Age applies first, then count, then size, each to the rest of the one before,
// oldest first.
func (r Rules) plan(list []stored, h refCounts, now time.Time) []removal {
	slices.SortFunc(list, func(a, b stored) int { return cmp.Or(a.ended.Compare(b.ended), cmp.Compare(a.id, b.id)) })
	var out []removal
	var left []stored // those with content, oldest first
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
