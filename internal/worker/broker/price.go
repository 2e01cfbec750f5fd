package broker

import (
	"math"
	"math/big"

	"github.com/bailiwick-dev/bailiwick/api"
)

// perPrice is how many tokens a price is for.
const perPrice = 1_000_000

// price returns what t costs, exactly: in millionths of an api.Cost. Tokens read from
// or written to a cache that has no price of its own cost as much as other input, so
// that a missing price never makes them free.
func price(p api.Price, t api.Tokens) *big.Int {
	read, write := p.CacheRead, p.CacheWrite
	if read == 0 {
		read = p.Input
	}
	if write == 0 {
		write = p.Input
	}
	sum, each := new(big.Int), new(big.Int)
	for _, part := range []struct {
		tokens int64
		price  api.Cost
	}{{t.Input, p.Input}, {t.Output, p.Output}, {t.CacheRead, read}, {t.CacheWrite, write}} {
		sum.Add(sum, each.Mul(big.NewInt(part.tokens), big.NewInt(int64(part.price))))
	}
	return sum
}

// costOf rounds what price returns up to an api.Cost.
func costOf(exact *big.Int) api.Cost {
	q, r := new(big.Int).QuoRem(exact, big.NewInt(perPrice), new(big.Int))
	if r.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	if !q.IsInt64() {
		return math.MaxInt64
	}
	return api.Cost(q.Int64())
}

// exactly is the inverse of costOf.
func exactly(c api.Cost) *big.Int {
	return new(big.Int).Mul(big.NewInt(int64(c)), big.NewInt(perPrice))
}
