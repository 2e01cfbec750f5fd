package webpage

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	attemptEvery = 500 * time.Millisecond // requests for logins and enrolments of one address
	attemptBurst = 120                    // an office behind one address signs in at once
	maxAddresses = 4096
)

// addressLimit bounds how often each address may log in or enrol. Of IPv6 the network of
// 64 bits counts, since one customer has all of it.
type addressLimit struct {
	now func() time.Time

	mu   sync.Mutex
	seen map[netip.Addr]*rate.Limiter // guarded by mu
	rest *rate.Limiter                // of all addresses beyond maxAddresses together
}

func newAddressLimit(now func() time.Time) *addressLimit {
	return &addressLimit{now: now, seen: map[netip.Addr]*rate.Limiter{}, rest: rate.NewLimiter(rate.Every(attemptEvery), attemptBurst)}
}

// allow reports whether a request from a remote HOST:PORT is within the limit.
func (l *addressLimit) allow(remote string) bool {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return false
	}
	addr := at.Addr().Unmap().WithZone("")
	if addr.Is6() {
		network, err := addr.Prefix(64)
		if err != nil {
			return false
		}
		addr = network.Addr()
	}
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	one, ok := l.seen[addr]
	if !ok {
		if len(l.seen) >= maxAddresses {
			for a, other := range l.seen {
				if other.TokensAt(now) >= attemptBurst {
					delete(l.seen, a)
				}
			}
		}
		if len(l.seen) >= maxAddresses {
			return l.rest.AllowN(now, 1)
		}
		one = rate.NewLimiter(rate.Every(attemptEvery), attemptBurst)
		l.seen[addr] = one
	}
	return one.AllowN(now, 1)
}
