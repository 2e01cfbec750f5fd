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
	// askPause is between two requests for the keys, whoever makes them needed.
	askPause = time.Minute
	// freshTime is how long keys are used without asking: a key that the issuer
	// takes back counts for so long.
	freshTime = 10 * time.Minute
	// staleTime is how long they are used when the issuer does not answer.
	staleTime = 24 * time.Hour
	askTime   = 5 * time.Second
)

var errNoKeys = errors.New("they cannot be had")

// keyring has the issuer's keys. It asks for them when one is needed that it
// does not have or has had for long, at most once a minute: whoever sends
// tokens with made-up names makes nobody ask more.
type keyring struct {
	fetch func(context.Context) ([]byte, error)
	now   func() time.Time

	asking sync.Mutex // held while it asks

	mu    sync.Mutex
	keys  map[string]key // guarded by mu
	had   time.Time      // when they came; guarded by mu
	asked time.Time      // when it last asked; guarded by mu
	err   error          // why that failed; guarded by mu
}

// find returns the key of that name.
func (r *keyring) find(ctx context.Context, id string) (key, error) {
	k, ok, fresh := r.look(id)
	if ok && fresh {
		return k, nil
	}
	if ok && !r.asking.TryLock() {
		return k, nil // somebody asks already
	} else if !ok {
		r.asking.Lock()
	}
	defer r.asking.Unlock()
	// Whoever was faster may have it now.
	if k, ok, fresh = r.look(id); ok && fresh {
		return k, nil
	}
	if r.may() {
		_ = r.ask(ctx) // noted; what there is may do
	}
	if k, ok, _ = r.look(id); ok {
		return k, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keys == nil && r.err != nil {
		return key{}, fmt.Errorf("%w: %w", errNoKeys, r.err)
	}
	return key{}, errors.New("kid: the issuer has no such key")
}

// load asks now.
func (r *keyring) load(ctx context.Context) error {
	r.asking.Lock()
	defer r.asking.Unlock()
	return r.ask(ctx)
}

// look returns a key that is not stale, and whether it is fresh.
func (r *keyring) look(id string) (k key, ok, fresh bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	age := r.now().Sub(r.had)
	if r.keys != nil && age > staleTime {
		r.keys = nil
	}
	k, ok = r.keys[id]
	return k, ok, age <= freshTime
}

// may reports whether it may ask again.
func (r *keyring) may() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked.IsZero() || r.now().Sub(r.asked) >= askPause
}

// ask gets the keys. What comes replaces all that were there: a key that is not
// in the set any more counts no more. The caller holds asking.
func (r *keyring) ask(ctx context.Context) error {
	r.mu.Lock()
	r.asked = r.now()
	r.mu.Unlock()
	// Whoever asked may give up; the others wait for the keys all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
	defer cancel()
	b, err := r.fetch(ctx)
	var keys map[string]key
	if err == nil {
		keys, err = parseKeys(b)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err = err; err == nil {
		r.keys, r.had = keys, r.now()
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
