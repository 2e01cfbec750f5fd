package retention

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bailiwick-dev/bailiwick/api"
)

const day = 24 * time.Hour

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func digest(n int) api.Digest { return api.DigestOf(fmt.Appendf(nil, "%d", n)) }

// situation is some dispatches: how many days ago each ended (0: it runs) with
// content of 10 bytes of its own and evidence of 1.
type situation struct {
	rules Rules
	days  []int
	pins  []int // indices
}

// removed describes removals as "class index rule".
func (s situation) removed(t *testing.T) []string {
	t.Helper()
	h := refCounts{}
	var list []stored
	for i, d := range s.days {
		content, evidence := keys([]api.Digest{digest(2 * i)}), keys([]api.Digest{digest(2*i + 1)})
		*h.at(content[0]), *h.at(evidence[0]) = cell{size: 10, here: true}, cell{size: 1, here: true}
		h.add(content, evidence)
		if d > 0 && !slices.Contains(s.pins, i) {
			list = append(list, stored{api.DispatchID(fmt.Sprint(i)), noon.Add(-time.Duration(d) * day), content, evidence})
		}
	}
	var out []string
	for _, r := range s.rules.plan(list, h, noon) {
		out = append(out, fmt.Sprintf("%s %s %d", r.rule, r.id, r.bytes))
	}
	return out
}

func TestRulesSelectAloneAndTogether(t *testing.T) {
	for name, c := range map[string]struct {
		situation
		want []string
	}{
		"no rule":                {situation{days: []int{900, 1, 0}}, nil},
		"age":                    {situation{rules: Rules{Content: Limit{Age: 5 * day}}, days: []int{6, 5, 4, 0, 7}}, []string{"content.age 5d 4 10", "content.age 5d 0 10"}},
		"age and pin":            {situation{rules: Rules{Content: Limit{Age: 5 * day}}, days: []int{6, 7}, pins: []int{1}}, []string{"content.age 5d 0 10"}},
		"count":                  {situation{rules: Rules{Content: Limit{Count: 2}}, days: []int{1, 4, 3, 2, 0, 0}}, []string{"content.count 2 1 10", "content.count 2 2 10"}},
		"count, pins not in it":  {situation{rules: Rules{Content: Limit{Count: 2}}, days: []int{1, 4, 3, 2}, pins: []int{0}}, []string{"content.count 2 1 10"}},
		"size":                   {situation{rules: Rules{Content: Limit{Size: 25}}, days: []int{1, 4, 3}}, []string{"content.size 25B 1 10"}},
		"size, what runs counts": {situation{rules: Rules{Content: Limit{Size: 25}}, days: []int{0, 0, 3}}, []string{"content.size 25B 2 10"}},
		"size, pins count":       {situation{rules: Rules{Content: Limit{Size: 15}}, days: []int{3, 2}, pins: []int{0}}, []string{"content.size 15B 1 10"}},
		"size, nothing may go":   {situation{rules: Rules{Content: Limit{Size: 1}}, days: []int{0, 3}, pins: []int{1}}, nil},
		"age, count and size": {
			situation{rules: Rules{Content: Limit{Age: 8 * day, Count: 3, Size: 25}}, days: []int{9, 7, 6, 5, 4}},
			[]string{"content.age 8d 0 10", "content.count 3 1 10", "content.size 25B 2 10"},
		},
		"evidence": {
			situation{rules: Rules{Content: Limit{Age: 5 * day}, Evidence: 10 * day}, days: []int{6, 11}},
			[]string{"content.age 5d 1 10", "content.age 5d 0 10", "evidence.age 10d 1 1"},
		},
		"evidence and pin": {situation{rules: Rules{Content: Limit{Age: 5 * day}, Evidence: 10 * day}, days: []int{11}, pins: []int{0}}, nil},
	} {
		if got := c.removed(t); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestEvidenceIsNeverKeptShorterThanContent(t *testing.T) {
	for _, c := range []struct {
		rules Rules
		want  string // "" where they are good
	}{
		{Rules{}, ""},
		{Rules{Content: Limit{Age: day, Count: 1, Size: 1}}, ""},
		{Rules{Content: Limit{Age: day}, Evidence: day}, ""},
		{Rules{Content: Limit{Age: day}, Evidence: day - 1}, "before content"},
		{Rules{Evidence: day}, "kept for ever"},
		{Rules{Content: Limit{Count: 1, Size: 1}, Evidence: day}, "kept for ever"},
		{Rules{Content: Limit{Age: -day}}, "negative"},
		{Rules{Checkouts: Limit{Count: 3}}, "no count limit"},
	} {
		err := c.rules.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.rules, err, c.want)
		}
	}
}

// model is the simplest implementation of retention: it surveys everything again
// for each removal.
type model struct {
	rules Rules
	items []Item
	sizes map[api.Digest]int64
}

