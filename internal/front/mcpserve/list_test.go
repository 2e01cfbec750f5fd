package mcpserve

import (
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// An operator cannot raise a ceiling that the session itself declared.
func TestAdviceNamesWhoseCeilingApplies(t *testing.T) {
	for _, c := range []struct {
		who      api.Who
		has, not string
	}{
		{api.Who{Principal: "agent:ann", Ceiling: api.Observe, Consent: api.Observe}, "bailiwick ceiling set agent:ann TIER", "session"},
		{api.Who{Principal: "agent:ann", Ceiling: api.Observe, Consent: api.Stateful}, "declares stateful or nothing", "ceiling set"},
	} {
		if got := aboveAdvice(2, c.who); !strings.Contains(got, c.has) || strings.Contains(got, c.not) || !strings.Contains(got, "2 more subagents") {
			t.Errorf("%+v: %s", c.who, got)
		}
	}
}
