package orchestrator

import (
	"context"
	"sync/atomic"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// driver runs the engine in one goroutine: it applies events, commits what follows from
// them, and only then hands out the effects. Other goroutines reach the engine through
// its inbox.
type driver struct {
	cfg        *Config
	engine     *engine // owned by the goroutine of loop
	inbox      *fifo[event]
	effects    *fifo[effect]
	submitting submitting
	capacity   capacity

	life context.Context       //nolint:containedctx // the life of the orchestrator, not of a call
	done chan struct{}         // closed when loop has returned
	err  atomic.Pointer[error] // why the engine has halted
	busy atomic.Bool
}

func newDriver(life context.Context, cfg *Config) *driver {
	d := &driver{cfg: cfg, life: life, done: make(chan struct{}), inbox: newFIFO[event](), effects: newFIFO[effect](), capacity: capacity{tasks: cfg.OpenTasks, bytes: cfg.OpenBytes}}
	d.engine = newEngine(cfg)
	d.engine.grown = d.capacity.grow
	return d
}

// query reads the engine's state after the next commit, when all of it is
// durable.
func query[T any](ctx context.Context, d *driver, fn func(e *engine) T) (T, error) {
	result := make(chan T, 1)
	d.inbox.put(engineQuery{func(e *engine) { result <- fn(e) }})
	return await(ctx, d, result)
}

// await returns what the engine sends, or why it does not.
func await[T any](ctx context.Context, d *driver, result <-chan T) (none T, err error) {
	select {
	case v := <-result:
		return v, nil
	case <-ctx.Done():
		return none, ctx.Err()
	case <-d.done:
	}
	select {
	case v := <-result:
		return v, nil
	default:
		return none, d.unavailable()
	}
}

// halted refuses a command when the engine has halted.
func (d *driver) halted() error {
	if d.err.Load() == nil {
		return nil
	}
	return d.unavailable()
}

func (d *driver) unavailable() error {
	if err := d.err.Load(); err != nil {
		return api.Errorf(api.CodeAuditUnavailable, "the engine has halted: %w", *err).WithHint("%s", store.Advice(*err))
	}
	return api.Errorf(api.CodeUnavailable, "the service is stopping")
}
