package operator

import (
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// proves R-T4
func TestConfusablePrincipalsAreNotAdded(t *testing.T) {
	o := newOffice(t)
	add := func(p api.Principal) error {
		_, err := o.registry.Add(t.Context(), "local:ann", o.sign(o.draft(api.VerbPrincipalAdd, func(r *api.OperatorRecord) { r.Principal = p }), seal.Operator, o.operator), nil)
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
	// A chain older than this rule stays valid.
	s := newState()
	for i, p := range []api.Principal{"agent:claude", "agent:Claude"} {
		if err := s.apply(verified{record: api.OperatorRecord{Verb: api.VerbPrincipalAdd, Principal: p, Number: uint64(i + 1)}, digest: ""}); err != nil {
			t.Error(err)
		}
	}
	if err := s.distinct("agent:Claude"); err != nil {
		t.Errorf("a known principal: %v", err)
	}
}

// A decision about an anchor holds for its name and what was found, across restarts,
// and for nothing else.
//
// proves R-B9, R-A6
func TestALostAnchorIsLostInOneState(t *testing.T) {
	o := newOffice(t)
	found := api.DigestOf([]byte("found"))
	lose := func() error {
		return o.add(o.draft(api.VerbAnchorLost, func(r *api.OperatorRecord) { r.Anchor, r.Found = "disk", found }))
	}
	if o.registry.AnchorLost("disk", found) {
		t.Error("lost before any decision")
	}
	if err := lose(); err != nil {
		t.Fatal(err)
	}
	if err := o.restart(); err != nil {
		t.Fatal(err)
	}
	if !o.registry.AnchorLost("disk", found) || o.registry.AnchorLost("other", found) || o.registry.AnchorLost("disk", api.DigestOf(nil)) {
		t.Error("the decision holds for something else")
	}
	if err := lose(); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("the same decision again: %v", err)
	}
}
