package budget

import (
	"cmp"
	"encoding/json"
	"errors"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Migration returns the schema of this package.
func Migration() store.Migration {
	return store.Migration{Owner: "budget", Steps: []string{`
CREATE TABLE budget_balance (
	name      TEXT NOT NULL,    -- grant:NAME or plan
	principal TEXT NOT NULL,
	period    TEXT NOT NULL,    -- see record.BudgetPeriod
	budget    TEXT NOT NULL,    -- api.Budget of the last reservation
	currency  TEXT NOT NULL,    -- of the costs
	spent_cost INTEGER NOT NULL, spent_dispatches INTEGER NOT NULL, spent_millis INTEGER NOT NULL, spent_tokens INTEGER NOT NULL,
	held_cost  INTEGER NOT NULL, held_dispatches  INTEGER NOT NULL, held_millis  INTEGER NOT NULL, held_tokens  INTEGER NOT NULL,
	PRIMARY KEY (name, principal, period)
) STRICT, WITHOUT ROWID;
CREATE INDEX budget_by_period ON budget_balance(period);
CREATE TABLE budget_hold ( -- of attempts that have not ended
	dispatch  TEXT NOT NULL,
	attempt   INTEGER NOT NULL,
	name      TEXT NOT NULL,
	principal TEXT NOT NULL,
	period    TEXT NOT NULL,
	reserved  TEXT NOT NULL,    -- api.Spend
	PRIMARY KEY (dispatch, attempt, name)
) STRICT, WITHOUT ROWID;`}}
}

const amounts = "currency, spent_cost, spent_dispatches, spent_millis, spent_tokens, held_cost, held_dispatches, held_millis, held_tokens"

func (b *balance) into() []any {
	return []any{&b.spent.Currency, &b.spent.Cost, &b.spent.Dispatches, &b.spent.Millis, &b.spent.Tokens, &b.held.Cost, &b.held.Dispatches, &b.held.Millis, &b.held.Tokens}
}

// load returns a balance; zero if nothing was spent yet.
func load(v store.Reader, name string, p api.Principal, period string) (b balance, err error) {
	err = v.Get("SELECT "+amounts+" FROM budget_balance WHERE name = ? AND principal = ? AND period = ?", store.Args{name, p, period}, b.into()...)
	if errors.Is(err, store.ErrNoRow) {
		return balance{}, nil
	}
	b.held.Currency = b.spent.Currency
	return b, err
}

// save stores a balance.
func save(tx *store.Tx, name string, p api.Principal, period, budget string, b balance) error {
	currency := cmp.Or(b.spent.Currency, b.held.Currency)
	if b.spent.Cost == 0 && b.held.Cost == 0 {
		currency = ""
	}
	_, err := tx.Exec(`INSERT INTO budget_balance(name, principal, period, budget, `+amounts+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET budget = iif(excluded.budget = '', budget, excluded.budget), currency = excluded.currency,
spent_cost = excluded.spent_cost, spent_dispatches = excluded.spent_dispatches, spent_millis = excluded.spent_millis, spent_tokens = excluded.spent_tokens,
held_cost = excluded.held_cost, held_dispatches = excluded.held_dispatches, held_millis = excluded.held_millis, held_tokens = excluded.held_tokens`,
		name, p, period, budget, currency, int64(b.spent.Cost), b.spent.Dispatches, b.spent.Millis, b.spent.Tokens, int64(b.held.Cost), b.held.Dispatches, b.held.Millis, b.held.Tokens)
	return err
}

// hold stores what an attempt reserves of one budget.
func hold(tx *store.Tx, m *record.Manifest, c Claim, b balance, reserved api.Spend) error {
	budget, err := json.Marshal(c.Budget)
	if err != nil {
		return err
	}
	amount, err := json.Marshal(reserved)
	if err != nil {
		return err
	}
	if b == (balance{}) {
		if err := forget(tx, c); err != nil {
			return err
		}
	}
	b.held = b.held.Plus(reserved)
	if err := save(tx, c.Name, m.Principal, c.Period, string(budget), b); err != nil {
		return err
	}
	_, err = tx.Exec("INSERT INTO budget_hold(dispatch, attempt, name, principal, period, reserved) VALUES (?, ?, ?, ?, ?, ?)", m.ID, m.Attempt, c.Name, m.Principal, c.Period, string(amount))
	return err
}

// settle moves what an attempt reserved of one budget to what it spent.
func settle(tx *store.Tx, id api.DispatchID, attempt int, h record.BudgetClaim, spent api.Spend) error {
	var p api.Principal
	if err := tx.Get("SELECT principal FROM budget_hold WHERE dispatch = ? AND attempt = ? AND name = ?", store.Args{id, attempt, h.Budget}, &p); err != nil {
		return err
	}
	b, err := load(tx, h.Budget, p, h.Period)
	if err != nil {
		return err
	}
	b.held, b.spent = b.held.Minus(h.Reserved), b.spent.Plus(spent)
	if err := save(tx, h.Budget, p, h.Period, "", b); err != nil {
		return err
	}
	_, err = tx.Exec("DELETE FROM budget_hold WHERE dispatch = ? AND attempt = ? AND name = ?", id, attempt, h.Budget)
	return err
}
