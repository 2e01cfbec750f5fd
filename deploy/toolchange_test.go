package deploy

import (
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalogdiff"
)

func lines(list []api.AuthorityChange) (all []string) {
	for _, l := range list {
		all = append(all, string(l.Ref)+": "+l.What)
	}
	return all
}

// Each change of a tool is shown in the direction in which it changes authority, and not
// in the other.
//
// proves R-G1, R-G2
func TestChangesOfToolsWidenOrNarrow(t *testing.T) {
	tests := []struct{ name, old, now, widens, narrows string }{
		{"role", "roles: [transform, quality], tier: observe}\n", "roles: [transform], tier: observe}\n", "", "tool/warehouse: role quality can no longer call warehouse/query"},
		{"tool", "      - {tool: query, roles: [transform, quality], tier: observe}\n", "", "", "role quality can no longer call warehouse/query"},
		{"tier", "quality], tier: observe}\n      - {tool", "quality], tier: reversible}\n      - {tool", "", "higher tier of warehouse/query: reversible, was observe"},
		{"approval", "approval: {wait: 30s, expires: 2h}, ", "", "calls of warehouse/apply.change no longer need an approval", ""},
		{"approval of a command", "    approval: true\n", "", "tool/ticket: calls of ticket no longer need an approval", ""},
		{"expiry", "expires: 2h", "expires: 3h", "an approval of warehouse/apply.change is good for 3h0m0s, was 2h0m0s", ""},
		{"tainted", ", tainted: forbid", "", "a tainted dispatch can call warehouse/apply.change, with an approval", ""},
		{"trust", "    trust: trusted\n", "", "", "tool/search: no longer trusted"},
		{"command", "[mcp-warehouse, --stdio]", "[mcp-warehouse, --admin]", "changed server: runs mcp-warehouse --admin in the files of capability tools, was runs mcp-warehouse --stdio", ""},
		{"program of a command", "run: [./fix.sh]", "run: [./setup.sh]", "tool/ticket: changed server: runs ./setup.sh in the files of capability tools for each call, was", ""},
		{"url", "https://mcp.example.com/mcp", "https://mcp.example.com/v2", "changed server: https://mcp.example.com/v2 at 10.0.0.7:443 with secret warehouse for client \"bailiwick\"", ""},
		{"address", "10.0.0.7:443", "10.0.0.8:443", "at 10.0.0.8:443", ""},
		{"scopes", "scopes: [read]", "scopes: [read, write]", "scopes read write", ""},
		{"env", "{LOG: info}", "{LOG: debug}", "runs with LOG=debug", ""},
		{"secret", "{env: {PGPASSWORD: warehouse}}", "{env: {PGPASSWORD: warehouse, OTHER: warehouse}}", "the server has the value of secret warehouse, in OTHER", ""},
		{"no secret", "    credential: {env: {PGPASSWORD: warehouse}}\n", "", "", "the server no longer has secret warehouse in PGPASSWORD"},
		{"read-only path", "readOnly: [/opt/warehouse]", "readOnly: [/opt/warehouse, /opt/other]", "the server can read /opt/other of the host", ""},
		{"egress", "[warehouse.example.com:443]", "[warehouse.example.com:443, other.example.com:443]", "the server can reach other.example.com:443", ""},
		{"no egress", "[warehouse.example.com:443]", "[]", "", "the server can no longer reach warehouse.example.com:443"},
		{"connect", `"127.0.0.1:5432"`, `"10.0.0.1:5432"`, "the server can reach 10.0.0.1:5432, at its port 5432", "the server can no longer reach 127.0.0.1:5432, at its port 5432"},
		{"memory", "memory: 512MiB", "memory: 1GiB", "raised memory", ""},
		{"less memory", "memory: 512MiB", "memory: 256MiB", "", "lowered memory"},
		{"no limit", "limits: {memory: 512MiB, processes: 64, disk: 64MiB, files: 1000, cpu: 0.5}", "limits: {}", "raised memory", ""},
		{"timeout", "timeout: 1m", "timeout: 5m", "raised timeout: 5m0s, was 1m0s", ""},
		{"no timeout", "    timeout: 1m\n", "", "raised timeout: 2m0s, was 1m0s", ""},
		{"session", "    session: shared\n", "", "", ""},
		{"input of a command", "maxLength: 100", "maxLength: 200", "ticket is defined otherwise: input schema changed", ""},
		{"description of a command", "Files a ticket.", "Files a ticket, and deletes it.", "ticket is defined otherwise: description changed", ""},
		{"calls", "calls: 50", "calls: 60", "subagent/checker: raised calls: 60, was 50", ""},
		{"no calls", ", limits: {calls: 50}", "", "subagent/checker: raised calls: 10000, was 50", ""},
		{"approver", "approve: [transform, quality]", "approve: [transform]", "", "grant/people: human:ann can no longer approve calls of tools of role quality"},
		{"own approvals", ", approveOwn: true", "", "", "human:ann can no longer approve calls of its own dispatches"},
		{"append", "ceiling: stateful}", "ceiling: stateful, append: true}", "agent:claude may append tasks to its open runs, also as an AI", ""},
	}
	f := newFixture(t, 1, 1)
	f.withTools(toolManifest, definitions())
	base := f.pinned(toolManifest)
	if !strings.Contains(base, "pin:") {
		t.Fatal("no pins")
	}
	before := f.plan(Options{}).After()
	for _, tt := range tests {
		if !strings.Contains(base, tt.old) {
			t.Fatalf("%s: the manifest has no %q", tt.name, tt.old)
		}
		text := strings.Replace(base, tt.old, tt.now, 1)
		f.write("bailiwick.yaml", text)
		m, err := f.load()
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if tt.name == "tool" { // which has another pin
			_ = m.Pin(t.Context(), f.unpinned(m))
		}
		after := f.plan(Options{}).After()
		check := func(what string, got []string, want string) {
			if want == "" && len(got) > 0 || want != "" && !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, want) }) {
				t.Errorf("%s: %s = %q, want %q", tt.name, what, got, want)
			}
		}
		check("widens", lines(catalogdiff.Compare(before, after).Widens), tt.widens)
		check("narrows", lines(catalogdiff.Compare(before, after).Narrows), tt.narrows)
		// The way back is in the other direction.
		if back := lines(catalogdiff.Compare(after, before).Widens); tt.narrows != "" && len(back) == 0 {
			t.Errorf("%s: the way back of %q widens nothing", tt.name, tt.narrows)
		}
	}
	first := strings.Join(lines(catalogdiff.Compare(nil, before).Widens), "\n")
	for _, want := range []string{
		"tool/search: new server: https://mcp.example.com/mcp at 10.0.0.7:443",
		"tool/search: trusted: a dispatch that reads what it returns is not tainted",
		"tool/search: role quality can call search/find: tier observe",
		"tool/ticket: role quality can call ticket: tier reversible, each call with an approval",
		"tool/warehouse: role transform can call warehouse/apply.change: tier stateful, each call with an approval, wait 30s, expires 2h0m0s, not for a tainted dispatch",
		"tool/warehouse: the server can reach unix:/run/postgresql/.s.PGSQL.5432, at its port 6432",
		"grant/people: new grant: human:ann may approve calls of tools of role transform, quality, also in its own dispatches",
	} {
		if !strings.Contains(first, want) {
			t.Errorf("widens = %s\nwant %s", first, want)
		}
	}
	gone := strings.Join(lines(catalogdiff.Compare(before, nil).Narrows), "\n")
	if !strings.Contains(gone, "tool/search: removed server") || !strings.Contains(gone, "role quality can no longer call ticket") {
		t.Errorf("narrows = %s", gone)
	}
}
