package dispatch

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// A host of an egress list, a tool that the model's provider runs and a source taint
// nothing by themselves, as decision 101 says: people see them when they sign the catalog.
// The control is the same dispatch with tainted content.
//
// proves R-G6
func TestEgressAndSourcesDoNotTaint(t *testing.T) {
	dir, commit := repository(t)
	manifest := fmt.Sprintf(runManifest, "first", "edit, change")
	manifest = strings.Replace(manifest, "{name: red, values: {COLOUR: red}}", `{name: red, egress: ["example.com:443"]}`, 1)
	manifest = strings.Replace(manifest, "version: 1\n", "version: 1\nmodels:\n  - {name: big, api: anthropic-messages, endpoint: \"http://127.0.0.1:9\", levels: {small: tiny-1}, serverTools: [web_search_20250305, url]}\n", 1)
	manifest = strings.ReplaceAll(manifest, "role: transform, ", "role: transform, model: big/small, ")
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
		if len(m.Egress) != 1 || m.Endpoint == nil || m.Source == nil || (m.Taint != nil) != tainted || (d.Taint != nil) != tainted {
			t.Errorf("tainted need %v: egress %q, model %+v, source %+v, taint %+v", tainted, m.Egress, m.Endpoint, m.Source, m.Taint)
		}
	}
}
