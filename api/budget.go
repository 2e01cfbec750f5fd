package api

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"
)

// Budget bounds what the dispatches of a grant or a run may spend together (R-O11). A
// member that is absent has no bound; at least one is present, and none is zero.
type Budget struct {
	Cost       Money        `json:"cost,omitzero"`
	Tokens     Count        `json:"tokens,omitempty"` // of models, input and output together
	Wall       Duration     `json:"wall,omitempty"`   // from admission to end, added up over dispatches
	Dispatches Count        `json:"dispatches,omitempty"`
	Per        BudgetPeriod `json:"per,omitempty"`
}

// BudgetPeriod is what a budget is for.
type BudgetPeriod string

// The periods. A grant's budget is per day unless it says otherwise; a plan's is always
// per run. A day is a day of UTC. A dispatch outside a run is a run of its own.
const (
	PerDay BudgetPeriod = "day"
	PerRun BudgetPeriod = "run"
)

// UnmarshalText refuses other values.
func (p *BudgetPeriod) UnmarshalText(b []byte) error {
	switch v := BudgetPeriod(b); v {
	case PerDay, PerRun:
		*p = v
		return nil
	}
	return fmt.Errorf("%.40q: want day or run", b)
}

// The upper bounds of a budget.
const (
	MaxBudgetCount = 999_999_999_999_999
	MaxBudgetWall  = Duration(100 * 365 * 24 * time.Hour)
)

// Check refuses a budget that bounds nothing, or that is out of range.
func (b Budget) Check() error {
	switch {
	case b.Cost == (Money{}) && b.Tokens == 0 && b.Wall == 0 && b.Dispatches == 0:
		return errors.New("bounds nothing: give at least one of cost, tokens, wall, dispatches")
	case b.Cost.Amount < 0 || b.Tokens < 0 || b.Wall < 0 || b.Dispatches < 0 || b.Tokens > MaxBudgetCount || b.Dispatches > MaxBudgetCount:
		return errors.New("out of range")
	case b.Wall > MaxBudgetWall:
		return fmt.Errorf("wall %s: at most %s", time.Duration(b.Wall), time.Duration(MaxBudgetWall))
	case b.Wall%Duration(time.Second) != 0:
		return errors.New("wall: want whole seconds")
	}
	return nil
}

// Limit is the budget as an amount; zero members have no bound.
func (b Budget) Limit() Spend {
	return Spend{Cost: b.Cost.Amount, Currency: b.Cost.Currency, Dispatches: int64(b.Dispatches), Millis: time.Duration(b.Wall).Milliseconds(), Tokens: int64(b.Tokens)}
}

// Spend is an amount of what budgets bound. Its members are in the order of their JSON
// names, as entries of the log have them.
type Spend struct {
	Cost       Cost   `json:"cost,omitempty"`
	Currency   string `json:"currency,omitempty"` // of Cost; empty without
	Dispatches int64  `json:"dispatches,omitempty"`
	Millis     int64  `json:"millis,omitempty"` // of wall time
	Tokens     int64  `json:"tokens,omitempty"`
}

// Plus returns the sum of two amounts. It leaves out a cost of o in another currency
// than that of s, and it never overflows.
func (s Spend) Plus(o Spend) Spend {
	switch {
	case s.Cost == 0:
		s.Currency = cmp.Or(o.Currency, s.Currency)
	case o.Cost > 0 && o.Currency != s.Currency:
		o.Cost = 0
	}
	return Spend{
		Cost: Cost(sum(int64(s.Cost), int64(o.Cost))), Currency: s.Currency, Dispatches: sum(s.Dispatches, o.Dispatches),
		Millis: sum(s.Millis, o.Millis), Tokens: sum(s.Tokens, o.Tokens),
	}
}

// Minus returns what is left of s after o, never less than nothing.
func (s Spend) Minus(o Spend) Spend {
	return Spend{
		Cost: max(0, s.Cost-o.Cost), Currency: s.Currency, Dispatches: max(0, s.Dispatches-o.Dispatches),
		Millis: max(0, s.Millis-o.Millis), Tokens: max(0, s.Tokens-o.Tokens),
	}
}

