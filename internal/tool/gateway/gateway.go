package gateway

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
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
	Approvals Approvals // nil: calls that need an approval are denied
	Now       func() time.Time
	Logger    *slog.Logger
	Observe   func(Observed) // may be nil
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
	if cfg.Store == nil || cfg.Ledger == nil || cfg.Blobs == nil || cfg.Registry == nil || cfg.InForce == nil || cfg.Upstream == nil || cfg.Now == nil {
		return nil, errors.New("gateway: Store, Ledger, Blobs, Registry, InForce, Upstream and Now are required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Observe == nil {
		cfg.Observe = func(Observed) {}
	}
	return &Gateway{cfg: cfg, closeTime: closeTime, sets: map[setKey]*toolSet{}, views: map[*View]struct{}{}}, nil
}
