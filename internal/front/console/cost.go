package console

import (
	"fmt"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Cost is what models cost, one amount for each currency.
func Cost(list []api.ModelUsage) string {
	var words []string
	for i := range list {
		if u := &list[i]; u.Cost > 0 || u.Currency != "" {
			words = append(words, strings.TrimSpace(u.Cost.String()+" "+Line(u.Currency)))
		}
	}
	return strings.Join(words, ", ")
}

// ModelUsage says what was used of a model.
func ModelUsage(u api.ModelUsage) string {
	if u.Requests == 0 {
		return "made no request to its model"
	}
	count := func(n int64, noun string) string {
		if n != 1 {
			noun += "s"
		}
		return fmt.Sprintf("%d %s", n, noun)
	}
	parts := fmt.Sprintf("%d in, %d out", u.Input, u.Output)
	if u.CacheRead > 0 || u.CacheWrite > 0 {
		parts += fmt.Sprintf(", %d read from cache, %d written to it", u.CacheRead, u.CacheWrite)
	}
	text := fmt.Sprintf("%s, %s, %s (%s)", count(u.Requests, "request"), count(u.Turns, "turn"), count(u.Total(), "token"), parts)
	if cost := Cost([]api.ModelUsage{u}); cost != "" {
		text += ", cost " + cost
	}
	if u.Uncounted > 0 {
		text += fmt.Sprintf(", uncounted: %d (the model may have billed ", u.Uncounted)
		if more := Cost([]api.ModelUsage{{Cost: u.UncountedCost, Currency: u.Currency}}); u.UncountedUnbound > 0 || u.UncountedTokens == 0 {
			text += "more)"
		} else {
			text += strings.TrimSuffix("at most "+count(u.UncountedTokens, "more token")+", "+more, ", ") + ")"
		}
	}
	return text
}

// Unreachable says which model a worker cannot connect to, and why.
func Unreachable(u *api.Unreachable) string {
	return fmt.Sprintf("%s at %s cannot be reached: %s", Line(string(u.Model)), Line(u.Host), Line(u.Error))
}

// Unreachable is the function of that name, with how often the worker tried, and since
// when.
func (o *Output) Unreachable(u *api.Unreachable) string {
	tries := "1 try"
	if u.Tries != 1 {
		tries = fmt.Sprintf("%d tries", u.Tries)
	}
	return fmt.Sprintf("%s (%s since %s)", Unreachable(u), tries, o.Time(u.Since))
}
