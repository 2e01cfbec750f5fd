package oauth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// fetchInterval is the shortest time between two fetches.
	fetchInterval = time.Minute
	// freshTime is how long keys are used before they are fetched again, so a key
	// that the issuer withdraws works at most this much longer.
	freshTime = 10 * time.Minute
	// staleTime is how long keys are used while the issuer does not answer.
	staleTime    = 24 * time.Hour
	fetchTimeout = 5 * time.Second
)

var errNoKeys = errors.New("unavailable")

// keyring caches the issuer's keys. It fetches them when a key is missing or no
// longer fresh, at most once a minute, so that tokens with made-up key ids cannot
// flood the issuer.
type keyring struct {
	fetch func(context.Context) ([]byte, error)
	now   func() time.Time

	fetching sync.Mutex // held during a fetch

	mu        sync.Mutex
	keys      map[string]key // guarded by mu
	fetchedAt time.Time      // of keys; guarded by mu
	triedAt   time.Time      // of the last fetch; guarded by mu
	err       error          // of the last fetch; guarded by mu
}

// find returns the key with an id, and fetches the keys if needed.
func (r *keyring) find(ctx context.Context, id string) (key, error) {
	k, ok, fresh := r.cached(id)
	if ok && fresh {
		return k, nil
	}
	if ok && !r.fetching.TryLock() {
		return k, nil // another request is fetching
	} else if !ok {
		r.fetching.Lock()
	}
	defer r.fetching.Unlock()
	// Another request may have fetched it meanwhile.
	if k, ok, fresh = r.cached(id); ok && fresh {
		return k, nil
	}
	if r.mayFetch() {
		_ = r.refresh(ctx) // kept in r.err; a cached key may still do
	}
	if k, ok, _ = r.cached(id); ok {
		return k, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keys == nil && r.err != nil {
		return key{}, fmt.Errorf("%w: %w", errNoKeys, r.err)
	}
	return key{}, errors.New("kid: the issuer has no such key")
}

// load fetches the keys now.
func (r *keyring) load(ctx context.Context) error {
	r.fetching.Lock()
	defer r.fetching.Unlock()
	return r.refresh(ctx)
}

// cached returns a key that is not stale, and whether it is fresh.
func (r *keyring) cached(id string) (k key, ok, fresh bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	age := r.now().Sub(r.fetchedAt)
	if r.keys != nil && age > staleTime {
		r.keys = nil
	}
	k, ok = r.keys[id]
	return k, ok, age <= freshTime
}

// mayFetch reports whether the keys may be fetched again.
func (r *keyring) mayFetch() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.triedAt.IsZero() || r.now().Sub(r.triedAt) >= fetchInterval
}

// refresh fetches the keys, which replace all cached ones: a key that left the set
// is no longer accepted. The caller holds fetching.
func (r *keyring) refresh(ctx context.Context) error {
	r.mu.Lock()
	r.triedAt = r.now()
	r.mu.Unlock()
	// Other requests wait for the keys even if this one is cancelled.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	defer cancel()
	b, err := r.fetch(ctx)
	var keys map[string]key
	if err == nil {
		keys, err = parseKeys(b)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err = err; err == nil {
		r.keys, r.fetchedAt = keys, r.now()
	}
	return err
}

func get(ctx context.Context, c *http.Client, address string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", address, resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxKeysLen+1))
}
