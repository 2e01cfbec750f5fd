package catalogdiff

import (
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
)

// Who signs sees each trusted server that a role can write after it read text of an
// untrusted one, once. Controls: without the untrusted tool, without the trust, without an
// effect, with a rule that forbids it, or with the two in different roles, there is no line.
//
// proves R-G6
func TestTrustedServersThatTaintedRolesWriteAreShown(t *testing.T) {
	set := func(change func(web, tracker *api.ToolServer)) *catalog.Set {
		s := catalog.NewSet()
		web := api.ToolServer{Name: "web", Allow: []api.ToolAllow{{Tool: "get", Roles: []api.Name{"quality"}, Tier: api.Observe}}}
		tracker := api.ToolServer{Name: "tracker", Trusted: true, Allow: []api.ToolAllow{
			{Tool: "comment", Roles: []api.Name{"quality", "triage"}, Tier: api.Reversible},
			{Tool: "list", Roles: []api.Name{"quality"}, Tier: api.Observe},
		}}
		change(&web, &tracker)
		s.Tools["web"], s.Tools["tracker"] = web, tracker
		return s
	}
	same := func(*api.ToolServer, *api.ToolServer) {}
	const line = "role quality can call tracker/comment without an approval after it read web/get, and what it writes there is read as trusted"
	lines := func(before, after *catalog.Set) (found []string) {
		for _, w := range widenings(before, after) {
			if strings.Contains(w.What, "is read as trusted") {
				found = append(found, w.What)
			}
		}
		return found
	}
	for name, c := range map[string]struct {
		change func(web, tracker *api.ToolServer)
		want   string
	}{
		"both":             {same, line},
		"with an approval": {func(_, s *api.ToolServer) { s.Allow[0].Tier = api.Stateful }, strings.Replace(line, "without", "with", 1)},
		"trusted text":     {func(web, _ *api.ToolServer) { web.Trusted = true }, ""},
		"untrusted server": {func(_, s *api.ToolServer) { s.Trusted = false }, ""},
		"no effect":        {func(_, s *api.ToolServer) { s.Allow[0].Tier = api.Observe }, ""},
		"forbidden":        {func(_, s *api.ToolServer) { s.Allow[0].Tainted = api.TaintedForbid }, ""},
		"another role":     {func(web, _ *api.ToolServer) { web.Allow[0].Roles = []api.Name{"research"} }, ""},
	} {
		if got := strings.Join(lines(nil, set(c.change)), "\n"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := lines(set(same), set(same)); len(got) > 0 {
		t.Errorf("nothing changed: %v", got)
	}
	before := set(func(web, _ *api.ToolServer) { web.Allow[0].Roles = []api.Name{"research"} })
	if got := lines(before, set(same)); len(got) != 1 || got[0] != line {
		t.Errorf("an untrusted tool more: %v", got)
	}
}
