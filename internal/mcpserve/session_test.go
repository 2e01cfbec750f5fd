package mcpserve

import (
	"encoding/json"
	"testing"

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
