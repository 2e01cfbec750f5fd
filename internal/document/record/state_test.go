package record

import (
	"slices"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

func TestDispatchTransitions(t *testing.T) {
	states := []api.Event{"", api.EventAccepted, api.EventStarted, api.EventNeedsInput, api.EventFinished, api.EventFailed, api.EventCancelled}
	want := map[api.Event]map[Kind]api.Event{
		"":                 {KindDispatchAccepted: "accepted", KindTaskReused: "finished"},
		"accepted":         {KindDispatchStarted: "started", KindDispatchFailed: "failed", KindDispatchCancelled: "cancelled"},
		"started":          {KindDispatchFinished: "finished", KindDispatchNeedsInput: "needs_input", KindDispatchFailed: "failed", KindDispatchCancelled: "cancelled"},
		"needs_input":      {KindDispatchAnswered: "accepted", KindDispatchFailed: "failed", KindDispatchCancelled: "cancelled"},
		"finished":         {},
		api.EventFailed:    {},
		"cancelled":        {},
		api.Event("other"): {},
	}
	for _, from := range append(states, "other") {
		for _, k := range Kinds() {
			to, ok := NextDispatch(from, k)
			moves := slices.ContainsFunc(DispatchTransitions(), func(x DispatchTransition) bool { return x.Kind == k })
			switch next, allowed := want[from][k]; {
			case !moves && (!ok || to != from):
				t.Errorf("%s changes %q to %q, want no change", k, from, to)
			case moves && (ok != allowed || ok && to != next):
				t.Errorf("%s after %q: %q, %t; want %q, %t", k, from, to, ok, next, allowed)
			}
		}
	}
	for _, s := range states[1:] {
		if KindOf(s) == "" || s.Ended() && EventOf(KindOf(s)) != s {
			t.Errorf("%s: kind %q, which records %q", s, KindOf(s), EventOf(KindOf(s)))
		}
		if final := len(want[s]) == 0; EndsDispatch(KindOf(s)) != final {
			t.Errorf("%s ends a dispatch: %t, want %t", s, !final, final)
		}
	}
}
