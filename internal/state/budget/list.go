package budget

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// keptDays is how long the balances of past days are kept.
const keptDays = 90

// maxList bounds a list of budgets.
const maxList = 10_000

// forget removes the balances of days long past, when a day begins to be spent.
func forget(tx *store.Tx, c Claim) error {
	today, err := time.Parse(time.DateOnly, c.Period)
	if err != nil {
		return nil //nolint:nilerr // the budget of a run
	}
	// A dispatch may wait longer for an answer, but then it has reserved nothing.
	_, err = tx.Exec("DELETE FROM budget_balance WHERE period GLOB '[0-9]*' AND period < ? AND held_dispatches = 0 AND held_millis = 0", today.AddDate(0, 0, -keptDays).Format(time.DateOnly))
	return err
}

// ForgetRun removes the balances of a run whose record is removed.
func ForgetRun(tx *store.Tx, run api.RunID) error {
	_, err := tx.Exec("DELETE FROM budget_balance WHERE period = ?", "run/"+string(run))
	return err
}

// List returns the balances that f selects, and an unspent one for each budget per day
// of grants that has nothing spent today, in the order of their names and periods.
func List(v store.Reader, grants []api.Grant, f api.BudgetFilter, now time.Time) (list []api.BudgetStatus, err error) {
	name := ""
	if f.Grant != "" {
		name = "grant:" + string(f.Grant)
	}
	today := record.BudgetPeriod(api.PerDay, "", "", now)
	where, args := "WHERE (? = '' OR principal = ?) AND (? = '' OR name = ?)", store.Args{f.Principal, f.Principal, name, name}
	switch {
	case f.Run != "":
		where, args = where+" AND period = ?", append(args, "run/"+string(f.Run))
	case !f.All:
		where, args = where+" AND (period = ? OR period GLOB 'run/*')", append(args, today)
	}
	seen := map[string]bool{}
	err = v.Each("SELECT name, principal, period, budget, "+amounts+" FROM budget_balance "+where+" ORDER BY name, principal, period DESC LIMIT ?", append(args, maxList), func(scan store.Scan) error {
		var name, budget string
		var s api.BudgetStatus
		var b balance
		if err := scan(append([]any{&name, &s.Principal, &s.Period, &budget}, b.into()...)...); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(budget), &s.Budget); err != nil {
			return err
		}
		b.held.Currency = b.spent.Currency
		s.Grant = grantName(name)
		// Today's budget is what the catalog says now.
		if i := slices.IndexFunc(grants, func(g api.Grant) bool { return g.Name == s.Grant && g.Principal == s.Principal && g.Budget != nil }); i >= 0 && s.Period == today {
			s.Budget = *grants[i].Budget
		}
		seen[name+" "+string(s.Principal)] = seen[name+" "+string(s.Principal)] || s.Period == today
		complete(&s, b)
		list = append(list, s)
		return nil
	})
	if err != nil || f.Run != "" {
		return list, err
	}
	for _, g := range grants {
		name := "grant:" + string(g.Name)
		if g.Budget == nil || g.Budget.Per == api.PerRun || seen[name+" "+string(g.Principal)] || f.Principal != "" && f.Principal != g.Principal || f.Grant != "" && f.Grant != g.Name {
			continue
		}
		s := api.BudgetStatus{Grant: g.Name, Principal: g.Principal, Period: today, Budget: *g.Budget}
		complete(&s, balance{})
		list = append(list, s)
	}
	return list, nil
}

// complete fills in the amounts of a status.
func complete(s *api.BudgetStatus, b balance) {
	s.Spent, s.Reserved = b.spent, b.held
	s.Left = s.Budget.Limit().Minus(b.spent.Plus(b.held))
	if run, ok := strings.CutPrefix(s.Period, "run/"); ok {
		s.Run = api.RunID(run)
	}
	if day, err := time.Parse(time.DateOnly, s.Period); err == nil {
		s.Renews = Renews(api.PerDay, day)
	}
}

// Today returns the balances of the first most budgets per day of grants.
func Today(v store.Reader, grants []api.Grant, most int, now time.Time) (list []api.BudgetStatus, err error) {
	today := record.BudgetPeriod(api.PerDay, "", "", now)
	for _, g := range grants {
		if g.Budget == nil || g.Budget.Per == api.PerRun || len(list) == most {
			continue
		}
		b, err := load(v, "grant:"+string(g.Name), g.Principal, today)
		if err != nil {
			return nil, err
		}
		s := api.BudgetStatus{Grant: g.Name, Principal: g.Principal, Period: today, Budget: *g.Budget}
		complete(&s, b)
		list = append(list, s)
	}
	return list, nil
}
