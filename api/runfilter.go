package api

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// RunFilter selects runs of a list, which is newest first. The zero value
// selects all of them.
type RunFilter struct {
	States    []RunState // empty: any
	Since     time.Time  // submitted then or later
	Queue     Name
	Principal Principal // that submitted it
	Subagent  Name      // of at least one task
	Labels    []Label   // of its plan, all of them
	After     RunID     // submitted before this one: the last run of the previous page
	Limit     int       // at most so many; 0: the service's page size
	Open      bool      // and, beyond Limit, every older run that is not settled
}

// Words for several states of a run.
const (
	RunsOpen    = "open"    // not settled
	RunsSettled = "settled" // done, failed or cancelled
)

// ParseRunStates returns the states that a word means: a RunState, RunsOpen or
// RunsSettled.
func ParseRunStates(word string) ([]RunState, error) {
	all := RunStates()
	switch {
	case word == RunsOpen:
		return slices.DeleteFunc(all, RunState.Settled), nil
	case word == RunsSettled:
		return slices.DeleteFunc(all, func(s RunState) bool { return !s.Settled() }), nil
	case slices.Contains(all, RunState(word)):
		return []RunState{RunState(word)}, nil
	}
	return nil, fmt.Errorf("state %.80q: want one of %s", word, OneOf(append(all, RunsOpen, RunsSettled)))
}

// The parameters of a RunFilter in a request.
const (
	paramState, paramSince, paramQueue, paramPrincipal = "state", "since", "queue", "principal"
	paramSubagent, paramAfter, paramLimit, paramOpen   = "subagent", "after", "limit", "open"
	paramLabel                                         = "label"
)

// Query returns the filter as the parameters of a request.
func (f RunFilter) Query() url.Values {
	q := url.Values{}
	for _, s := range f.States {
		q.Add(paramState, string(s))
	}
	for _, l := range f.Labels {
		q.Add(paramLabel, l.String())
	}
	if !f.Since.IsZero() {
		q.Set(paramSince, f.Since.UTC().Format(time.RFC3339Nano))
	}
	for name, value := range map[string]string{paramQueue: string(f.Queue), paramPrincipal: string(f.Principal), paramSubagent: string(f.Subagent), paramAfter: string(f.After)} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if f.Limit != 0 {
		q.Set(paramLimit, strconv.Itoa(f.Limit))
	}
	if f.Open {
		q.Set(paramOpen, "true")
	}
	return q
}

// ParseRunFilter reads the parameters of a request, except for its limit.
func ParseRunFilter(q url.Values) (f RunFilter, err error) {
	keep := func(e error) {
		if err == nil {
			err = e
		}
	}
	for _, word := range q[paramState] {
		states, e := ParseRunStates(word)
		f.States = append(f.States, states...)
		keep(e)
	}
	if s := q.Get(paramSince); s != "" {
		var e error
		if f.Since, e = time.Parse(time.RFC3339, s); e != nil {
			keep(fmt.Errorf("since=%.80q: want a time in RFC 3339", s))
		}
	}
	f.Queue = optional(q, paramQueue, ParseName, keep)
	f.Principal = optional(q, paramPrincipal, ParsePrincipal, keep)
	f.Subagent = optional(q, paramSubagent, ParseName, keep)
	for _, word := range q[paramLabel] {
		l, e := ParseLabel(word)
		f.Labels = append(f.Labels, l)
		keep(e)
	}
	f.After = optional(q, paramAfter, ParseRunID, keep)
	if s := q.Get(paramOpen); s != "" {
		var e error
		if f.Open, e = strconv.ParseBool(s); e != nil {
			keep(fmt.Errorf("open=%.80q: want true or false", s))
		}
	}
	return f, err
}

// Label is a label of a plan with its value.
type Label struct {
	Key   Name
	Value string
}

func (l Label) String() string { return string(l.Key) + "=" + l.Value }

// ParseLabel parses KEY=VALUE.
func ParseLabel(s string) (Label, error) {
	key, value, ok := strings.Cut(s, "=")
	name, err := ParseName(key)
	if !ok || err != nil || value == "" {
		return Label{}, fmt.Errorf("label %.80q: want KEY=VALUE", s)
	}
	return Label{name, value}, nil
}

// optional parses a parameter that may be absent.
func optional[T ~string](q url.Values, name string, parse func(string) (T, error), keep func(error)) (v T) {
	s := q.Get(name)
	if s == "" {
		return v
	}
	v, err := parse(s)
	if err != nil {
		keep(fmt.Errorf("%s: %w", name, err))
	}
	return v
}
