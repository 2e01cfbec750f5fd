package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
)

// meter counts what an attempt uses of its model, and says when a limit is spent. What
// an answer uses is exactly what the model's server said of it; nothing is estimated. An
// answer whose use is not known to its end is uncounted: limits count it at what it may
// have used at most.
type meter struct {
	limits   api.Limits
	bounding string // the member of a request that bounds its answer
	price    api.Price
	currency string

	mu        sync.Mutex // guards the fields below, and the bills
	tokens    api.Tokens
	cost      *big.Int // see price
	requests  int64
	turns     int64
	uncounted int64
	unbound   int64          // uncounted answers without a bound
	lost      most           // of the uncounted answers, beyond what they said
	out       map[*bill]bool // requests that were let pass and have not ended
	line      []*bill        // requests that wait to pass, in order of arrival
	closed    bool           // no request passes any more
	changed   chan struct{}  // closed and replaced when a bill ends, or becomes a turn
}

// most is what requests may use at most.
type most struct {
	tokens  int64
	cost    *big.Int // nil: 0
	unbound bool     // there is no bound
}

// bill is what one request for an answer may use, and what its answer said so far.
type bill struct {
	most most
	said api.Tokens
	turn bool // it was answered
}

// newMeter returns a meter that has counted nothing.
func newMeter(cfg Config) (*meter, error) {
	m := &meter{limits: cfg.Limits, cost: new(big.Int), out: map[*bill]bool{}, changed: make(chan struct{})}
	if cfg.Model == nil {
		return m, nil
	}
	p, priced := cfg.Model.Prices[cfg.Model.ID]
	if !priced && cfg.Limits.Cost > 0 {
		return nil, fmt.Errorf("model %q has a limit of cost and no price for %q", cfg.Model.Name, cfg.Model.ID)
	}
	m.price, m.currency, m.bounding = p, cfg.Model.Currency, boundOf(cfg.Model.API)
	if priced {
		m.currency = cmp.Or(m.currency, api.DefaultCurrency)
	}
	return m, nil
}

// usage returns what is counted so far.
func (m *meter) usage() api.ModelUsage {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := api.ModelUsage{Tokens: m.tokens, Requests: m.requests, Turns: m.turns, Uncounted: m.uncounted, Cost: costOf(m.cost), Currency: m.currency}
	u.UncountedTokens, u.UncountedUnbound = m.lost.tokens, m.unbound
	if m.lost.cost != nil {
		u.UncountedCost = min(costOf(m.lost.cost), api.MaxCost)
	}
	return u
}

// request counts a request, whatever becomes of it.
func (m *meter) request() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests++
}

// bill returns the bill of a request with a body of so many bytes. A token of text is at
// least one byte, and the server adds a few of its own. A body with other content has no
// bound: see facts.unbound. output is how many tokens the
// answer may have; 0: nothing bounds it.
func (m *meter) bill(body, output int64) *bill {
	if output <= 0 {
		return &bill{most: most{unbound: true}}
	}
	t := api.Tokens{CacheWrite: body + framing, Output: output}
	cost := price(m.price, t)
	t.Input, t.CacheWrite = t.CacheWrite, 0
	if c := price(m.price, t); c.Cmp(cost) > 0 {
		cost = c
	}
	return &bill{most: most{tokens: t.Total(), cost: cost}}
}

// framing is how many tokens a server adds to those of a request's text at most, such as
// the marks of messages and tools.
const framing = 1024

// errClosed is why a request does not pass: the agent has ended.
var errClosed = errors.New("the agent has ended")

// begin lets the request of b pass, or returns the limit that is spent. Requests pass in
// order of arrival. One passes if it fits into what the limits leave beside those that
// have not ended, or if it is the only one. After it has passed, the caller calls end once.
func (m *meter) begin(ctx context.Context, b *bill) (spent string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.line = append(m.line, b)
	defer m.leave(b)
	for {
		switch spent := m.spent(0); {
		case m.closed:
			return "", errClosed
		case spent != "":
			return spent, nil
		case m.line[0] == b && m.fits(b):
			m.out[b] = true
			return "", nil
		}
		changed := m.changed
		m.mu.Unlock()
		select {
		case <-changed:
			err = nil
		case <-ctx.Done():
			err = ctx.Err()
		}
		m.mu.Lock()
		if err != nil {
			return "", err
		}
	}
}

