// Package orchestrator executes runs: plans of tasks, each task a dispatch.
//
// One goroutine, the engine, owns the state in memory and makes every transition
// durable before it has an effect; memory can always be rebuilt from the state
// database. Events that arrive together share a commit of rows and log entries.
// Effects (submit, resume or cancel a dispatch) follow the commit. They are not
// stored but derived from the rows: a task that is stored as running is
// submitted again after a restart, which is idempotent, because the dispatch's
// id is derived from run, task and attempt.
//
// The package decides nothing about a task: internal/run/dispatch does when the task
// is submitted. After a failed commit the engine halts until the service is
// restarted, since memory may be ahead of the database.
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
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Dispatcher runs the dispatches of tasks; see dispatch.Service.
type Dispatcher interface {
	Validator
	SubmitTask(ctx context.Context, caller dispatch.Caller, o dispatch.TaskRequest) (api.Dispatch, error)
	ResumeTask(ctx context.Context, caller dispatch.Caller, id api.DispatchID, req api.AnswerRequest, by api.Principal, fence uint64, behind []string) (api.Dispatch, error)
	Cancel(ctx context.Context, by api.Principal, id api.DispatchID, reason string) (api.Dispatch, error)
	Abort(ctx context.Context, id api.DispatchID, reason string) (api.Dispatch, error)
	Get(ctx context.Context, id api.DispatchID) (api.Dispatch, bool, error)
}

// Validator validates requests and answers without carrying them out.
type Validator interface {
	Validate(ctx context.Context, caller dispatch.Caller, reqs []api.DispatchRequest) (dispatch.Validation, error)
	// ValidateAnswer also returns the number of the option that an answer chooses, by
	// number or in its words; 0 for none.
	ValidateAnswer(ctx context.Context, id api.DispatchID, req api.AnswerRequest) (option int, err error)
	Engine(ctx context.Context) (*policy.Engine, error)
}

// Observer is notified of what has happened, after it is durable. It must not
// block.
type Observer interface {
	TaskSettled(state api.TaskState, reason api.Reason)
	RunSettled(state api.RunState)
	Committed(transitions int)
	// Swept: polling found completions that the engine was not notified of. Each
	// is a bug.
	Swept(found int)
}

type noObserver struct{}

func (noObserver) TaskSettled(api.TaskState, api.Reason) {}
func (noObserver) RunSettled(api.RunState)               {}
func (noObserver) Committed(int)                         {}
func (noObserver) Swept(int)                             {}

// DefaultSlots is how many tasks of the default queue run at once, unless it is
// configured.
const DefaultSlots = 8

// Config is what an Orchestrator needs.
type Config struct {
	Store    *store.Store
	Ledger   *audit.Ledger
	Dispatch Dispatcher
	Queues   map[api.Name]int // slots of each queue; api.DefaultQueue is always there
	// Weights say how many tasks of a principal start in one turn of a queue; 1 unless
	// listed.
	Weights  map[api.Name]map[api.Principal]int
	Seed     uint64 // of the jitter between attempts
	Now      func() time.Time
	Steady   func() time.Time // measures time; its readings are only compared with each other; nil: Now
	Logger   *slog.Logger
	Observer Observer // may be nil
	// Approvals asks people; nil: a task that people approve fails.
	Approvals Approvals

	// Limits of all unsettled runs together: tasks, and bytes of canonical plans.
	// A principal may use half of each. 0: DefaultOpenTasks, DefaultOpenBytes.
	OpenTasks, OpenBytes int
}

func (c *Config) validate() error {
	if c.Store == nil || c.Ledger == nil || c.Dispatch == nil || c.Now == nil {
		return errors.New("orchestrator: Config needs Store, Ledger, Dispatch and Now")
	}
	if c.Steady == nil {
		c.Steady = c.Now
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
		c.Observer = noObserver{}
	}
	return nil
}

// Orchestrator accepts commands about runs. Its methods may be called from any
// goroutine.
type Orchestrator struct {
	*Archive
	cfg       *Config
	admission admission

	stop context.CancelFunc
	work sync.WaitGroup
}

// Open rebuilds the state from the database and repeats every effect that is
// due.
func Open(ctx context.Context, cfg Config) (*Orchestrator, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	o := &Orchestrator{cfg: &cfg, Archive: NewArchive(ArchiveConfig{Store: cfg.Store, Ledger: cfg.Ledger, Rules: cfg.Dispatch, Now: cfg.Now, Approvals: cfg.Approvals})}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	o.stop, o.driver = stop, newDriver(life, &cfg)
	o.admission = admission{&cfg, o.Archive, o.driver}
	if err := o.driver.recover(ctx); err != nil {
		stop()
		return nil, fmt.Errorf("orchestrator: %w", err)
	}
	p := &performer{&cfg, o.driver.effects, o.driver.inbox, life, &o.work}
	p.start()
	o.work.Go(o.driver.loop)
	return o, nil
}

// Close stops the orchestrator's own work. Dispatches keep running, and the next
// Open adopts them.
func (o *Orchestrator) Close() error {
	o.stop()
	o.work.Wait()
	return nil
}

// Ended notifies the engine that an attempt of a dispatch has ended. It never
// blocks.
func (o *Orchestrator) Ended(d api.Dispatch) {
	if d.Run != "" {
		o.driver.inbox.put(dispatchEnded{d})
	}
}

// Err returns why the engine has halted until the service is restarted, or nil.
func (o *Orchestrator) Err() error {
	if err := o.driver.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Busy reports whether a task runs, or will start without further input.
func (o *Orchestrator) Busy() bool { return o.driver.busy.Load() }

// Tasks counts the tasks of unsettled runs by state.
func (o *Orchestrator) Tasks(ctx context.Context) (map[api.TaskState]int, error) {
	return query(ctx, o.driver, func(e *engine) map[api.TaskState]int {
		all := map[api.TaskState]int{}
		for _, r := range e.runs {
			for state, n := range r.counts {
				if n > 0 {
					all[state] += n
				}
			}
		}
		return all
	})
}
