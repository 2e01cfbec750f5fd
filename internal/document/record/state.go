package record

import (
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
)

// DispatchTransition is one step of a dispatch, made by the entry that records
// it. From is empty before the first.
type DispatchTransition struct {
	From api.Event
	Kind Kind
	To   api.Event
}

// DispatchTransitions is the one table of a dispatch's states: the service, its
// SQL guards and the verifier use it. docs/state-dispatch.svg is drawn from it.
func DispatchTransitions() []DispatchTransition {
	return []DispatchTransition{
		{"", KindDispatchAccepted, api.EventAccepted},
		{api.EventAccepted, KindDispatchStarted, api.EventStarted},
		{api.EventAccepted, KindDispatchFailed, api.EventFailed},
		{api.EventAccepted, KindDispatchCancelled, api.EventCancelled},
		{api.EventStarted, KindDispatchFinished, api.EventFinished},
		{"", KindTaskReused, api.EventFinished}, // it never runs
		{api.EventStarted, KindDispatchNeedsInput, api.EventNeedsInput},
		{api.EventStarted, KindDispatchFailed, api.EventFailed},
		{api.EventStarted, KindDispatchCancelled, api.EventCancelled},
		{api.EventNeedsInput, KindDispatchAnswered, api.EventAccepted},
		{api.EventNeedsInput, KindDispatchFailed, api.EventFailed},
		{api.EventNeedsInput, KindDispatchCancelled, api.EventCancelled},
	}
}

// NextDispatch returns the state of a dispatch in state from after an entry of
// kind k, and false if no such entry may follow. Entries of kinds that are not
// in the table change nothing.
func NextDispatch(from api.Event, k Kind) (api.Event, bool) {
	inTable := false
	for _, t := range DispatchTransitions() {
		if t.Kind == k {
			if t.From == from {
				return t.To, true
			}
			inTable = true
		}
	}
	return from, !inTable
}

// DispatchSources returns the states from which a dispatch can reach state to in
// one step.
func DispatchSources(to api.Event) (list []api.Event) {
	for _, t := range DispatchTransitions() {
		if t.To == to && t.From != "" && !slices.Contains(list, t.From) {
			list = append(list, t.From)
		}
	}
	return list
}

// EventOf returns the outcome that an entry of kind k records; empty if k ends
// no attempt.
func EventOf(k Kind) api.Event {
	for _, t := range DispatchTransitions() {
		if t.Kind == k && t.To.Ended() {
			return t.To
		}
	}
	return ""
}

// EndsDispatch reports whether an entry of kind k ends a dispatch that ran: only its
// attestation may follow.
func EndsDispatch(k Kind) bool {
	e := EventOf(k)
	return e != "" && k != KindTaskReused && e != api.EventNeedsInput
}

// KindOf returns the kind of the entry that records outcome e of an attempt.
func KindOf(e api.Event) Kind {
	for _, t := range DispatchTransitions() {
		if t.To == e {
			return t.Kind
		}
	}
	return ""
}
