package record

import (
	"fmt"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// needAt is a need by its place.
type needAt struct{ name, item string }

func checkNeeds(list []needAt) error {
	return CheckNeeds(len(list), func(i int) (api.Name, string) { return api.Name(list[i].name), list[i].item })
}

// Two needs are never at one place, nor one at a place above another.
func TestNeedsHavePlacesOfTheirOwn(t *testing.T) {
	for name, c := range map[string]struct {
		needs []needAt
		ok    bool
	}{
		"none":                      {nil, true},
		"two names":                 {[]needAt{{"a", ""}, {"b", ""}}, true},
		"two items of a name":       {[]needAt{{"a", "x"}, {"a", "y"}}, true},
		"an item of two names":      {[]needAt{{"a", "x"}, {"b", "x"}}, true},
		"one name twice":            {[]needAt{{"a", ""}, {"a", ""}}, false},
		"one item twice":            {[]needAt{{"a", "x"}, {"a", "x"}}, false},
		"an item below a need":      {[]needAt{{"a", ""}, {"a", "x"}}, false},
		"a need above an item":      {[]needAt{{"a", "x"}, {"a", ""}}, false},
		"the third is at the first": {[]needAt{{"a", ""}, {"b", ""}, {"a", ""}}, false},
	} {
		if err := checkNeeds(c.needs); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The needs of a task are bounded by their number and by the number of their names.
func TestNeedsAreBounded(t *testing.T) {
	names := func(n int) (list []needAt) {
		for i := range n {
			list = append(list, needAt{fmt.Sprintf("n%d", i), ""})
		}
		return list
	}
	items := func(n int) (list []needAt) {
		for i := range n {
			list = append(list, needAt{"n", fmt.Sprint(i)})
		}
		return list
	}
	for name, c := range map[string]struct {
		needs []needAt
		ok    bool
	}{
		"the most names": {names(api.MaxTaskNeeds), true},
		"a name more":    {names(api.MaxTaskNeeds + 1), false},
		"the most items": {items(MaxNeeds), true},
		"an item more":   {items(MaxNeeds + 1), false},
	} {
		if err := checkNeeds(c.needs); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
