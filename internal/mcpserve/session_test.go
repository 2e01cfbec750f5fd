package mcpserve

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Whatever is declared, in whatever order, the lowest holds.
//
// proves R-T5
func TestTheLowestOfWhatWasDeclaredHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := new(held)
		lowest := api.Irreversible + 1
		for range rapid.IntRange(0, 8).Draw(t, "n") {
			tier := api.Tier(rapid.IntRange(int(api.Observe), int(api.Irreversible)).Draw(t, "tier"))
			got := h.add(&tier)
			if lowest = min(lowest, tier); *got != lowest {
				t.Fatalf("%s holds, want %s", *got, lowest)
			}
			if got := h.add(nil); *got != lowest {
				t.Fatalf("nothing raised it to %s", *got)
			}
		}
	})
}

// Nothing but the four words, under the one key, is a ceiling above the lowest.
func FuzzDeclared(f *testing.F) {
	f.Add(`{"io.bailiwick/consentCeiling":"stateful"}`)
	f.Add(`{"io.bailiwick/consentCeiling":{"ceiling":"irreversible"}}`)
	f.Add(`{"io.bailiwick/consentceiling":"irreversible"}`)
	f.Add(`{"IO.Bailiwick/x":1,"io.bailiwick/consentCeiling":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		var meta map[string]any
		if json.Unmarshal([]byte(text), &meta) != nil {
			return
		}
		got := declared(meta)
		if got == nil || *got == api.Observe {
			return
		}
		value := meta[ceilingKey]
		if m, ok := value.(map[string]any); ok {
			value = m["ceiling"]
		}
		if value != got.String() {
			t.Fatalf("%s declares %s", text, got)
		}
	})
}

// A handle is replaced before its time is over, and when the service does not
// know it any more; otherwise one is enough.
func TestAHandleIsRenewedInTime(t *testing.T) {
	service := newStandIn(t)
	server := service.server(t)
	now := time.Now()
	server.cfg.Now = func() time.Time { return now }
	c := &call{who: server.callerOf(goodToken(1)), progress: func(context.Context, float64, string) {}}
	exchanged := func() (n int) {
		service.with(func() { n = len(service.handles) })
		return n
	}
	list := func() {
		t.Helper()
		if _, err := server.envs(t.Context(), c, listInput{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		what string
		do   func()
		want int
	}{
		{"the first call", func() {}, 1},
		{"the next", func() {}, 1},
		{"one shortly before its end", func() { now = now.Add(10*time.Minute - renewTime/2) }, 2},
		{"one to a service that is another", func() {
			service.with(func() { service.handles = map[string]string{"": "", " ": ""} })
		}, 3},
	} {
		step.do()
		if list(); exchanged() != step.want {
			t.Errorf("%s: the token was presented %d times, want %d", step.what, exchanged(), step.want)
		}
	}
	service.with(func() { delete(service.tokens, goodToken(1)) })
	if _, err := server.envs(t.Context(), c, listInput{}); api.CodeOf(err) != api.CodeUnauthenticated {
		t.Errorf("after the token has ended: %v", err)
	}
}
