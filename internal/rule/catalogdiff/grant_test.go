package catalogdiff

import (
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
)

// A change that lets more be written, or by other people, is a widening, also by a
// grant that is removed or a subagent that no longer says that it writes. The way back
// narrows.
//
// proves R-O12, R-C6
func TestALooserRuleAboutWritesWidens(t *testing.T) {
	rule := func(count int, timeout time.Duration, by ...api.Principal) *api.WriteRule {
		return &api.WriteRule{By: by, Count: count, Timeout: api.Duration(timeout)}
	}
	set := func(rules ...*api.WriteRule) *catalog.Set {
		s := catalog.NewSet()
		s.Subagents["ship"] = api.Subagent{Name: "ship", Effect: api.EffectWrite}
		for i, r := range rules {
			n := api.Name("g" + string(rune('0'+i)))
			s.Grants[n] = api.Grant{Name: n, Principal: "agent:claude", Subagents: []api.Name{"ship"}, Writes: r}
		}
		return s
	}
	lines := func(list []api.AuthorityChange) string {
		var out []string
		for _, w := range list {
			out = append(out, string(w.Ref)+": "+w.What)
		}
		return strings.Join(out, "\n")
	}
	ann := api.Principal("human:ann")
	quiet := set(rule(1, 0, ann))
	quiet.Subagents["ship"] = api.Subagent{Name: "ship"}
	for name, c := range map[string]struct {
		before, after *catalog.Set
		want          string // empty: it widens nothing
	}{
		"the same":              {set(rule(1, 0, ann)), set(rule(0, 24*time.Hour, ann)), ""},
		"removed":               {set(rule(1, 0, ann)), set(nil), "grant/g0: tasks of agent:claude write without the approval of human:ann"},
		"removed with a grant":  {set(nil, rule(1, 0, ann)), set(nil), "grant/g0: tasks of agent:claude write without the approval of human:ann"},
		"another person":        {set(rule(1, 0, ann)), set(rule(1, 0, ann, "human:bob")), "grant/g0: human:bob may approve what tasks of agent:claude write"},
		"fewer":                 {set(rule(2, 0, ann, "human:bob")), set(rule(1, 0, ann, "human:bob")), "grant/g0: what tasks of agent:claude write needs 1 approvals, was 2"},
		"longer":                {set(rule(1, time.Hour, ann)), set(rule(1, 0, ann)), "grant/g0: what tasks of agent:claude write may be approved for 24h0m0s, was 1h0m0s"},
		"no longer a writer":    {set(rule(1, 0, ann)), quiet, "subagent/ship: no longer declared to write: nobody approves its tasks before they start"},
		"of all its grants":     {set(rule(1, 0, ann)), catalog.NewSet(), ""},
		"kept by another grant": {set(rule(1, 0, ann), rule(1, 0, ann)), set(rule(1, 0, ann), nil), ""},
	} {
		if got := lines(widenings(c.before, c.after)); got != c.want {
			t.Errorf("%s: widens %q, want %q", name, got, c.want)
		}
		if back := widenings(c.after, c.before); c.want != "" && len(back) > 0 {
			t.Errorf("%s: the way back widens %q", name, lines(back))
		}
		if narrows := narrowings(c.after, c.before); (len(narrows) > 0) != (c.want != "") && name != "of all its grants" {
			t.Errorf("%s: the way back narrows %v", name, narrows)
		}
	}
}
