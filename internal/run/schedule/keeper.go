package schedule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/background"
	"github.com/bailiwick-dev/bailiwick/internal/base/cron"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Runs submits and cancels runs; see orchestrator.Orchestrator.
type Runs interface {
	SubmitSlot(ctx context.Context, caller dispatch.Caller, req api.RunRequest, slot orchestrator.Slot) (api.Run, error)
	HasSlot(ctx context.Context, id api.RunID, slot orchestrator.Slot) (bool, error)
	Cancel(ctx context.Context, caller dispatch.Caller, id api.RunID, req api.RunCancel) (api.Run, error)
}

// Rules are the schedules and the policy in force.
type Rules interface {
	Schedules(ctx context.Context) (*Snapshot, error)
	Engine(ctx context.Context) (*policy.Engine, error)
}

// Config is what a Keeper needs.
type Config struct {
	Mode   string // of the service, for hints
	Store  *store.Store
	Ledger *audit.Ledger
	Rules  Rules
	// Stops returns the emergency stops that cover a subject.
	Stops func(api.StopSubject) []string
	Runs  Runs // nil: the service has no orchestrator, and nothing is submitted
	// RunState returns the state of a run; false if no run has the id.
	RunState func(ctx context.Context, id api.RunID) (api.RunState, bool, error)
	Now      func() time.Time
	Logger   *slog.Logger
	// Observe, if set, is called for each slot that is submitted or skipped, after it is
	// durable. It must not block.
	Observe func(state api.SlotState, reason string)
}

// Keeper submits the runs of the schedules of the catalog. One goroutine looks at what
// is due; a timer wakes it.
type Keeper struct {
	*Reader

	cfg   *Config
	life  context.Context //nolint:containedctx // the life of the keeper, not of a call; nil: it submits nothing
	stop  context.CancelFunc
	work  sync.WaitGroup
	wake  background.Signal
	turns chan struct{} // of submitters

	queued atomic.Bool // a slot waits for the end of a run, or a tick may find that one does

	mu      sync.Mutex          // held during a tick
	lines   map[api.Name]*line  // guarded by mu
	rev     *Snapshot           // that lines agree with; guarded by mu
	fired   map[int64]*api.Slot // logged and not yet submitted, by seq; guarded by mu
	flights map[int64]*flight   // of fired; guarded by mu
	due     time.Time           // when a tick has something to do if nothing changes; zero: at once; guarded by mu
}

// line is a schedule as it is driven: the state that is stored, and what follows from
// the catalog.
type line struct {
	name     api.Name
	times    string
	cursor   time.Time
	pausedBy api.Principal
	pausedAt time.Time

	def     *api.Schedule // nil: no revision in force has it
	digest  api.Digest
	cron    *cron.Schedule
	broken  error     // why def has no times
	next    time.Time // when the next slot is due; zero: not known
	latest  time.Time // when the slot at the cursor was due
	waiting []*api.Slot
}

// Open reads the state. With an orchestrator it submits what was due, and what will be,
// until Close.
func Open(ctx context.Context, cfg Config) (*Keeper, error) {
	if cfg.Store == nil || cfg.Ledger == nil || cfg.Rules == nil || cfg.Stops == nil || cfg.RunState == nil || cfg.Now == nil {
		return nil, errors.New("schedule: Config is incomplete")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Observe == nil {
		cfg.Observe = func(api.SlotState, string) {}
	}
	k := &Keeper{Reader: &Reader{&cfg}, cfg: &cfg, wake: background.NewSignal(), turns: make(chan struct{}, submitters), stop: func() {}, flights: map[int64]*flight{}}
	if err := k.load(ctx); err != nil {
		return nil, fmt.Errorf("schedules: %w", err)
	}
	return k, nil
}

// Start begins to submit.
func (k *Keeper) Start(ctx context.Context) {
	if k.cfg.Runs == nil {
		return
	}
	k.begin(ctx)
	k.work.Go(func() { background.Loop{Wake: k.wake.Sent, Step: k.step}.Run(k.life) })
}

// begin lets ticks submit.
func (k *Keeper) begin(ctx context.Context) {
	k.life, k.stop = context.WithCancel(context.WithoutCancel(ctx))
}

// Close stops the keeper. What is due meanwhile is found by the next Open.
func (k *Keeper) Close() {
	k.stop()
	k.work.Wait()
}

// Wake has the keeper look at what is due. It never blocks.
func (k *Keeper) Wake() { k.wake.Send() }

// RunSettled has the keeper look whether a slot waited for a run that has settled. It
// never blocks.
func (k *Keeper) RunSettled() {
	if k.queued.Load() {
		k.Wake()
	}
}

// longestSleep bounds how late a new catalog revision, a step of the clock and the end
// of a suspended machine are noticed; retrySleep how soon a failed submission is repeated.
const (
	longestSleep = 5 * time.Second
	retrySleep   = time.Second
)

// step ticks, and returns how long until the next tick.
func (k *Keeper) step(ctx context.Context) time.Duration {
	next, err := k.tick(ctx)
	if err != nil && ctx.Err() == nil {
		k.cfg.Logger.WarnContext(ctx, "schedules are not submitted; the service tries again", slog.Any("err", err))
		return longestSleep
	}
	return min(next.Sub(k.cfg.Now()), longestSleep)
}

// load rebuilds the memory from the database.
func (k *Keeper) load(ctx context.Context) error {
	return k.cfg.Store.Read(ctx, func(v *store.View) error {
		lines, err := readLines(v)
		if err != nil {
			return err
		}
		open, err := readSlots(v, "state IN ('waiting', 'fired') ORDER BY seq", nil)
		if err != nil {
			return err
		}
		k.lines, k.rev, k.fired = lines, nil, map[int64]*api.Slot{}
		for i := range open {
			s := &open[i]
			if s.State == api.SlotFired {
				k.fired[s.Seq] = s
			} else if l := lines[s.Schedule]; l != nil {
				l.waiting = append(l.waiting, s)
			}
		}
		return nil
	})
}
