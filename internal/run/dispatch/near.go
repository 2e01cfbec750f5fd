package dispatch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
	"github.com/bailiwick-dev/bailiwick/internal/state/inforce"
)

// near returns what the caller probably meant by names of the request that none of its
// grants lists, such as `did you mean subagent "fixer"?`, or "". It knows only the names
// that a listing shows the caller (R-B6).
func (x subject) near() string {
	r := x.request
	wanted := map[api.Kind][]api.Name{
		api.KindSubagent: {r.Subagent}, api.KindEnv: r.Envs, api.KindCapability: r.Capabilities, api.KindTarget: {r.Target},
	}
	if r.Source != nil {
		wanted[api.KindSource] = []api.Name{r.Source.Name}
	}
	var meant []string
	for _, kind := range []api.Kind{api.KindSubagent, api.KindTarget, api.KindSource, api.KindEnv, api.KindCapability} {
		granted := x.snapshot.Engine.Usable(x.principal, kind)
		unknown := slices.DeleteFunc(slices.Clone(wanted[kind]), func(n api.Name) bool { return n == "" || slices.Contains(granted, n) })
		if len(unknown) == 0 {
			continue
		}
		visible, err := x.snapshot.Names(inforce.Query{Principal: x.principal, Ceiling: min(x.consent, x.ceiling), Kind: kind})
		if err != nil {
			continue // the denial stands without it
		}
		for _, n := range unknown {
			if like := strictyaml.Nearest(string(n), names(visible)); like != "" && len(meant) < maxNear {
				meant = append(meant, fmt.Sprintf("%s %q", kind, like))
			}
		}
	}
	if len(meant) == 0 {
		return ""
	}
	return "did you mean " + strings.Join(meant, ", ") + "?"
}

// maxNear is how many names near suggests.
const maxNear = 4
