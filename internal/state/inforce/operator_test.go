package inforce

import (
	"context"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
)

// The holder of an operator key may look at the service and at others' work, but not by a
// token. Control: the same requests without a token, and by another person.
//
// proves R-T4, R-B9
func TestAKeyMakesNoOperatorByToken(t *testing.T) {
	w := newWorld(t)
	w.cfg.Operators = func(p api.Principal) bool { return p == "human:ann" }
	r := must[*Reader](t)(Open(t.Context(), w.cfg))
	may := func(ctx context.Context, p api.Principal) bool {
		t.Helper()
		engine := must[*policy.Engine](t)(r.Engine(ctx))
		s := must[Snapshot](t)(r.Current(ctx))
		reads := policy.Request{Principal: p, Action: policy.ActionDispatchRead, Resource: "all"}
		looks := policy.Request{Principal: p, Action: policy.ActionAuditRead, Resource: "service"}
		all := []bool{engine.Decide(reads).Allowed(), engine.Decide(looks).Allowed(), s.Engine.Decide(reads).Allowed()}
		for _, one := range all {
			if one != all[0] {
				t.Errorf("%s: %v", p, all)
			}
		}
		return all[0]
	}
	byToken := record.WithToken(t.Context(), "t-aaaaaaaaaaaa")
	for name, c := range map[string]struct {
		ctx  context.Context
		p    api.Principal
		want bool
	}{
		"a holder": {t.Context(), "human:ann", true}, "the account": {t.Context(), "local:root", true},
		"a holder by token": {byToken, "human:ann", false}, "another person": {t.Context(), "human:bob", false}, "another by token": {byToken, "agent:a", false},
	} {
		if got := may(c.ctx, c.p); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
