package cli

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// A matrix is at most as wide as the terminal, with any number of roles, and repeats the
// names of the tools for those that follow below.
func TestAMatrixFitsTheTerminal(t *testing.T) {
	var roles []api.RoleTools
	for i := range 12 {
		r := api.RoleTools{Role: api.Name(fmt.Sprintf("role-%d", i)), Tools: []api.RoleTool{{Tool: "ask", Tier: api.Observe}}}
		if i%5 == 0 {
			r.Tools = append(r.Tools, api.RoleTool{Tool: "warehouse/" + strings.Repeat("x", 60), Tier: api.Irreversible, Approval: &api.ToolApproval{}, Approvers: 2, Tainted: api.TaintedForbid})
		}
		roles = append(roles, r)
	}
	drawn := drawMatrix(roles, 80)
	for line := range strings.Lines(drawn) {
		if len(line) > 81 {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
	}
	if n := strings.Count(drawn, "TOOL "); n < 3 || strings.Count(drawn, "\nask") != n || strings.Count(drawn, "irreversible +2 !") != 3 {
		t.Errorf("the blocks are:\n%s", drawn)
	}
	for _, r := range roles {
		if strings.Count(drawn, "  "+string(r.Role)+" ")+strings.Count(drawn, "  "+string(r.Role)+"\n") != 1 {
			t.Errorf("%s is not there once:\n%s", r.Role, drawn)
		}
	}
	if narrow := drawMatrix(roles[:1], 20); len(narrow) > 200 {
		t.Errorf("on a narrow terminal:\n%s", narrow)
	}
}

// What a server of tools wrote, and what an agent called, cannot steer the terminal or
// look like a row of Bailiwick's own.
//
// proves R-D7
func TestToolsOfOthersCannotSteerTheTerminal(t *testing.T) {
	const hostile = `x\u001b[31m\nrole        other\u202e`
	socket := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/tools") && strings.Contains(r.URL.Path, "/dispatches/"):
			_, _ = fmt.Fprintf(w, `{"attempt":1,"number":1,"at":"2026-11-21T14:22:11Z","tool":"%[1]s","tier":"observe","decision":"deny","state":"%[1]s","reasons":["%[1]s"],"policies":["%[1]s"],"error":"%[1]s","arguments":{"a":"%[1]s"},"answer":{"b":"%[1]s"}}`+"\n", hostile)
		case strings.HasSuffix(r.URL.Path, "/tools"):
			_, _ = fmt.Fprintf(w, `{"role":"quality","tools":[{"tool":"%[1]s","name":"%[1]s","tier":"observe","title":"%[1]s","description":"%[1]s","inputSchema":{"a":"%[1]s"}}]}`, hostile)
		case strings.HasSuffix(r.URL.Path, "/can/call"):
			_, _ = fmt.Fprintf(w, `{"answers":[{"subagent":"a","decision":"deny","reasons":["%[1]s"],"policies":["%[1]s"]}]}`, hostile)
		case strings.HasSuffix(r.URL.Path, "/who"):
			_, _ = w.Write([]byte(`{"principal":"local:root"}`))
		default:
			_, _ = fmt.Fprintf(w, `{"items":[{"name":"quality","kind":"role","description":"%s"}]}`, hostile)
		}
	})
	for _, line := range []string{"role list", "role show quality --schemas", "role matrix", "tool list", "can role:quality call x", "dispatch tools d-one", "dispatch tools d-one 1"} {
		status, out, errs := at(t, socket, line)
		if !strings.Contains(out, `x\x1b[31m`) || strings.ContainsAny(out+errs, "\x1b\u202e") || strings.Contains(out, "\nrole        other") || status == 1 {
			t.Errorf("%s: status %d, %q, %q", line, status, out, errs)
		}
	}
}
