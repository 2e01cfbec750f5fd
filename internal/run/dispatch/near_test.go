package dispatch

import (
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// nears returns what Submit, Validate and Can suggest for a request.
func (g gate) nears(t *testing.T, caller Caller, req api.DispatchRequest) (list []string) {
	t.Helper()
	_, err := g.Submit(t.Context(), caller, req)
	v, vetErr := g.Validate(t.Context(), caller, []api.DispatchRequest{req})
	can, canErr := g.Can(t.Context(), caller, api.CanRequest{Principal: caller.Principal, Subagent: req.Subagent, Envs: req.Envs, Target: req.Target, Capabilities: req.Capabilities})
	if api.CodeOf(err) != api.CodeDenied || vetErr != nil || canErr != nil || len(v.Problems) != 1 || can.Allowed {
		t.Fatalf("%+v: %v; %+v, %v; %+v, %v", req, err, v.Problems, vetErr, can, canErr)
	}
	for _, text := range []string{err.Error(), v.Problems[0].Message, strings.Join(can.Reasons, "; ")} {
		_, near, _ := strings.Cut(text, "did you mean ")
		near, _, _ = strings.Cut(near, "?")
		list = append(list, near)
	}
	return list
}

// A denial because of a name that no grant lists suggests the nearest name that the
// caller may use. A name that its grants or its ceiling hide is never suggested, however
// near it is.
//
// proves R-B6
func TestADenialSuggestsOnlyNamesThatTheCallerMayUse(t *testing.T) {
	above := strings.Replace(vetManifest, "{name: hidden, agent: command, command: [\"true\"], role: transform, tier: observe", "{name: hidden, agent: command, command: [\"true\"], role: transform, tier: reversible", 1)
	granted := strings.Replace(above, "subagents: [edit, plain]", "subagents: [edit, plain, hidden]", 1)
	if above == vetManifest || granted == above {
		t.Fatal("the manifest has other lines")
	}
	low := Caller{Principal: ann.Principal, Ceiling: api.Observe}
	for _, tt := range []struct {
		name, manifest string
		caller         Caller
		req            api.DispatchRequest
		want           string
	}{
		{"a subagent", vetManifest, ann, api.DispatchRequest{Subagent: "edot"}, `subagent "edit"`},
		{"an env", vetManifest, ann, api.DispatchRequest{Subagent: "plain", Envs: []api.Name{"read"}}, `env "red"`},
		{"a target", vetManifest, ann, api.DispatchRequest{Subagent: "plain", Target: "locla"}, `target "local"`},
		{"several", vetManifest, ann, api.DispatchRequest{Subagent: "plain", Target: "locla", Envs: []api.Name{"bleu"}}, `target "local", env "blue"`},
		{"nothing near", vetManifest, ann, api.DispatchRequest{Subagent: "quite-different"}, ""},
		{"without a grant", above, ann, api.DispatchRequest{Subagent: "hiden"}, ""},
		{"above the ceiling of the session", granted, low, api.DispatchRequest{Subagent: "hiden"}, ""},
		{"with a grant and below the ceiling, the control", granted, ann, api.DispatchRequest{Subagent: "hiden"}, `subagent "hidden"`},
		{"another principal", vetManifest, Caller{Principal: "local:eve", Ceiling: api.Irreversible}, api.DispatchRequest{Subagent: "edot"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newCatalogGate(t, strings.ReplaceAll(tt.manifest, "repo: %s", "repo: /nonexistent"))
			g.operators(t)(ann.Principal, api.Reversible)
			for i, got := range g.nears(t, tt.caller, tt.req) {
				if got != tt.want {
					t.Errorf("%d suggests %q, want %q", i, got, tt.want)
				}
			}
		})
	}
}
