package record

import (
	"fmt"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// PlanBudget names the budget of a run's plan in claims; that of a grant is named
// grant:NAME, as the policy that it becomes.
const PlanBudget = "plan"

// BudgetClaim is what an attempt reserves of one budget. Its members are in the order of
// their JSON names.
type BudgetClaim struct {
	Before   api.Spend `json:"before"` // spent and reserved by other attempts
	Budget   string    `json:"budget"` // grant:NAME or PlanBudget
	Limit    api.Spend `json:"limit"`  // zero members have no bound
	Period   string    `json:"period"` // see BudgetPeriod
	Reserved api.Spend `json:"reserved"`
}

// BudgetSettlement is what an attempt that has ended spent of one budget.
type BudgetSettlement struct {
	Budget string    `json:"budget"`
	Period string    `json:"period"`
	Spent  api.Spend `json:"spent"`
}

// MaxBudgets is how many budgets one attempt may be subject to: its entry has them all.
const MaxBudgets = 16

func (b *bounds) claims(list []BudgetClaim) []BudgetClaim {
	list = slices.Clone(list[:min(len(list), MaxBudgets)])
	for i := range list {
		c := &list[i]
		c.Budget, c.Period = b.cut(c.Budget), b.cut(c.Period)
		c.Before, c.Limit, c.Reserved = b.spend(c.Before), b.spend(c.Limit), b.spend(c.Reserved)
	}
	return list
}

func (b *bounds) settlements(list []BudgetSettlement) []BudgetSettlement {
	list = slices.Clone(list[:min(len(list), MaxBudgets)])
	for i := range list {
		s := &list[i]
		s.Budget, s.Period, s.Spent = b.cut(s.Budget), b.cut(s.Period), b.spend(s.Spent)
	}
	return list
}

func (b *bounds) spend(s api.Spend) api.Spend {
	return api.Spend{
		Cost: max(0, min(s.Cost, api.MaxCost)), Currency: b.cut(s.Currency), Dispatches: b.number(s.Dispatches), Millis: b.number(s.Millis), Tokens: b.number(s.Tokens),
	}
}

// BudgetPeriod names what a budget is for: a day of UTC, a run, or a dispatch outside a
// run.
func BudgetPeriod(per api.BudgetPeriod, run api.RunID, dispatch api.DispatchID, at time.Time) string {
	switch {
	case per != api.PerRun:
		return at.UTC().Format(time.DateOnly)
	case run != "":
		return "run/" + string(run)
	}
	return "dispatch/" + string(dispatch)
}

// DrainTime is how long the answers of a model are read after the agent has ended, in all
// waits of an attempt together. What is outstanding then is uncounted.
const DrainTime = api.Duration(30 * time.Second)

// DrainOf is the Drain of a manifest with this endpoint.
func DrainOf(endpoint *api.ModelUse) api.Duration {
	if endpoint == nil {
		return 0
	}
	return DrainTime
}

// MostSpend returns what the limits of an attempt allow it to spend at most, with the
// currency of its model. A resumed attempt is no dispatch of its own.
func MostSpend(m *Manifest, currency string) api.Spend {
	s := api.Spend{Millis: time.Duration(m.Limits.Timeout + m.VerifyTime + m.Drain).Milliseconds()}
	if m.Attempt == 1 {
		s.Dispatches = 1
	}
	if m.Endpoint != nil {
		s.Tokens, s.Cost = m.Limits.Tokens, m.Limits.Cost
		if s.Cost > 0 {
			s.Currency = currency
		}
	}
	return s
}

// Uncounted says why what an attempt may spend of a limit has no bound or no count;
// empty if it has both.
func Uncounted(m *Manifest, limit api.Spend, currency string) string {
	set := func(key string) string {
		return fmt.Sprintf("set limits.%s of subagent %q, or of target %q", key, m.Subagent, m.Target)
	}
	switch {
	case m.Model == "" || limit.Tokens == 0 && limit.Cost == 0:
		return ""
	case m.Endpoint == nil:
		return fmt.Sprintf("subagent %q uses the model %q, which is not in the catalog, so nothing counts what it uses; declare it in models", m.Subagent, m.Model)
	case limit.Tokens > 0 && m.Limits.Tokens == 0:
		return fmt.Sprintf("subagent %q has no limit of tokens, so nothing says how many it may use; ", m.Subagent) + set("tokens")
	case limit.Cost > 0 && m.Limits.Cost == 0:
		return fmt.Sprintf("subagent %q has no limit of cost, so nothing says how much it may cost; ", m.Subagent) + set("cost")
	case limit.Cost > 0 && limit.Currency != currency:
		return fmt.Sprintf("the prices of model %q are in %s, the budget is in %s; budget the cost in %s", m.Endpoint.Name, currency, limit.Currency, currency)
	}
	return ""
}

// SettledSpend returns what an attempt spent of what it had reserved. The worker's
// signed result has what the broker counted. An attempt that started and left no result
// spent all: nothing says what it used. One with uncounted requests spent all, or what
// was counted and what they used at most, whichever is more. One that never started spent
// no tokens.
func SettledSpend(reserved api.Spend, started bool, result *api.ResultSummary, millis int64) api.Spend {
	s := api.Spend{Dispatches: reserved.Dispatches, Millis: max(0, min(millis, reserved.Millis))}
	switch {
	case result != nil && result.Usage.Model != nil:
		u := result.Usage.Model
		s.Tokens, s.Cost = max(0, u.Total()), max(0, u.Cost)
		if u.Uncounted > 0 {
			s.Tokens = min(s.Tokens+max(0, u.UncountedTokens), maxInt)
			s.Cost = min(s.Cost+max(0, u.UncountedCost), api.MaxCost)
		}
		if s.Cost > 0 {
			s.Currency = u.Currency
		}
		if u.Uncounted > 0 {
			s.Tokens = max(s.Tokens, reserved.Tokens)
			if reserved.Cost > s.Cost {
				s.Cost, s.Currency = reserved.Cost, reserved.Currency
			}
		}
	case result == nil && started:
		s.Tokens, s.Cost, s.Currency = reserved.Tokens, reserved.Cost, reserved.Currency
	}
	return s
}
