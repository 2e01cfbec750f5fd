package evidence

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// What is in force at each entry is what a list of everything in force would say.
//
// proves R-A7, R-T10
func TestInForceAgreesWithAList(t *testing.T) {
	scopes := []api.StopScope{api.StopAll, api.StopPrincipal, api.StopTarget, api.StopRun, api.StopDispatch, "unknown"}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // G404: reproducible on purpose
		s, c := newStops(), ceilings{}
		var list []api.Stop
		tiers := map[api.Principal]api.Tier{}
		type moment struct {
			n       uint64
			w       api.StopSubject
			stopped bool
			tier    api.Tier
		}
		var moments []moment
		for n := range uint64(60) {
			name := func() string { return fmt.Sprint(r.IntN(2)) }
			switch id := fmt.Sprint(r.IntN(6)); r.IntN(4) {
			case 0:
				stop := api.Stop{ID: id, Scope: scopes[r.IntN(len(scopes))], Name: name()}
				s.engage(n, stop)
				list = append(list, stop)
			case 1, 2:
				s.lift(n, id)
				list = slices.DeleteFunc(list, func(x api.Stop) bool { return x.ID == id })
			case 3:
				p, tier := api.Principal(name()), api.Tier(r.IntN(3)) //nolint:gosec // G115: small
				c.set(n, p, tier)
				tiers[p] = tier
			}
			w := api.StopSubject{Principal: api.Principal(name()), Target: api.Name(name()), Run: api.RunID(name()), Dispatch: api.DispatchID(name())}
			moments = append(moments, moment{n, w, slices.ContainsFunc(list, func(x api.Stop) bool { return x.Covers(w) }), tiers[w.Principal]})
		}
		for _, m := range moments {
			if id, stopped := s.covering(m.n, m.w); stopped != m.stopped || c.at(m.n, m.w.Principal) != m.tier {
				t.Fatalf("seed %d, entry %d: stopped %v by %q, want %v; ceiling %s, want %s", seed, m.n, stopped, id, m.stopped, c.at(m.n, m.w.Principal), m.tier)
			}
		}
	}
}
