package server

import (
	"slices"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// A principal may have several tokens, so log entries name the token of a request: an
// investigation of a leaked token needs it. Requests of the account name none.
//
// proves R-T4
func TestLogEntriesNameTheToken(t *testing.T) {
	h := newHouse(t)
	first, firstID := h.token("agent:claude", time.Hour)
	second, secondID := h.token("agent:claude", time.Hour)
	want := []api.TokenID{firstID, secondID, "", firstID}
	ask := func(token string) {
		t.Helper()
		var headers []string
		if token != "" {
			headers = []string{api.SessionHeader, h.session(token).Handle}
		}
		if a := h.call("POST", "/v1/runtime/refused", `{"operation":"x","message":"y"}`, headers...); a.status != 200 {
			t.Fatalf("%+v", a)
		}
	}
	for _, token := range []string{first, second, "", first} {
		ask(token)
	}
	var got []api.TokenID
	for _, c := range h.logged(record.KindRequestInvalid) {
		got = append(got, c.Entry.Token)
	}
	if !slices.Equal(got, want) {
		t.Errorf("they are by %q, want %q", got, want)
	}
	for _, c := range h.logged(record.KindOperatorRecorded) {
		if c.Entry.Token != "" {
			t.Errorf("an operator's decision is by %q", c.Entry.Token)
		}
	}
}
