package budget

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Claim is one budget that an attempt is subject to.
type Claim struct {
	Name   string // grant:NAME or record.PlanBudget
	Period string // see record.BudgetPeriod
	Budget api.Budget
}

// grantName returns the grant whose budget name is; empty for that of a plan.
func grantName(name string) api.Name {
	const prefix = "grant:"
	if len(name) > len(prefix) && name[:len(prefix)] == prefix {
		return api.Name(name[len(prefix):])
	}
	return ""
}

// Claims returns the budgets of an attempt: those of the grants that allow it, and that
// of the plan of its run; nil without.
func Claims(grants []api.Grant, plan *api.Budget, m *record.Manifest, at time.Time) (list []Claim) {
	for _, g := range grants {
		if g.Budget != nil {
			list = append(list, Claim{"grant:" + string(g.Name), record.BudgetPeriod(g.Budget.Per, m.Run, m.ID, at), *g.Budget})
		}
	}
	if plan != nil {
		list = append(list, Claim{record.PlanBudget, record.BudgetPeriod(api.PerRun, m.Run, m.ID, at), *plan})
	}
	return list
}

// Refusal says why an attempt may not begin.
type Refusal struct {
	Reason string
	// Waits names the budget that other attempts have reserved, if the attempt fits into every
	// budget with what is spent. It is empty if the attempt does not.
	Waits string
	// Line is that budget as the next attempts name it in what they are behind. A budget of a
	// day is the same on the next.
	Line string
	// Behind says that there is room, which is for earlier tasks.
	Behind bool
}

func (r *Refusal) Error() string { return r.Reason }

// balance is the row of one budget in one period.
type balance struct{ spent, held api.Spend }

// Reserve reserves most of each budget for an attempt, or of none and returns a
// *Refusal. It belongs into the transaction that admits the attempt: all transactions
// are serial, so what it reads is what it changes. An attempt waits for each budget of
// behind, also where it has room: the name is that of Refusal.Line, or empty for all.
func Reserve(tx *store.Tx, m *record.Manifest, claims []Claim, currency string, behind []string, at time.Time) (list []record.BudgetClaim, err error) {
	if len(claims) > record.MaxBudgets {
		return nil, &Refusal{Reason: fmt.Sprintf("%d budgets apply: at most %d; remove some from the grants of %s", len(claims), record.MaxBudgets, m.Principal)}
	}
	most := record.MostSpend(m, currency)
	var full *Refusal
	for _, c := range claims {
		limit := c.Budget.Limit()
		if why := record.Uncounted(m, limit, currency); why != "" {
			return nil, &Refusal{Reason: c.title() + ": " + why}
		}
		b, err := load(tx, c.Name, m.Principal, c.Period)
		if err != nil {
			return nil, err
		}
		before := b.spent.Plus(b.held)
		if limit.Cost > 0 && before.Currency != "" && before.Currency != limit.Currency {
			return nil, &Refusal{Reason: fmt.Sprintf("%s: %s%s are spent already, in another currency than the budget's %s", c.title(), before.Cost, before.Currency, limit.Currency)}
		}
		reserved := most
		if before.Currency != "" && reserved.Currency != before.Currency { // the cost has no bound
			reserved.Cost, reserved.Currency = 0, ""
		}
		if what := reserved.Exceeds(before, limit); what != "" {
			settled := b.spent
			settled.Dispatches += b.held.Dispatches // they are spent at the end, too
			switch gone := reserved.Exceeds(settled, limit); {
			case gone == "":
				if full == nil {
					full = &Refusal{Reason: c.spent(what, b, m, reserved, at), Waits: c.title(), Line: c.line()}
				}
			case reserved.Member(gone) > limit.Member(gone):
				return nil, &Refusal{Reason: c.never(gone, m, reserved)}
			default:
				return nil, &Refusal{Reason: c.spent(gone, b, m, reserved, at)}
			}
			continue // another budget may refuse it for good
		}
		if line, waits := c.behind(behind); waits {
			if full == nil {
				full = &Refusal{Reason: c.title() + ": tasks that started before wait for it", Waits: c.title(), Line: line, Behind: true}
			}
			continue
		}
		if err := hold(tx, m, c, b, reserved); err != nil {
			return nil, err
		}
		list = append(list, record.BudgetClaim{Before: before, Budget: c.Name, Limit: limit, Period: c.Period, Reserved: reserved})
	}
	if full != nil {
		return nil, full
	}
	return list, nil
}

// line names a budget in the lines of those that wait for it.
func (c *Claim) line() string {
	if strings.Contains(c.Period, "/") { // it is that of a run
		return c.Name + " " + c.Period
	}
	return c.Name
}

// behind reports whether an attempt waits for this budget, and in which of the lines.
func (c *Claim) behind(lines []string) (line string, ok bool) {
	if slices.Contains(lines, "") {
		return "", true
	}
	return c.line(), slices.Contains(lines, c.line())
}

// title names a budget and its period in a message.
func (c *Claim) title() string {
	if g := grantName(c.Name); g == "" {
		return "budget of " + c.period()
	} else {
		return fmt.Sprintf("budget of grant %q for %s", g, c.period())
	}
}