// leave ends the wait of b. The caller holds m.mu.
func (m *meter) leave(b *bill) {
	m.line = slices.DeleteFunc(m.line, func(o *bill) bool { return o == b })
	m.wake()
}

// wake wakes those that wait for a change. The caller holds m.mu.
func (m *meter) wake() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// fits reports whether b may pass now. The caller holds m.mu.
func (m *meter) fits(b *bill) bool {
	if len(m.out) == 0 {
		return true // else a request whose bound is too high would never pass
	}
	turns, sum := m.turns+1, most{tokens: b.most.tokens, unbound: b.most.unbound, cost: b.most.cost}
	for o := range m.out {
		if !o.turn {
			turns++
		}
		sum.add(o.rest(m.price))
	}
	l := m.limits
	return (l.Turns == 0 || turns <= int64(l.Turns)) && (!m.bounded() || !m.exceeds(sum, 1))
}

// rest is what b may use beyond what its answer said.
func (b *bill) rest(p api.Price) most {
	if b.most.unbound {
		return most{unbound: true}
	}
	cost := new(big.Int).Sub(b.most.cost, price(p, b.said))
	if cost.Sign() < 0 {
		cost.SetInt64(0)
	}
	return most{tokens: max(0, b.most.tokens-b.said.Total()), cost: cost}
}

func (s *most) add(o most) {
	s.tokens += o.tokens
	s.unbound = s.unbound || o.unbound
	if o.cost != nil {
		sum := new(big.Int).Set(o.cost)
		if s.cost != nil {
			sum.Add(sum, s.cost)
		}
		s.cost = sum
	}
}

// exceeds reports whether more, with what was used and lost, reaches a limit of tokens or
// cost with over 0, or passes it with over 1. The caller holds m.mu.
func (m *meter) exceeds(more most, over int64) bool {
	more.add(m.lost)
	l, cost := m.limits, new(big.Int).Set(m.cost)
	if more.cost != nil {
		cost.Add(cost, more.cost)
	}
	return more.unbound || l.Tokens > 0 && m.tokens.Total()+more.tokens >= l.Tokens+over || l.Cost > 0 && cost.Cmp(exactly(l.Cost)) >= int(over)
}

// answered counts the request of b as a turn.
func (m *meter) answered(b *bill) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b.turn = true
	m.turns++
	m.wake()
}

// end ends the request of b. It is uncounted unless its use is known: the answer said it
// to its end, or the model billed nothing.
func (m *meter) end(b *bill, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.out, b)
	if !known {
		m.uncounted++
		m.lost.add(b.rest(m.price))
		if b.most.unbound {
			m.unbound++
		}
	}
	m.wake()
}

// set replaces what the answer of b said and returns the limit that is passed by now.
func (m *meter) set(b *bill, now api.Tokens) (passed string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := b.said
	m.tokens.Input += now.Input - before.Input
	m.tokens.Output += now.Output - before.Output
	m.tokens.CacheRead += now.CacheRead - before.CacheRead
	m.tokens.CacheWrite += now.CacheWrite - before.CacheWrite
	m.cost.Add(m.cost, price(m.price, now))
	m.cost.Sub(m.cost, price(m.price, before))
	b.said = now
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
	case m.uncounted > 0 && m.bounded() && m.exceeds(most{}, over):
		noun, was := "answers", "were"
		if m.uncounted == 1 {
			noun, was = "answer", "was"
		}
		why := fmt.Sprintf("tokens: unknown, because %d %s %s not counted, which may have used the rest of the limit", m.uncounted, noun, was)
		if m.unbound > 0 && m.bounding != "" {
			why += fmt.Sprintf("; requests with %s lose at most that many tokens of output", m.bounding)
		}
		return why
	}
	return ""
}

// close lets no further request pass.
func (m *meter) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.wake()
}

// drain waits until no request is out. It returns at once when ctx ends.
func (m *meter) drain(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.out) > 0 && ctx.Err() == nil {
		changed := m.changed
		m.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		m.mu.Lock()
	}
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
