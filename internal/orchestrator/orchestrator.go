// Package orchestrator drives runs: plans of tasks, each of which is a dispatch.
//
// One goroutine owns all of it in memory and makes every transition durable
// before anything comes of it; the state database is the truth, and what is in
// memory can always be built again from it. Whatever arrives together shares a
// commit, which holds the rows and the entries of the log. Effects (to fire a
// dispatch, to resume or to cancel one) follow the commit. They are not kept
// beside the rows but follow from them: a task that is stored as running has to
// be fired, and after a restart it is fired again, which changes nothing where
// it was done, because the dispatch's id is derived from run, task and attempt.
//
// It decides nothing about a task: whether its dispatch may run is decided by
// internal/dispatch when it is fired. A commit that fails ends everything until
// the service is restarted: what is in memory may then be more than is true.
//
// Carries R-O1 to R-O8.
package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/audit"
	"github.com/bailiwick-dev/bailiwick/internal/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/policy"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// Dispatcher is what runs are made of: dispatch.Service.
type Dispatcher interface {
	Validator
	// Fire asks for a task's dispatch. It returns the one that is there when it
	// was asked for before.
	SubmitTask(ctx context.Context, caller dispatch.Caller, o dispatch.TaskRequest) (api.Dispatch, error)
	// Resume goes on with a dispatch that asked something.
	ResumeTask(ctx context.Context, caller dispatch.Caller, id api.DispatchID, req api.AnswerRequest, by api.Principal, fence uint64) (api.Dispatch, error)
	// Cancel asks for the end of a dispatch.
	Cancel(ctx context.Context, by api.Principal, id api.DispatchID, reason string) (api.Dispatch, error)
	// Look returns the record of a dispatch, and whether there is one.
	Get(ctx context.Context, id api.DispatchID) (api.Dispatch, bool, error)
}

// Validator says what would become of a request.
type Validator interface {
	Validate(ctx context.Context, caller dispatch.Caller, reqs []api.DispatchRequest) (dispatch.Validation, error)
	ValidateAnswer(ctx context.Context, id api.DispatchID, req api.AnswerRequest) error
	Engine(ctx context.Context) (*policy.Engine, error)
}

// Observer is told what has happened, after it is durable. It must not block.
type Observer interface {
	TaskSettled(state api.TaskState, reason api.Reason)
	RunSettled(state api.RunState)
	Committed(transitions int)
	// Swept: so many ends of dispatches were found by looking for them, of which
	// nobody had told. Each is a fault of ours.
	Swept(found int)
}

type nobody struct{}

func (nobody) TaskSettled(api.TaskState, api.Reason) {}
func (nobody) RunSettled(api.RunState)               {}
func (nobody) Committed(int)                         {}
func (nobody) Swept(int)                             {}

// DefaultSlots is how many tasks of a queue run at once where nobody says.
const DefaultSlots = 8

// Config is what an Orchestrator is made of.
type Config struct {
	Store    *store.Store
	Ledger   *audit.Ledger
	Dispatch Dispatcher
	Queues   map[api.Name]int // slots of each queue; api.DefaultQueue is always there
	Seed     uint64           // of the jitter between attempts
	Now      func() time.Time
	Logger   *slog.Logger
	Observer Observer // nil: nobody is told

	// How many tasks the runs that are not settled may have in all, and how many
	// bytes their canonical plans; a principal's may have half of that. 0:
	// DefaultOpenTasks, DefaultOpenBytes.
	OpenTasks, OpenBytes int
}

func (c *Config) validate() error {
	if c.Store == nil || c.Ledger == nil || c.Dispatch == nil || c.Now == nil {
		return errors.New("orchestrator: a store, a log, dispatches and a clock are needed")
	}
	for name, slots := range c.Queues {
		if slots < 1 {
			return fmt.Errorf("queue %q: %d slots, want at least one", name, slots)
		}
	}
	c.OpenTasks, c.OpenBytes = cmp.Or(c.OpenTasks, DefaultOpenTasks), cmp.Or(c.OpenBytes, DefaultOpenBytes)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Observer == nil {
		c.Observer = nobody{}
	}
	return nil
}

// Orchestrator is the open engine. Its methods may be called from any goroutine.
type Orchestrator struct {
	cfg    Config
	mail   mailbox
	coming coming
	room   room
	shown  shown
	out    effects

	life context.Context //nolint:containedctx // the life of the orchestrator, not of a call
	stop context.CancelFunc
	work sync.WaitGroup
	done chan struct{} // closed when the engine has ended

	err  atomic.Pointer[error] // why it stands still
	busy atomic.Bool

	engine *engine // owned by its goroutine
}

// Open builds everything up from the database, and repeats every effect that is
// due.
func Open(ctx context.Context, cfg Config) (*Orchestrator, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	o := &Orchestrator{cfg: cfg, done: make(chan struct{}), room: room{tasks: cfg.OpenTasks, bytes: cfg.OpenBytes}}
	o.mail.init()
	o.out.init()
	o.life, o.stop = context.WithCancel(context.WithoutCancel(ctx))
	o.engine = newEngine(cfg)
	if err := o.recover(ctx); err != nil {
		o.stop()
		return nil, fmt.Errorf("orchestrator: %w", err)
	}
	o.out.start(o)
	o.work.Go(o.loop)
	return o, nil
}

// Close ends the orchestrator's own work. Dispatches go on, and the next Open
// takes them up.
func (o *Orchestrator) Close() error {
	o.stop()
	o.work.Wait()
	return nil
}

// Ended tells that a dispatch has come to the end of an attempt. It never
// blocks.
func (o *Orchestrator) Ended(d api.Dispatch) {
	if d.Run != "" {
		o.mail.put(ended{d})
	}
}

// Err returns why nothing moves until the service is restarted, or nil.
func (o *Orchestrator) Err() error {
	if err := o.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Busy reports whether something runs, or will by itself.
func (o *Orchestrator) Busy() bool { return o.busy.Load() }

// ask has the engine say something after the next commit, when all that it
// knows is durable.
func ask[T any](ctx context.Context, o *Orchestrator, fn func(e *engine) T) (T, error) {
	var none T
	said := make(chan T, 1)
	o.mail.put(question{func(e *engine) { said <- fn(e) }})
	select {
	case v := <-said:
		return v, nil
	case <-ctx.Done():
		return none, ctx.Err()
	case <-o.done:
	}
	select {
	case v := <-said:
		return v, nil
	default:
		return none, o.ending()
	}
}

func (o *Orchestrator) ending() error {
	if err := o.Err(); err != nil {
		return api.Errorf(api.CodeAuditUnavailable, "runs stand still: %w", err).WithHint("check the disk of the state directory, then restart the service")
	}
	return api.Errorf(api.CodeUnavailable, "the service is stopping")
}
