package server

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// While the state is not open its account and operators learn why. The control is each other caller, who learns that it is
// unavailable.
//
// proves R-B5
func TestOnlyOperatorsLearnWhyTheStateIsNotOpen(t *testing.T) {
	const secret = "/mnt/state: no space left"
	own, operator := uint32(os.Geteuid()), uint32(4711)
	h := StandIn(func() api.ServiceStatus { return api.ServiceStatus{StateError: secret} }, func() *api.Error {
		return api.Errorf(api.CodeAuditUnavailable, "nothing is allowed: %s", secret)
	}, func(uid uint32) bool { return uid == operator })
	for name, c := range map[string]struct {
		who   peer
		known bool
	}{
		"its account":  {peer{uid: own}, true},
		"an operator":  {peer{uid: operator}, true},
		"a stranger":   {peer{uid: 4712}, false},
		"remote":       {peer{uid: operator, remote: true}, false},
		"unidentified": {peer{uid: operator, err: errors.New("unknown")}, false},
	} {
		for _, call := range []string{string(api.CallStatus), "GET /v1/dispatches"} {
			method, path, _ := strings.Cut(call, " ")
			r := httptest.NewRequest(method, path, http.NoBody)
			answer := httptest.NewRecorder()
			h.ServeHTTP(answer, r.WithContext(context.WithValue(r.Context(), peerKey{}, c.who)))
			ok := c.known && call == string(api.CallStatus)
			if (answer.Code == http.StatusOK) != ok || strings.Contains(answer.Body.String(), secret) != c.known {
				t.Errorf("%s, %s: %d %s", name, call, answer.Code, answer.Body)
			}
			if !c.known && !strings.Contains(answer.Body.String(), "the service is unavailable") {
				t.Errorf("%s, %s: %s", name, call, answer.Body)
			}
		}
	}
}
