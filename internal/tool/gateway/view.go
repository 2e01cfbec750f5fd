package gateway

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// closeTime is how long calls that are out may take to return when a view is closed.
const closeTime = 10 * time.Second

var errClosed = errors.New("the attempt has ended")

// View answers the MCP requests of one attempt's agent.
type View struct {
	g     *Gateway
	a     Attempt
	set   *toolSet
	limit int64 // of calls

	life  context.Context //nolint:containedctx // ends with the view, and cancels its calls
	end   context.CancelCauseFunc
	taint atomic.Pointer[api.Taint] // nil: it has no text from outside
	kept  atomic.Int64              // bytes of content

	mu       sync.Mutex
	closed   bool                  // guarded by mu
	stopping bool                  // with the service; guarded by mu
	unlisted bool                  // the list of tools has changed since an agent read it; guarded by mu
	changed  chan struct{}         // closed and replaced when the list changes; guarded by mu
	spent    bool                  // a limit ends the attempt; guarded by mu
	words    string                // that the agent reported last; guarded by mu
	open     map[string][]*request // by their ids; guarded by mu
	calls    sync.WaitGroup        // Add is guarded by mu
}

// Open returns the view of an attempt. The caller closes it before the attempt's end is
// logged.
func (g *Gateway) Open(ctx context.Context, a Attempt) (*View, error) {
	v := &View{g: g, a: a, limit: int64(a.Manifest.Limits.Calls), open: map[string][]*request{}, changed: make(chan struct{})}
	if v.limit == 0 {
		v.limit = api.MaxToolCalls
	}
	if err := g.cfg.Store.Read(ctx, func(r *store.View) error {
		t, err := firstTaint(r, a.Manifest)
		if err != nil {
			return err
		}
		for _, known := range []*api.Taint{a.Taint, a.Manifest.Taint} {
			if known != nil {
				t = known
			}
		}
		v.taint.Store(t)
		var kept int64
		err = r.Get("SELECT coalesce(sum(kept), 0) FROM gateway_call WHERE dispatch = ? AND attempt = ?", store.Args{a.Manifest.ID, a.Manifest.Attempt}, &kept)
		v.kept.Store(kept)
		return err
	}); err != nil {
		return nil, err
	}
	var err error
	if v.set, err = g.setFor(ctx, &a); err != nil {
		return nil, err
	}
	v.life, v.end = context.WithCancelCause(context.Background())
	g.mu.Lock()
	g.views[v] = struct{}{}
	g.mu.Unlock()
	return v, nil
}

// Close ends the view: calls that are out are cancelled, and what is known about them is
// durable when it returns. A call that does not return in time is recorded as unknown.
func (v *View) Close() {
	v.mu.Lock()
	if v.closed {
		v.mu.Unlock()
		return
	}
	v.closed = true
	v.mu.Unlock()
	v.end(errClosed)
	v.g.mu.Lock()
	delete(v.g.views, v)
	v.g.mu.Unlock()
	v.awaitCalls(v.g.closeTime)
	m := v.a.Manifest
	ctx := context.Background()
	if err := v.g.abandon(ctx, m.ID, m.Attempt); err != nil {
		v.g.cfg.Logger.ErrorContext(ctx, "the calls of an attempt that are out were not recorded; the next start of the service does it",
			slog.String("dispatch", string(m.ID)), slog.Int("attempt", m.Attempt), slog.Any("err", err))
	}
	v.g.cfg.Upstream.End(m.ID)
	v.g.release(v.set)
}

// request is a request that is being answered.
type request struct {
	id     string // canonical JSON
	cancel context.CancelCauseFunc
}

// begin registers a request. It fails with errClosed or errStopping.
func (v *View) begin(r *request) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.closed:
		return errClosed
	case v.stopping:
		return errStopping
	}
	v.calls.Add(1)
	v.open[r.id] = append(v.open[r.id], r)
	return nil
}

func (v *View) finish(r *request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open[r.id] = slices.DeleteFunc(v.open[r.id], func(o *request) bool { return o == r })
	if len(v.open[r.id]) == 0 {
		delete(v.open, r.id)
	}
	v.calls.Done()
}

var errCancelled = errors.New("the agent cancelled the call")

// cancelled cancels the request with an id. Several clients in one jail may use the same:
// then none is cancelled.
func (v *View) cancelled(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if list := v.open[id]; len(list) == 1 {
		list[0].cancel(errCancelled)
	}
}