func (m *model) total() (n int64) {
	content, evidence := map[api.Digest]bool{}, map[api.Digest]bool{}
	for _, i := range m.items {
		for _, d := range i.Content {
			content[d] = true
		}
		for _, d := range i.Evidence {
			evidence[d] = true
		}
	}
	for d := range content {
		if !evidence[d] {
			n += m.sizes[d]
		}
	}
	return n
}

// oldest returns the index of the dispatch whose content expires first, or -1, and
// the number of candidates.
func (m *model) oldest() (at, n int) {
	at = -1
	for i, it := range m.items {
		if it.Ended.IsZero() || it.Pinned || it.Content == nil {
			continue
		}
		n++
		if o := at; o < 0 || it.Ended.Before(m.items[o].Ended) || it.Ended.Equal(m.items[o].Ended) && it.ID < m.items[o].ID {
			at = i
		}
	}
	return at, n
}

func (m *model) run() (gone []string) {
	for {
		i, n := m.oldest()
		c := m.rules.Content
		over := i >= 0 && (c.Age > 0 && noon.Sub(m.items[i].Ended) > c.Age || c.Count > 0 && n > c.Count || c.Size > 0 && m.total() > c.Size)
		if !over {
			break
		}
		m.items[i].Content = nil
		gone = append(gone, "content "+string(m.items[i].ID))
	}
	for i, it := range m.items {
		if m.rules.Evidence > 0 && !it.Ended.IsZero() && !it.Pinned && it.Evidence != nil && noon.Sub(it.Ended) > m.rules.Evidence {
			m.items[i].Evidence = nil
			gone = append(gone, "evidence "+string(it.ID))
		}
	}
	return gone
}

// referred is the set of digests that items refer to.
func (m *model) referred() map[api.Digest]bool {
	out := map[api.Digest]bool{}
	for _, i := range m.items {
		for _, d := range slices.Concat(i.Content, i.Evidence) {
			out[d] = true
		}
	}
	return out
}

func drawModel(t *rapid.T) *model {
	m := &model{sizes: map[api.Digest]int64{}}
	for i := range 12 {
		m.sizes[digest(i)] = rapid.Int64Range(0, 9).Draw(t, "size")
	}
	some := func(name string, low int) []api.Digest {
		return rapid.SliceOfN(rapid.Map(rapid.IntRange(0, 13), digest), low, 4).Draw(t, name) // two have no file
	}
	for i := range rapid.IntRange(0, 8).Draw(t, "dispatches") {
		it := Item{ID: api.DispatchID(fmt.Sprintf("d-%02d", i)), Pinned: rapid.IntRange(0, 4).Draw(t, "pin") == 0, Content: some("content", 1), Evidence: some("evidence", 1)}
		if n := rapid.IntRange(0, 9).Draw(t, "ended"); n > 0 {
			it.Ended = noon.Add(-time.Duration(n) * day)
		}
		if rapid.IntRange(0, 5).Draw(t, "gone") == 0 {
			it.Content = nil
		}
		m.items = append(m.items, it)
	}
	m.rules.Content = Limit{
		Age: time.Duration(rapid.IntRange(0, 9).Draw(t, "age")) * day, Count: rapid.IntRange(0, 6).Draw(t, "count"), Size: rapid.Int64Range(0, 40).Draw(t, "total"),
	}
	if m.rules.Content.Age > 0 && rapid.Bool().Draw(t, "evidence too") {
		m.rules.Evidence = m.rules.Content.Age + time.Duration(rapid.IntRange(0, 3).Draw(t, "longer"))*day
	}
	return m
}

func (m *model) view() (refCounts, []stored) {
	h := refCounts{}
	var list []stored
	for d, n := range m.sizes {
		*h.at(keyOf(d)) = cell{size: n, here: true}
	}
	for _, i := range m.items {
		content, evidence := keys(i.Content), keys(i.Evidence)
		h.add(content, evidence)
		if !i.Ended.IsZero() && !i.Pinned {
			list = append(list, stored{i.ID, i.Ended, content, evidence})
		}
	}
	return h, list
}

func TestPlanMatchesTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		h, list := m.view()
		if err := m.rules.Check(); err != nil {
			t.Fatal(err)
		}
		var got []string
		var freed int64
		for _, r := range m.rules.plan(list, h, noon) {
			got, freed = append(got, string(r.class)+" "+string(r.id)), freed+r.bytes
		}
		before := m.referred()
		want := m.run()
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("selected %q, the model %q", got, want)
		}
		after := m.referred()
		var lost int64
		for d, n := range m.sizes {
			if h.at(keyOf(d)).referred() != after[d] {
				t.Errorf("%s: referenced %t, in the model %t", d, !after[d], after[d])
			}
			if before[d] && !after[d] {
				lost += n
			}
		}
		if freed != lost {
			t.Errorf("reported %d bytes freed, want %d", freed, lost)
		}
	})
}
