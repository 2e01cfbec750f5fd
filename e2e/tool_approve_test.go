package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

// approvedBy adds a grant to the manifest: principal approves calls of roles, also its own
// where own says so.
func (w *callWorld) approvedBy(principal string, own bool, roles ...string) {
	w.t.Helper()
	line := "\ngrants:\n  - {name: approvals, principal: \"" + principal + "\", approve: [" + strings.Join(roles, ", ") + "]"
	if own {
		line += ", approveOwn: true"
	}
	w.replace(manifest, "\ngrants:\n", line+"}\n")
}

// awaitApproval waits until a call waits for the world's account, or for others.
func (w *callWorld) awaitApproval(more ...string) api.Approval {
	w.t.Helper()
	for late := range polling(2 * time.Minute) {
		var list []api.Approval
		decode(w.t, w.must(append([]string{"approval", "list", "-o", "json"}, more...)...), &list)
		for _, a := range list {
			if a.State == api.ApprovalOpen {
				return a
			}
		}
		if late {
			w.t.Fatal("no call waits for a person")
		}
	}
	panic("unreachable")
}

// as returns a client for a principal with a token, which acts up to tier.
func (w *callWorld) as(t testing.TB, principal string, tier api.Tier) client.Runtime {
	t.Helper()
	token, _ := w.token(principal)
	w.must("ceiling", "set", principal, tier.String())
	conn := w.conn()
	s, err := conn.Exchange(t.Context(), token)
	must(t, err)
	return conn.Runtime().With(s.Handle, &tier)
}