func (c *Claim) period() string {
	if c.Budget.Per == api.PerRun || grantName(c.Name) == "" {
		for i := range c.Period {
			if c.Period[i] == '/' {
				return c.Period[:i] + " " + c.Period[i+1:]
			}
		}
	}
	return c.Period + " (UTC)"
}

// never says that an attempt may use more than the whole budget, and what to change.
func (c *Claim) never(what string, m *record.Manifest, need api.Spend) string {
	key := "limits." + what
	if what == "wall" {
		if key = "limits.timeout"; m.VerifyTime > 0 {
			key += " or verify.timeout"
		}
	}
	s := fmt.Sprintf("%s: %s: this attempt may use %s, more than the whole budget of %s, so it never begins; lower %s of subagent %q, or ",
		c.title(), what, maximum(what, m, need), c.Budget.Limit().Of(what), key, m.Subagent)
	if g := grantName(c.Name); g != "" {
		return s + fmt.Sprintf("raise budget.%s of grant %q in bailiwick.yaml", what, g)
	}
	return s + fmt.Sprintf("submit the plan with a larger budget.%s", what)
}

// maximum says how much an attempt may use, and which part of it no limit of its subagent
// sets.
func maximum(what string, m *record.Manifest, need api.Spend) string {
	if what != "wall" || m.Drain == 0 {
		return need.Of(what)
	}
	return fmt.Sprintf("%s (with %s for outstanding answers of its model)", need.Of(what), time.Duration(m.Drain))
}

// spent says what is left, when the budget is new again, and who can raise it.
func (c *Claim) spent(what string, b balance, m *record.Manifest, need api.Spend, at time.Time) string {
	limit := c.Budget.Limit()
	s := fmt.Sprintf("%s: %s: %s of %s spent", c.title(), what, b.spent.Of(what), limit.Of(what))
	if held := b.held.Of(what); held != (api.Spend{Currency: b.held.Currency}).Of(what) {
		s += fmt.Sprintf(", %s reserved by attempts that have not ended", held)
	}
	s += fmt.Sprintf(", %s left; this attempt may use %s; ", limit.Minus(b.spent.Plus(b.held)).Of(what), maximum(what, m, need))
	if renews := Renews(c.Budget.Per, at); !renews.IsZero() {
		s += fmt.Sprintf("new again at %s; ", renews.Format(time.RFC3339))
	}
	if g := grantName(c.Name); g != "" {
		return s + fmt.Sprintf("to raise it, change budget.%s of grant %q in bailiwick.yaml", what, g)
	}
	return s + fmt.Sprintf("it is not renewed: submit what is left as another run, with a larger budget.%s", what)
}

// Renews returns when a budget is new again after at; zero: never.
func Renews(per api.BudgetPeriod, at time.Time) time.Time {
	if per != api.PerDay {
		return time.Time{}
	}
	y, m, d := at.UTC().Date()
	return time.Date(y, m, d+1, 0, 0, 0, 0, time.UTC)
}

// Held returns what an attempt has reserved and not settled. It does not change until
// Settle.
func Held(v store.Reader, id api.DispatchID, attempt int) (list []record.BudgetClaim, err error) {
	err = v.Each("SELECT name, period, reserved FROM budget_hold WHERE dispatch = ? AND attempt = ? ORDER BY name", store.Args{id, attempt}, func(scan store.Scan) error {
		var c record.BudgetClaim
		var reserved string
		if err := scan(&c.Budget, &c.Period, &reserved); err != nil {
			return err
		}
		err := json.Unmarshal([]byte(reserved), &c.Reserved)
		list = append(list, c)
		return err
	})
	return list, err
}

// Settle replaces what an attempt had reserved with what it spent. It belongs into the
// transaction that ends the attempt; an attempt that was settled has nothing reserved.
func Settle(tx *store.Tx, id api.DispatchID, attempt int, spent []record.BudgetSettlement) error {
	held, err := Held(tx, id, attempt)
	if err != nil {
		return err
	}
	for _, h := range held {
		i := 0
		for i < len(spent) && spent[i].Budget != h.Budget {
			i++
		}
		if i == len(spent) {
			return fmt.Errorf("dispatch %s attempt %d: %s is not settled", id, attempt, h.Budget)
		}
		if err := settle(tx, id, attempt, h, spent[i].Spent); err != nil {
			return err
		}
	}
	return nil
}

// Settlements returns what Settle is given: what an attempt spent of each budget.
func Settlements(held []record.BudgetClaim, started bool, result *api.ResultSummary, millis int64) (list []record.BudgetSettlement) {
	for _, h := range held {
		list = append(list, record.BudgetSettlement{Budget: h.Budget, Period: h.Period, Spent: record.SettledSpend(h.Reserved, started, result, millis)})
	}
	return list
}

// OfRun returns the budget that the plan of a run had when the run began to spend it;
// nil if it has none.
func OfRun(v store.Reader, run api.RunID) (*api.Budget, error) {
	var text string
	b := &api.Budget{}
	err := v.Get("SELECT budget FROM budget_balance WHERE name = ? AND period = ?", store.Args{record.PlanBudget, "run/" + string(run)}, &text)
	if errors.Is(err, store.ErrNoRow) {
		return nil, nil //nolint:nilnil // a run without a budget
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), b)
	}
	return b, err
}
