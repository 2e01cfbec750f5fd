package runverbs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// budgetVerbs are the verbs about budgets.
type budgetVerbs struct{ *commands }

func (t *budgetVerbs) listCommand(v *console.Verb) {
	var all bool
	t.connVerb(v, func(ctx context.Context, c *client.Conn, _ []string) error {
		list, err := c.Runtime().Budgets(ctx, api.BudgetFilter{All: all})
		if err != nil {
			return err
		}
		return t.printBudgets(list)
	})
	v.Flag(&all, "all")
}

func (t *budgetVerbs) showCommand(v *console.Verb) {
	t.connVerb(v, func(ctx context.Context, c *client.Conn, args []string) error {
		f := api.BudgetFilter{All: true}
		var err error
		var found []api.BudgetStatus
		if f.Grant, err = api.ParseName(args[0]); err == nil {
			found, err = c.Runtime().Budgets(ctx, f)
		}
		if f.Grant = ""; err == nil && len(found) == 0 {
			if f.Run, err = api.ParseRunID(args[0]); err == nil {
				found, err = c.Runtime().Budgets(ctx, f)
			}
		}
		if err == nil && len(found) == 0 {
			err = api.Errorf(api.CodeNotFound, "no budget of a grant or run %q, or nothing is reserved of it yet", args[0]).WithHint("see: bailiwick budget list")
		}
		if err != nil {
			return err
		}
		return t.printBudgets(found)
	})
}

func (t *budgetVerbs) printBudgets(list []api.BudgetStatus) error {
	return console.List(t.Output, list, budgetName, "BUDGET\tPRINCIPAL\tPERIOD\tLIMIT\tSPENT\tRESERVED\tLEFT\tNEW AGAIN", func(s api.BudgetStatus) string {
		renews := "-"
		if !s.Renews.IsZero() {
			renews = t.Time(s.Renews)
		}
		limit := s.Budget.Limit()
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", budgetName(s), s.Principal, s.Period, amounts(limit, limit), amounts(limit, s.Spent), amounts(limit, s.Reserved), amounts(limit, s.Left), renews)
	})
}

// budgetName is the grant or the run that has a budget.
func budgetName(s api.BudgetStatus) string {
	return cmp.Or(string(s.Grant), string(s.Run))
}

// amounts are those members of s that limit bounds.
func amounts(limit, s api.Spend) string {
	var words []string
	s.Currency = cmp.Or(s.Currency, limit.Currency)
	for _, name := range api.SpendNames() {
		switch {
		case limit.Member(name) == 0:
		case name == "dispatches" || name == "tokens":
			words = append(words, s.Of(name)+" "+name)
		default:
			words = append(words, s.Of(name))
		}
	}
	return strings.Join(words, ", ")
}

// budgetLine is the budget of a run on one line.
func budgetLine(s *api.BudgetStatus) string {
	limit := s.Budget.Limit()
	of := "its plan"
	if s.Grant != "" {
		of = "grant " + string(s.Grant)
	}
	line := fmt.Sprintf("%s of %s left, of %s", amounts(limit, s.Left), amounts(limit, limit), of)
	if s.Reserved != (api.Spend{}) && slices.ContainsFunc(api.SpendNames(), func(n string) bool { return limit.Member(n) > 0 && s.Reserved.Member(n) > 0 }) {
		line += fmt.Sprintf("; %s reserved", amounts(limit, s.Reserved))
	}
	return line
}
