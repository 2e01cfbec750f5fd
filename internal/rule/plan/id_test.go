package plan

import (
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// A run is stored as its plan with the run's id. A plan that is too large only with
// the id must not become a run that no service could load.
//
// proves R-O6
func TestPlanWithIDCanBeParsedAgain(t *testing.T) {
	id := api.RunID(strings.Repeat("x", 64))
	room := len(`,"queue":"default"`)
	with := len(`"id":"",`) + len(id)
	for name, c := range map[string]struct {
		size int
		fits bool
	}{
		"as large as may be":  {api.MaxPlan - room - with, true},
		"one byte too many":   {api.MaxPlan - room - with + 1, false},
		"no room for its id":  {api.MaxPlan - room, false},
		"nowhere near bounds": {1000, true},
	} {
		p, problems := Parse(bulk(c.size))
		if problems != nil {
			t.Fatalf("%s: %v", name, problems)
		}
		q, err := p.WithID(id)
		if !c.fits {
			if api.CodeOf(err) != api.CodeTooLarge {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, problems := Parse(q.Canonical()); problems != nil {
			t.Errorf("%s: it cannot be read again: %v", name, problems)
		}
	}
}

// Submitting a plan that spells out defaults again is the same run.
//
// proves R-O8
func TestExplicitDefaultsAreTheSamePlan(t *testing.T) {
	short := parse(t, "tasks: [{id: a, subagent: s}, {id: b, subagent: s, needs: {x: {from: a, patch: true}}}]")
	long := parse(t, `
queue: default
tasks:
  - {id: a, subagent: s, priority: 0, retry: {attempts: 1, backoff: 2s..2m, on: [lost]}, input: {}, locks: [], env: [], capabilities: [], depends_on: []}
  - {id: b, subagent: s, needs: {x: {from: a, patch: true}}, depends_on: [a]}
`)
	if short.Digest() != long.Digest() {
		t.Errorf("%s\n%s", short.Canonical(), long.Canonical())
	}
	other := parse(t, "tasks: [{id: a, subagent: s, retry: {attempts: 2}}, {id: b, subagent: s, needs: {x: {from: a, patch: true}}}]")
	if other.Digest() == short.Digest() {
		t.Error("another number of attempts is the same plan")
	}
}
