package server

import (
	"context"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Each principal finds what it chose, in older state and in ours, and no other
// principal's.
func TestChosenIDsAreScoped(t *testing.T) {
	t.Parallel()
	const operator, ann, ben = api.Principal("local:root"), api.Principal("agent:ann"), api.Principal("agent:ben")
	long := strings.Repeat("a", 64)
	stored := map[string]api.Principal{"work": operator, "old": ann, scopedID(ann, "work"): ann, scopedID(ann, "twice"): ann, scopedID(ben, "twice"): ben, scopedID(ben, long): ben, "d-000000000000000000000001": ann}
	of := func(_ context.Context, prefix string, length int) (map[string]api.Principal, error) {
		found := map[string]api.Principal{}
		for id, p := range stored {
			if len(id) == length && strings.HasPrefix(id, prefix) {
				found[id] = p
			}
		}
		return found, nil
	}
	s := scopes{&Config{Operator: operator}}
	if found, err := s.find(t.Context(), operator, "twice", of); err == nil || !strings.Contains(err.Error(), "2 principals use the id") {
		t.Errorf("the operator finds the id of two principals: %q, %v", found, err)
	}
	const fresh = "d-000000000000000000000002"
	for _, c := range []struct {
		by                api.Principal
		id, chosen, found string
	}{
		{operator, "work", "work", "work"},
		{operator, "free", "free", "free"},
		{operator, long, long, scopedID(ben, long)},
		{ann, "work", scopedID(ann, "work"), scopedID(ann, "work")},
		{ann, scopedID(ann, "work"), scopedID(ann, "work"), scopedID(ann, "work")},
		{ann, "old", "old", "old"},
		{ann, "free", scopedID(ann, "free"), "free"},
		{ben, "work", scopedID(ben, "work"), "work"},
		{ben, "old", scopedID(ben, "old"), "old"},
		{ben, scopedID(ann, "work"), scopedID(ben, scopedID(ann, "work")), scopedID(ann, "work")},
		{ben, long, scopedID(ben, long), scopedID(ben, long)},
		{ben, fresh, fresh, fresh},
		{ben, "d-000000000000000000000001", scopedID(ben, "d-000000000000000000000001"), "d-000000000000000000000001"},
		{ben, "", "", ""},
	} {
		chosen, err := s.choose(t.Context(), c.by, c.id, of)
		if err != nil || chosen != c.chosen {
			t.Errorf("%s chooses %s: %q, %v; want %q", c.by, c.id, chosen, err, c.chosen)
		}
		if _, err := api.ParseDispatchID(chosen); err != nil && chosen != "" && len(c.id) > 3 {
			t.Error(err)
		}
		if found, err := s.find(t.Context(), c.by, c.id, of); err != nil || found != c.found {
			t.Errorf("%s finds %s: %q, %v; want %q", c.by, c.id, found, err, c.found)
		}
	}
}
