package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/tool/toolcall"
)

// Config is what a Gateway needs.
type Config struct {
	Store     *store.Store // has the table of Migration
	Ledger    *audit.Ledger
	Blobs     *blob.Store // of the state
	Registry  Registry
	InForce   policy.InForce
	Upstream  toolcall.Caller
	Approvals Approvals
	Now       func() time.Time
	Logger    *slog.Logger
	Observe   func(Observed) // may be nil
}

// check names the first part that is missing.
func (c *Config) check() error {
	for _, part := range []struct {
		name    string
		missing bool
	}{
		{"Store", c.Store == nil}, {"Ledger", c.Ledger == nil}, {"Blobs", c.Blobs == nil}, {"Registry", c.Registry == nil}, {"InForce", c.InForce == nil}, {"Upstream", c.Upstream == nil}, {"Approvals", c.Approvals == nil}, {"Now", c.Now == nil},
	} {
		if part.missing {
			return fmt.Errorf("gateway: Config.%s is required", part.name)
		}
	}
	return nil
}

// Registry is what operators decided about a dispatch; see internal/state/operator.
type Registry interface {
	Consent(p api.Principal) api.Tier
	StopsFor(w api.StopSubject) []string
}

// Approvals are the requests for approvals; see internal/state/approval.
type Approvals interface {
	// Ask returns the request for the same call that stands, or makes one. words are those
	// that the agent reported last.
	Ask(ctx context.Context, a api.ToolAction, attempt int, words string) (api.Approval, error)
	// Wait returns an approval when it is no longer open.
	Wait(ctx context.Context, id api.ApprovalID) (api.Approval, error)
	// Use uses an approval up, in the transaction of the call's entry.
	Use(tx *store.Tx, id api.ApprovalID) error
}

// Observed is a call, for metrics.
type Observed struct {
	Manifest *record.Manifest // of the attempt
	Number   int64
	At       time.Time // of the decision
	Server   api.Name  // empty for ask, report, and what the role does not have
	Tool     string    // by its id; empty for what the role does not have
	Allowed  bool
	Failed   bool          // it has an error
	Took     time.Duration // of an allowed one, upstream
}

// ClosedSince returns when a tool was found to be closed, because its definition
// differed from its pin; the zero time while it is open.
func (g *Gateway) ClosedSince(revision *catalog.Revision, t api.Tool) time.Time {
	return g.cfg.Upstream.ClosedSince(revision, t.Server, t.Tool)
}

// Gateway decides, logs and makes the calls of agents. It is safe for concurrent use.
type Gateway struct {
	cfg       Config
	closeTime time.Duration // see the constant; less in tests

	mu    sync.Mutex
	sets  map[setKey]*toolSet // of the open views; guarded by mu
	views map[*View]struct{}  // the open ones; guarded by mu
}

// New returns a gateway without views.
func New(cfg Config) (*Gateway, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Observe == nil {
		cfg.Observe = func(Observed) {}
	}
	return &Gateway{cfg: cfg, closeTime: closeTime, sets: map[setKey]*toolSet{}, views: map[*View]struct{}{}}, nil
}
