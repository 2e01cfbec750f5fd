package mcphttp

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/time/rate"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/mcpserve"
)

const (
	// maxToken bounds a bearer token in bytes; JWTs of other issuers are long.
	maxToken = 8 << 10
	// maxExchanges bounds concurrent token exchanges with the service. One takes
	// microseconds, so a valid token is not refused because others present
	// invalid ones: it waits.
	maxExchanges = 8
	// authTimeout bounds how long the service may take to authenticate a token.
	authTimeout = 10 * time.Second
	// failureRate is how many failed authentications a second are answered
	// without delay; each further one occupies its connection for failureDelay.
	failureRate = 1
	// warningRate is how many warnings a second report an unreachable service.
	warningRate = 0.1
)

// bearer returns the bearer token of the Authorization header, the only place
// where one is accepted; "" if it is missing or malformed.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") || len(token) > maxToken || strings.Trim(token, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~+/=") != "" {
		return ""
	}
	return token
}

// authenticator keeps the service's handle for each valid token, by the token's
// hash. A token itself goes to the service, once for each handle, and nowhere
// else (R-T6).
type authenticator struct {
	conn      *client.RuntimeConn
	newServer func(client.Runtime) *mcp.Server
	now       func() time.Time
	exchanges chan struct{} // a semaphore

	mu    sync.Mutex
	known map[[sha256.Size]byte]*identity // guarded by mu
}

// identity is an authenticated client and the MCP server bound to it.
type identity struct {
	owner  owner
	handle string
	until  time.Time

	mu      sync.Mutex
	server  *mcp.Server // guarded by mu
	ceiling *api.Tier   // of server; guarded by mu
}

func newAuthenticator(conn *client.RuntimeConn, newServer func(client.Runtime) *mcp.Server, now func() time.Time) *authenticator {
	return &authenticator{conn: conn, newServer: newServer, now: now, exchanges: make(chan struct{}, maxExchanges), known: map[[sha256.Size]byte]*identity{}}
}

// authenticate establishes the principal of a token. It asks the service each
// time, so that a revoked or expired token is refused at once and the handle of
// a restarted service is replaced.
func (a *authenticator) authenticate(ctx context.Context, token string) (*identity, error) {
	ctx, cancel := context.WithTimeout(ctx, authTimeout)
	defer cancel()
	hash := sha256.Sum256([]byte(token))
	a.mu.Lock()
	id := a.known[hash]
	a.mu.Unlock()
	if id != nil && a.now().Before(id.until.Add(-mcpserve.RenewBefore)) {
		who, err := a.runtime(id).Who(ctx)
		switch {
		case err == nil && who.Principal == id.owner.principal:
			return id, nil
		case err == nil:
			return nil, fmt.Errorf("the service returned principal %s for the handle of %s", who.Principal, id.owner.principal)
		case api.CodeOf(err) != api.CodeUnauthenticated:
			return nil, err
		}
	}
	return a.exchange(ctx, token, hash)
}

func (a *authenticator) exchange(ctx context.Context, token string, hash [sha256.Size]byte) (*identity, error) {
	select {
	case a.exchanges <- struct{}{}:
		defer func() { <-a.exchanges }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s, err := a.conn.Exchange(ctx, token)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		delete(a.known, hash)
		return nil, err
	}
	id := &identity{owner: owner{principal: s.Principal}, handle: s.Handle, until: s.ExpiresAt}
	if api.CheckToken(token) == nil {
		id.owner.token = hash // a Bailiwick token, which its client keeps
	}
	now := a.now()
	for other, old := range a.known {
		if !now.Before(old.until) {
			delete(a.known, other)
		}
	}
	a.known[hash] = id
	return id, nil
}

// runtime returns the run-time API as this client may use it.
func (a *authenticator) runtime(id *identity) client.Runtime {
	return a.conn.Runtime().With(id.handle, nil)
}

// serverFor returns the MCP server of a client under a ceiling.
func (a *authenticator) serverFor(id *identity, ceiling *api.Tier) *mcp.Server {
	id.mu.Lock()
	defer id.mu.Unlock()
	same := id.ceiling == ceiling || id.ceiling != nil && ceiling != nil && *id.ceiling == *ceiling
	if id.server == nil || !same {
		id.server, id.ceiling = a.newServer(a.runtime(id).With("", ceiling)), ceiling
	}
	return id.server
}

// failures slows down clients that present invalid tokens, over all
// connections together.
type failures struct {
	now      func() time.Time
	delay    time.Duration
	prompt   *rate.Limiter // failures answered without delay
	warnings *rate.Limiter
}

// level returns the level at which to log that the service did not answer: a
// client that retries while it is down must not fill the log.
func (f *failures) level() slog.Level {
	if f.warnings.AllowN(f.now(), 1) {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// tooMany reports, after a delay, whether a failure exceeds the rate.
func (f *failures) tooMany(ctx context.Context) bool {
	if f.prompt.AllowN(f.now(), 1) {
		return false
	}
	t := time.NewTimer(f.delay)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return true
}
