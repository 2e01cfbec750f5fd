package plan

import (
	"encoding/json"
	"regexp"

	"github.com/bailiwick-dev/bailiwick/api"
)

// readBudget reads what the dispatches of a run may spend together.
func readBudget(r *reader, path string, raw json.RawMessage) *api.Budget {
	b, before := &api.Budget{}, r.count
	r.object(path, raw, readers{
		"cost":       func(path string, raw json.RawMessage) { b.Cost = r.money(path, raw) },
		"tokens":     func(path string, raw json.RawMessage) { b.Tokens = r.amount(path, raw) },
		"wall":       func(path string, raw json.RawMessage) { b.Wall = r.duration(path, raw) },
		"dispatches": func(path string, raw json.RawMessage) { b.Dispatches = r.amount(path, raw) },
		"per": func(path string, raw json.RawMessage) {
			if r.text(path, raw, maxTime) != string(api.PerRun) {
				r.shape(path, "want run, got %s: the budget of a plan is for its run; a grant's budget is per day", kind(raw))
			}
		},
	})
	if r.count == before {
		if err := b.Check(); err != nil {
			r.sense(path, "%v", err)
		}
	}
	return b
}

// amount reads a number, or text such as 5M.
func (r *reader) amount(path string, raw json.RawMessage) (c api.Count) {
	text := raw
	if raw[0] == '"' {
		text = []byte(r.text(path, raw, maxTime))
	}
	if err := c.UnmarshalText(text); err != nil && len(text) > 0 {
		r.shape(path, "%v", err)
	}
	return c
}

// moneyForm is the syntax of an amount of money. Its range is checked later.
var moneyForm = regexp.MustCompile(`^[0-9]{1,9}(\.[0-9]{1,6})?[a-z]{3}$`)

func (r *reader) money(path string, raw json.RawMessage) (m api.Money) {
	s := r.text(path, raw, maxTime)
	if s == "" {
		return m
	}
	if err := m.UnmarshalText([]byte(s)); err != nil && moneyForm.MatchString(s) {
		r.sense(path, "%v", err)
	} else if err != nil {
		r.shape(path, "%v", err)
	}
	return m
}
