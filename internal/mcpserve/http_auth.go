package mcpserve

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

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

const (
	// maxToken bounds a bearer token; those of other issuers are long.
	maxToken = 8 << 10
	// asksAtOnce bounds how many unknown tokens the service is asked about at
	// the same time. Who waits, waits for microseconds: a good token is not
	// turned away because others present bad ones.
	asksAtOnce = 8
	// renewTime is how long before its end a handle is replaced: longer than a
	// call waits, so that none goes on with a handle that is over.
	renewTime = (maxWait + 10) * time.Second
	// askTime is how long the service may take to say whose a token is.
	askTime = 10 * time.Second
	// failedRate is how many failures a second are answered at once, beyond the
	// first few; each of the others keeps its connection busy for a while.
	failedRate = 1
	// saidRate is how many lines a second say that no service answers.
	saidRate = 0.1
)

// bearer returns the token of a request, which is in no other place than the
// Authorization header. What is not of that form is no token: "".
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") || len(token) > maxToken || strings.Trim(token, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~+/=") != "" {
		return ""
	}
	return token
}

// holders are those who have shown a good token, by its hash. The tokens
// themselves go to the service, once for each handle, and nowhere else (R-T6).
type holders struct {
	conn *client.Conn
	make func(client.Runtime) *mcp.Server
	now  func() time.Time
	asks chan struct{}

	mu    sync.Mutex
	known map[[sha256.Size]byte]*holder // guarded by mu
}

// holder is a handle and what is made of it.
type holder struct {
	owner  owner
	handle string
	until  time.Time

	mu     sync.Mutex
	server *mcp.Server // guarded by mu
	below  *api.Tier   // the ceiling of server; guarded by mu
}

func newHolders(conn *client.Conn, server func(client.Runtime) *mcp.Server, now func() time.Time) *holders {
	return &holders{conn: conn, make: server, now: now, asks: make(chan struct{}, asksAtOnce), known: map[[sha256.Size]byte]*holder{}}
}

// authenticate establishes whose token it is. The service is asked each time,
// so that a token that was revoked or has expired is refused at once, and a
// handle of a service that is gone is replaced.
func (hs *holders) authenticate(ctx context.Context, token string) (*holder, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	hash := sha256.Sum256([]byte(token))
	hs.mu.Lock()
	h := hs.known[hash]
	hs.mu.Unlock()
	if h != nil && hs.now().Before(h.until.Add(-renewTime)) {
		who, err := hs.runtime(h).Who(ctx)
		switch {
		case err == nil && who.Principal == h.owner.principal:
			return h, nil
		case err == nil:
			return nil, fmt.Errorf("the service takes the handle of %s for one of %s", h.owner.principal, who.Principal)
		case api.CodeOf(err) != api.CodeUnauthenticated:
			return nil, err
		}
	}
	return hs.exchange(ctx, token, hash)
}

func (hs *holders) exchange(ctx context.Context, token string, hash [sha256.Size]byte) (*holder, error) {
	select {
	case hs.asks <- struct{}{}:
		defer func() { <-hs.asks }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	session, err := hs.conn.Exchange(ctx, token)
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if err != nil {
		delete(hs.known, hash)
		return nil, err
	}
	h := &holder{owner: owner{principal: session.Principal}, handle: session.Handle, until: session.ExpiresAt}
	if api.CheckToken(token) == nil {
		h.owner.token = hash // one of ours, which its client keeps
	}
	now := hs.now()
	for other, old := range hs.known {
		if !now.Before(old.until) {
			delete(hs.known, other)
		}
	}
	hs.known[hash] = h
	return h, nil
}

// runtime is the service as this holder may use it.
func (hs *holders) runtime(h *holder) client.Runtime {
	return hs.conn.Runtime().With(h.handle, nil)
}

// serverOf returns the nine tools for a holder below a ceiling.
func (hs *holders) serverOf(h *holder, ceiling *api.Tier) *mcp.Server {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.server == nil || !sameTier(h.below, ceiling) {
		h.server, h.below = hs.make(hs.runtime(h).With("", ceiling)), ceiling
	}
	return h.server
}

func sameTier(a, b *api.Tier) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// failures slows down who presents bad tokens, whatever connection he does it
// on.
type failures struct {
	wait time.Duration
	now  func() time.Time

	mu     sync.Mutex
	bucket bucket // guarded by mu
	said   bucket // guarded by mu
}

// level is how loud to say that a caller could not be established: whoever
// comes while no service answers must not fill the log.
func (f *failures) level() slog.Level {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.said.take(f.now()) {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// tooMany reports, after a while, whether a failure is one too many.
func (f *failures) tooMany(ctx context.Context) bool {
	f.mu.Lock()
	fine := f.bucket.take(f.now())
	f.mu.Unlock()
	if fine {
		return false
	}
	t := time.NewTimer(f.wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return true
}
