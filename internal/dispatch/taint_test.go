package dispatch

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// A host of an egress list and a source taint nothing by themselves, as decision 101
// says: people see them when they sign the catalog. The control is the same dispatch with
// tainted content.
func TestEgressAndSourcesDoNotTaint(t *testing.T) {
	dir, commit := repository(t)
	manifest := fmt.Sprintf(runManifest, "first", "edit, change")
	manifest = strings.Replace(manifest, "{name: red, values: {COLOUR: red}}", `{name: red, egress: ["example.com:443"]}`, 1)
	manifest = strings.Replace(manifest, "targets:\n", "sources:\n  - {name: repo, repo: "+dir+"}\ntargets:\n", 1)
	manifest = strings.Replace(manifest, "envs: [red, blue],", "envs: [red, blue], sources: [repo],", 1)
	g := newCatalogGate(t, manifest)
	read := &api.Taint{Dispatch: "d-up", Attempt: 1, Call: 1, Tool: "web/fetch"}
	need := g.upstream(t, "d-up", "up", record.NeedOutput, "x", `{}`)
	g.alter(t, "d-up", func(d *api.Dispatch) { d.Taint = read })
	need.Name = "a"
	for _, tainted := range []bool{false, true} {
		o := g.taskRequest(t, api.DispatchID(fmt.Sprintf("d-down-%v", tainted)))
		o.Request.Envs, o.Request.Source = []api.Name{"red"}, &api.SourceRequest{Name: "repo", Commit: commit}
		if tainted {
			o.Needs = []Need{need}
		}
		d := g.submitTask(t, o)
		m := g.manifestOf(t, d)
		if len(m.Egress) != 1 || m.Source == nil || (m.Taint != nil) != tainted || (d.Taint != nil) != tainted {
			t.Errorf("tainted need %v: egress %q, source %+v, taint %+v", tainted, m.Egress, m.Source, m.Taint)
		}
	}
}
