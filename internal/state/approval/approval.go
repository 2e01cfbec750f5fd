package approval

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/background"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Config is what Open needs.
type Config struct {
	Store   *store.Store // opened with Migration among its migrations
	Ledger  *audit.Ledger
	Votes   Votes
	InForce policy.InForce // who may approve
	Tasks   Tasks
	Now     func() time.Time
	Steady  func() time.Time // measures time; its readings are only compared with each other; nil: Now
	Logger  *slog.Logger     // nil discards
	// Hold waits before an approval that a passkey signed is recorded; nil: HoldTime by the
	// clock of the machine.
	Hold func(context.Context) error
}

// check names the first part that is missing.
func (c *Config) check() error {
	for _, part := range []struct {
		name    string
		missing bool
	}{
		{"Store", c.Store == nil}, {"Ledger", c.Ledger == nil}, {"Votes", c.Votes == nil}, {"InForce", c.InForce == nil}, {"Tasks", c.Tasks == nil}, {"Now", c.Now == nil},
	} {
		if part.missing {
			return fmt.Errorf("approval: Config.%s is required", part.name)
		}
	}
	return nil
}

// HoldTime is how long an approval of a call at tier stateful or above that a passkey
// signed waits before it is recorded. A touch proves presence, not reading: a stop or a
// cancel can come first.
const HoldTime = 5 * time.Second

func hold(ctx context.Context) error { return background.Pause(ctx, HoldTime) }

// Votes keeps the signed votes. internal/state/operator does.
type Votes interface {
	// Votes returns the votes in force about the action with a digest.
	Votes(id api.ApprovalID, action api.Digest) []api.Vote
	// VotesIn is Votes as of a transaction.
	VotesIn(tx *store.Tx, id api.ApprovalID, action api.Digest) ([]api.Vote, error)
	// CanVote returns why a vote of p would be refused, whatever it is about.
	CanVote(p api.Principal) error
	// Vote verifies and records a vote that by submits. apply checks it in the
	// transaction that makes it durable; earlier are the votes in force before it.
	Vote(ctx context.Context, by api.Principal, envelope []byte, apply func(tx *store.Tx, r *api.OperatorRecord, v api.Vote, earlier []api.Vote) error) (api.OperatorReceipt, error)
}

// Tasks are the tasks of runs, which wait for what people decide.
type Tasks interface {
	// Decided is called after a request about a task was approved, denied or expired. It
	// must not block.
	Decided(run api.RunID, task api.TaskID)
}

// Approvals holds the requests for approvals. It is safe for concurrent use.
type Approvals struct {
	Reader

	cfg  Config
	work *background.Keeper // nil before Start
	wake background.Signal  // a request was made

	mu      sync.Mutex
	changed chan struct{} // closed at the next change; guarded by mu
}

// New returns what Start begins to expire.
func New(cfg Config) (*Approvals, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Steady == nil {
		cfg.Steady = cfg.Now
	}
	if cfg.Hold == nil {
		cfg.Hold = hold
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	a := &Approvals{cfg: cfg, wake: background.NewSignal(), changed: make(chan struct{})}
	a.store, a.votes, a.inForce = cfg.Store, cfg.Votes, cfg.InForce
	a.deadlines.now, a.deadlines.steady, a.deadlines.due = cfg.Now, cfg.Steady, map[api.ApprovalID]time.Time{}
	return a, nil
}

// Start begins to expire what is due.
func (a *Approvals) Start(ctx context.Context) {
	a.work = background.Start(ctx)
	a.work.Go(background.Loop{Wake: a.wake.Sent, Step: a.expire}.Run)
}

// Close ends the work of Start.
func (a *Approvals) Close() { a.work.Close() }

// Changed returns a channel that is closed at the next change. Callers get it before
// they read, so they miss none.
func (a *Approvals) Changed() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changed
}

// announce tells those who wait that a request has changed.
func (a *Approvals) announce(action api.Action) {
	a.mu.Lock()
	close(a.changed)
	a.changed = make(chan struct{})
	a.mu.Unlock()
	if action.Step != nil {
		a.cfg.Tasks.Decided(action.Run, action.Task)
	}
}