func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Exceeds returns the name of the first member by which s, added to before, is above
// limit; empty if none. What s has nothing of it cannot exceed.
func (s Spend) Exceeds(before, limit Spend) string {
	for _, name := range SpendNames() {
		if most, more := limit.Member(name), s.Member(name); most > 0 && more > 0 && sum(before.Member(name), more) > most {
			return name
		}
	}
	return ""
}

// SpendNames are the names of what a budget bounds.
func SpendNames() []string { return []string{"dispatches", "tokens", "cost", "wall"} }

// Member returns the member of a name as a number.
func (s Spend) Member(name string) int64 {
	switch name {
	case "dispatches":
		return s.Dispatches
	case "tokens":
		return s.Tokens
	case "cost":
		return int64(s.Cost)
	}
	return s.Millis
}

// Of returns the member of a name as text.
func (s Spend) Of(name string) string {
	switch name {
	case "dispatches":
		return strconv.FormatInt(s.Dispatches, 10)
	case "tokens":
		return strconv.FormatInt(s.Tokens, 10)
	case "cost":
		return s.Cost.String() + s.Currency
	}
	return Span(s.Millis, time.Millisecond).String()
}

// Float returns the member of a name in units of the currency, or in seconds of wall time.
func (s Spend) Float(name string) float64 {
	switch name {
	case "cost":
		return s.Cost.Float()
	case "wall":
		return Span(s.Millis, time.Millisecond).Seconds()
	}
	return float64(s.Member(name))
}

// BudgetStatus is a budget and what is spent of it.
type BudgetStatus struct {
	Grant     Name      `json:"grant,omitempty"` // whose budget it is; empty for that of a plan
	Run       RunID     `json:"run,omitempty"`   // of a budget per run
	Principal Principal `json:"principal"`
	Period    string    `json:"period"`          // a day as 2006-01-02, a run, or a dispatch outside a run
	Budget    Budget    `json:"budget"`          // in force, or at the last dispatch of an earlier period
	Spent     Spend     `json:"spent"`           // by attempts that have ended
	Reserved  Spend     `json:"reserved"`        // by attempts that have not
	Left      Spend     `json:"left"`            // of the bounded members
	Renews    time.Time `json:"renews,omitzero"` // when it is new again; zero: never
}

// BudgetFilter selects budgets; empty members select all.
type BudgetFilter struct {
	Grant     Name
	Run       RunID
	Principal Principal
	All       bool // also those of past days, and of dispatches outside runs
}

// Count is a number whose text may end in k, M or G: 5M is 5000000.
type Count int64

var countPattern = regexp.MustCompile(`^([1-9][0-9]{0,14}|([1-9][0-9]{0,5})([kMG]))$`)

// UnmarshalText reads a positive number.
func (c *Count) UnmarshalText(b []byte) error {
	parts := countPattern.FindStringSubmatch(string(b))
	if parts == nil {
		return fmt.Errorf("%.40q: want a whole number from 1 to %d, or up to 999999 thousands, millions or thousand millions such as 500k, 5M, 1G", b, int64(MaxBudgetCount))
	}
	text, unit := parts[1], int64(1)
	if parts[3] != "" {
		text, unit = parts[2], map[string]int64{"k": 1_000, "M": 1_000_000, "G": 1_000_000_000}[parts[3]]
	}
	n, err := strconv.ParseInt(text, 10, 64)
	*c = Count(n * unit)
	return err
}

// UnmarshalJSON accepts a number or text.
func (c *Count) UnmarshalJSON(b []byte) error { return c.UnmarshalText(bytes.Trim(b, `"`)) }

// Money is an amount with its currency, written as 20usd or 0.5eur.
type Money struct {
	Amount   Cost
	Currency string // three letters
}

var moneyPattern = regexp.MustCompile(`^([0-9.]+)([a-z]{3})$`)

// MarshalText writes the form that UnmarshalText reads.
func (m Money) MarshalText() ([]byte, error) { return []byte(m.Amount.String() + m.Currency), nil }

// UnmarshalText reads an amount above zero.
func (m *Money) UnmarshalText(b []byte) error {
	parts := moneyPattern.FindSubmatch(b)
	var amount Cost
	if parts == nil || amount.UnmarshalText(parts[1]) != nil || amount == 0 {
		return fmt.Errorf("%.40q: want an amount above 0 with its currency, such as 20usd or 0.5eur", b)
	}
	m.Amount, m.Currency = amount, string(parts[2])
	return nil
}
