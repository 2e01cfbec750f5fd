package operator

import (
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/seal"
)

// proves R-T4
func TestConfusablePrincipalsAreNotAdded(t *testing.T) {
	o := newOffice(t)
	add := func(p api.Principal) error {
		_, err := o.registry.Add(t.Context(), "local:ann", o.sign(o.draft(api.VerbPrincipalAdd, func(r *api.OperatorRecord) { r.Principal = p }), seal.Operator, o.operator))
		return err
	}
	if err := add("agent:claude"); err != nil {
		t.Fatal(err)
	}
	for _, p := range []api.Principal{"agent:Claude", "agent:CLAUDE", "agent:c1aude", "agent:cIaude"} {
		if err := add(p); api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), "is easily taken for agent:claude") {
			t.Errorf("%s: err = %v", p, err)
		}
	}
	for _, p := range []api.Principal{"human:claude", "agent:claude-2", "agent:claude_2"} {
		if err := add(p); err != nil {
			t.Errorf("positive control: %s: %v", p, err)
		}
	}
	// A chain of before this rule stays valid.
	s := newState()
	for i, p := range []api.Principal{"agent:claude", "agent:Claude"} {
		if err := s.apply(api.OperatorRecord{Verb: api.VerbPrincipalAdd, Principal: p, Number: uint64(i + 1)}, ""); err != nil {
			t.Error(err)
		}
	}
	if err := s.distinct("agent:Claude"); err != nil {
		t.Errorf("a known principal: %v", err)
	}
}
