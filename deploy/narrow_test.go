package deploy

import (
	"slices"
	"strings"
	"testing"
)

// What somebody loses is listed, and only that.
func TestLossesAreReportedAndWideningsAreNot(t *testing.T) {
	tests := []struct {
		old, now string
		want     []string
	}{
		{"mode: guarded", "mode: readonly", []string{"target/local: narrower mode: readonly, was guarded: refuses tiers above observe"}},
		{"mode: guarded", "mode: open", nil},
		{"    verify: {command: [go, test, ./...], timeout: 10m}\n", "", nil},
		{"tier: reversible\n    capabilities: [tools]\n    verify: {command: [go, test, ./...], timeout: 10m}\n", "tier: observe\n    capabilities: [tools]\n", []string{"subagent/fixer: lower tier: observe, was reversible"}},
		{"    capabilities: [tools]\n", "", []string{"subagent/fixer: loses capability tools"}},
		{"ceiling: reversible", "ceiling: observe", []string{"grant/manifest-agent-claude: lower ceiling of agent:claude: observe, was reversible"}},
		{"sources: [service]", "sources: []", []string{"grant/manifest-agent-claude: agent:claude loses source service"}},
		{"envs: [plain]", "envs: []", []string{"grant/manifest-agent-claude: agent:claude loses env plain"}},
		{"memory: 4GiB", "memory: 1GiB", []string{"subagent/fixer: lowered memory: 1GiB, was 4GiB"}},
		{"memory: 4GiB", "memory: 8GiB", nil},
		{"readOnly: [/usr/local/go], ", "", []string{"target/local: jails can no longer read /usr/local/go of the host"}},
		{"path: [/usr/local/go/bin]", "limits: {memory: 1GiB}", []string{"target/local: directory no longer on PATH: /usr/local/go/bin", "target/local: new limit: memory 1GiB"}},
		{"agent:claude", "agent:codex", []string{"grant/manifest-agent-claude: removed grant: agent:claude could dispatch fixer, up to reversible"}},
		{"  - {principal: \"agent:claude\", subagents: [fixer], envs: [plain], sources: [service], targets: [local], ceiling: reversible}\n", "  []\n", []string{"grant/manifest-agent-claude: removed grant: agent:claude could dispatch fixer, up to reversible"}},
		{"envs: [plain], sources: [service]", "sources: [service], envs: []", []string{"grant/manifest-agent-claude: agent:claude loses env plain"}},
	}
	f := newFixture(t, 1, 1)
	f.edit("version: 1", "version: 1\nproject: manifest")
	f.apply(f.signers[0])
	for _, tt := range tests {
		f.write("bailiwick.yaml", "project: manifest\n"+goodManifest)
		f.edit(tt.old, tt.now)
		var got []string
		for _, n := range f.plan(Options{Prune: true}).Narrows {
			got = append(got, string(n.Ref)+": "+n.What)
		}
		if strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
			t.Errorf("%s: takes away %q, want %q", tt.now, got, tt.want)
		}
	}
}

// A removed subagent names those who could dispatch it, and what another grant of
// the catalog still gives is not lost.
func TestLossesAreThoseOfTheWholeCatalog(t *testing.T) {
	f := newFixture(t, 1, 1)
	f.edit("version: 1", "version: 1\nproject: first")
	f.apply(f.signers[0])
	same := f.beside("elsewhere", "version: 1\nproject: other\ngrants:\n"+goodManifest[strings.LastIndex(goodManifest, "  - {principal"):])
	if p := same.plan(Options{}); len(p.Changes) != 1 || len(p.Widens) != 0 {
		t.Fatalf("a grant of what its principal has: %+v", p.Widens)
	}
	same.apply(same.signers[0])
	f.write("bailiwick.yaml", goodManifest[:strings.Index(goodManifest, "grants:")]+"project: first\n")
	p := f.plan(Options{Prune: true})
	if len(p.Narrows) != 0 || !slices.Contains(p.Notes, "grant/first-agent-claude: agent:claude loses nothing, because grant/other-agent-claude of project other gives it the same") {
		t.Fatalf("narrows %+v, notes %q", p.Narrows, p.Notes)
	}
	same.write("bailiwick.yaml", "version: 1\nproject: other\n")
	if p := same.plan(Options{Prune: true}); len(p.Narrows) != 0 {
		t.Fatalf("narrows %+v", p.Narrows)
	}
	if _, err := same.open().Apply(t.Context(), same.plan(Options{Prune: true}), Approval{Author: "a", Signers: f.signers}); err != nil {
		t.Fatal(err)
	}
	f.write("bailiwick.yaml", "version: 1\nproject: first\n")
	var lost []string
	for _, n := range f.plan(Options{Prune: true}).Narrows {
		lost = append(lost, string(n.Ref)+": "+n.What)
	}
	want := []string{
		"subagent/fixer: removed subagent: agent:claude could dispatch it",
		"source/service: removed source: agent:claude could start from it",
		"target/local: removed target: agent:claude could run there",
		"grant/first-agent-claude: removed grant: agent:claude could dispatch fixer, up to reversible",
	}
	if strings.Join(lost, "\n") != strings.Join(want, "\n") {
		t.Fatalf("takes away %q", lost)
	}
}
