package api

import (
	"math"
	"testing"
	"time"
)

// Amounts neither overflow, nor add up two currencies, nor refuse for what is not used.
//
// proves R-O11
func TestSpendAddsUp(t *testing.T) {
	huge := Spend{Cost: math.MaxInt64, Currency: "usd", Dispatches: math.MaxInt64, Millis: math.MaxInt64, Tokens: math.MaxInt64}
	if huge.Plus(huge) != huge || huge.Minus(huge) != (Spend{Currency: "usd"}) || (Spend{}).Minus(huge) != (Spend{}) {
		t.Errorf("%+v %+v", huge.Plus(huge), huge.Minus(huge))
	}
	if what := (Spend{Tokens: 1}).Exceeds(huge, Spend{Tokens: MaxBudgetCount}); what != "tokens" {
		t.Errorf("one more than all exceeds %q", what)
	}
	usd, eur := Spend{Cost: 5, Currency: "usd"}, Spend{Cost: 7, Currency: "eur", Tokens: 1}
	if got := usd.Plus(eur); got != (Spend{Cost: 5, Currency: "usd", Tokens: 1}) {
		t.Errorf("%+v", got)
	}
	if got := usd.Minus(usd).Plus(eur); got != eur {
		t.Errorf("%+v", got)
	}
	over := Spend{Tokens: 11, Dispatches: 1}
	for more, want := range map[Spend]string{{Dispatches: 1}: "", {Tokens: 1}: "tokens", {Dispatches: 3}: "dispatches"} {
		if got := more.Exceeds(over, Spend{Tokens: 10, Dispatches: 3}); got != want {
			t.Errorf("%+v on top of %+v exceeds %q, want %q", more, over, got, want)
		}
	}
}

// A result is reused up to the age that a plan allows, to the nanosecond.
//
// proves R-O12
func TestReuseUpToAnAge(t *testing.T) {
	var none *ReusePolicy
	hour := &ReusePolicy{MaxAge: Duration(time.Hour)}
	for _, c := range []struct {
		p      *ReusePolicy
		age    time.Duration
		allows bool
	}{
		{none, 1000 * time.Hour, true},
		{&ReusePolicy{}, 1000 * time.Hour, true},
		{&ReusePolicy{Never: true}, 0, false},
		{hour, 0, true},
		{hour, time.Hour, true},
		{hour, time.Hour + 1, false},
		{hour, -time.Second, true},
	} {
		if got := c.p.Allows(c.age); got != c.allows {
			t.Errorf("%+v allows a result of %s: %t", c.p, c.age, got)
		}
	}
}
