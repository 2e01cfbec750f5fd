package broker

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
)

// meter counts what an attempt uses of its model, and says when a limit is spent. What
// an answer uses is exactly what the model's server said of it; nothing is estimated.
type meter struct {
	limits   api.Limits
	price    api.Price
	currency string

	mu       sync.Mutex // guards the fields below
	tokens   api.Tokens
	cost     *big.Int // see price
	requests int64
	turns    int64
	pending  int64         // requests that may become turns
	freed    chan struct{} // closed and replaced when one did not
}

// newMeter returns a meter that has counted nothing.
func newMeter(cfg Config) (*meter, error) {
	m := &meter{limits: cfg.Limits, cost: new(big.Int), freed: make(chan struct{})}
	if cfg.Model == nil {
		return m, nil
	}
	p, priced := cfg.Model.Prices[cfg.Model.ID]
	if !priced && cfg.Limits.Cost > 0 {
		return nil, fmt.Errorf("model %q has a limit of cost and no price for %q", cfg.Model.Name, cfg.Model.ID)
	}
	m.price, m.currency = p, cfg.Model.Currency
	if priced {
		m.currency = cmp.Or(m.currency, api.DefaultCurrency)
	}
	return m, nil
}

// usage returns what is counted so far.
func (m *meter) usage() api.ModelUsage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return api.ModelUsage{Tokens: m.tokens, Requests: m.requests, Turns: m.turns, Cost: costOf(m.cost), Currency: m.currency}
}

// request counts a request, whatever becomes of it.
func (m *meter) request() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests++
}

// begin lets one more request for an answer pass, or returns the limit that is spent. It
// waits while requests in progress may still take the last turns. After it has
// let one pass, the caller calls settle once.
func (m *meter) begin(ctx context.Context) (spent string, err error) {
	for {
		m.mu.Lock()
		spent, freed := m.spent(0), m.freed
		if spent != "" || m.limits.Turns == 0 || m.turns+m.pending < int64(m.limits.Turns) {
			if spent == "" {
				m.pending++
			}
			m.mu.Unlock()
			return spent, nil
		}
		m.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// settle counts a request that begin let pass: as a turn, if it was answered.
func (m *meter) settle(answered bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending--
	if answered {
		m.turns++
	}
	close(m.freed)
	m.freed = make(chan struct{})
}

// set replaces the count of one answer and returns the limit that is passed by now.
func (m *meter) set(before, now api.Tokens) (passed string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tokens.Input += now.Input - before.Input
	m.tokens.Output += now.Output - before.Output
	m.tokens.CacheRead += now.CacheRead - before.CacheRead
	m.tokens.CacheWrite += now.CacheWrite - before.CacheWrite
	m.cost.Add(m.cost, price(m.price, now))
	m.cost.Sub(m.cost, price(m.price, before))
	return m.spent(1)
}

// spent returns the limit that is used up, with over 0, or passed, with over 1. The
// caller holds m.mu.
func (m *meter) spent(over int64) string {
	l := m.limits
	switch used := m.tokens.Total(); {
	case l.Tokens > 0 && used >= l.Tokens+over:
		return fmt.Sprintf("tokens: used %s of %s", grouped(used), grouped(l.Tokens))
	case l.Cost > 0 && m.cost.Cmp(exactly(l.Cost)) >= int(over):
		return strings.TrimSpace(fmt.Sprintf("cost: used %s of %s %s", costOf(m.cost), l.Cost, m.currency))
	case l.Turns > 0 && m.turns >= int64(l.Turns)+over:
		return fmt.Sprintf("turns: used %s of %s", grouped(m.turns), grouped(int64(l.Turns)))
	}
	return ""
}

// bounded reports whether a limit needs the count of each answer.
func (m *meter) bounded() bool { return m.limits.Tokens > 0 || m.limits.Cost > 0 }

// grouped writes n with commas.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
