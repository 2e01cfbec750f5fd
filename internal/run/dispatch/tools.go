package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/background"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/tool/gateway"
)

// View answers the MCP requests of one attempt's agent. *gateway.View is one.
type View interface {
	http.Handler
	// Stop answers the requests that are out, before the service stops.
	Stop()
	// Close ends the calls that are out, once the attempt has ended.
	Close()
}

// ToolsFunc opens the view of an attempt. nil: agents have no tools.
type ToolsFunc func(context.Context, gateway.Attempt) (View, error)

const (
	// toolPause is how long the service waits before it dials a worker again, after the
	// first failure; later pauses double, up to toolPauseMost.
	toolPause     = 100 * time.Millisecond
	toolPauseMost = 5 * time.Second
	// toolPing is how long the worker may be silent before it is asked whether it is there.
	toolPing = 30 * time.Second
)

// tools serves the tools of an attempt while its worker runs.
type tools struct {
	once   sync.Once
	ctx    context.Context //nolint:containedctx // ends with the worker, or the service
	cancel context.CancelFunc
	done   sync.WaitGroup

	ack   sync.Once
	asked chan struct{} // closed when the worker has the question
}

func (l *lifecycle) newTools() *tools {
	t := &tools{asked: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancel(l.life)
	return t
}

// end returns when nothing serves the tools any more.
func (t *tools) end() {
	t.cancel()
	t.done.Wait()
}

// serveTools opens the view of an attempt whose worker may proceed, once, and serves it
// until the worker has exited. It does not wait.
func (l *lifecycle) serveTools(a *active) {
	if l.cfg.Tools == nil {
		return
	}
	a.tools.once.Do(func() {
		a.tools.done.Go(func() {
			for failures := 1; a.tools.ctx.Err() == nil; failures++ {
				err := l.serveView(a)
				if a.tools.ctx.Err() == nil {
					l.logger(&a.row.record).WarnContext(l.life, "the view of an agent's tools could not be opened and is retried", slog.Any("err", err))
					_ = background.Pause(a.tools.ctx, toolRetry(failures))
				}
			}
		})
	})
}

// serveView opens the view of an attempt and serves it until the tools end.
func (l *lifecycle) serveView(a *active) error {
	ctx := a.tools.ctx
	m, err := l.manifest(ctx, a.row.record.Manifest)
	if err != nil {
		return err
	}
	snap, err := l.cfg.InForce.At(ctx, m.RevisionDigest)
	if err != nil {
		return err
	}
	v, err := l.cfg.Tools(ctx, gateway.Attempt{
		Manifest: &m, Revision: snap.Revision, Taint: a.row.record.Taint,
		Mark:  func(tx *store.Tx, k gateway.Mark) error { return l.mark(tx, a, k) },
		Ask:   func(ctx context.Context, q api.Question) error { return l.ask(ctx, a, q) },
		Spent: func(limit string) { l.spend(a, limit) },
	})
	if err != nil {
		return err
	}
	defer v.Close()
	for failures := 0; ctx.Err() == nil; {
		conn, err := a.worker.Tools(ctx)
		if err == nil {
			serveConn(ctx, conn, v, func() bool {
				stopping := l.life.Err() != nil // while the worker runs on
				if stopping {
					v.Stop()
				}
				return stopping
			})
			failures = 0
		}
		failures++
		_ = background.Pause(ctx, toolRetry(failures))
	}
	return nil
}

func toolRetry(failures int) time.Duration {
	return background.Backoff{First: toolPause, Most: toolPauseMost}.After(failures)
}

// flushTime is how long answers may take to reach the worker when the service stops.
const flushTime = 2 * time.Second

// serveConn serves h on conn, which speaks unencrypted HTTP/2, until either ends. When ctx
// ends it calls last, which reports whether it answered what is out; that reaches the
// worker before the connection is closed.
func serveConn(ctx context.Context, conn net.Conn, h http.Handler, last func() bool) {
	one := &oneConn{Conn: conn, closed: make(chan struct{})}
	accept := &oneListener{conn: one, first: make(chan struct{}, 1), done: make(chan struct{})}
	accept.first <- struct{}{}
	srv := &http.Server{
		Handler: h, Protocols: new(http.Protocols), ReadHeaderTimeout: toolPing,
		HTTP2:       &http.HTTP2Config{SendPingTimeout: toolPing, PingTimeout: toolPing, WriteByteTimeout: toolPing},
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), // the worker's connection, which it may break
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	srv.Protocols.SetUnencryptedHTTP2(true)
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		if last() {
			short, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
			defer cancel()
			_ = srv.Shutdown(short)
		}
		_ = one.Close()
	})
	_ = srv.Serve(accept) // until the connection is closed, or Shutdown
	if !stop() {
		<-stopped
	}
	_ = srv.Close()
}

// oneConn is a connection that says when it is closed.
type oneConn struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

// Close closes the connection.
func (c *oneConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// oneListener is a listener that yields one connection.
type oneListener struct {
	conn  *oneConn
	first chan struct{}
	once  sync.Once
	done  chan struct{}
}

// Accept returns the connection once, and fails when that or the listener is closed.
func (l *oneListener) Accept() (net.Conn, error) {
	select {
	case <-l.first:
		return l.conn, nil
	case <-l.conn.closed:
	case <-l.done:
	}
	return nil, net.ErrClosed
}

// Addr implements net.Listener.
func (l *oneListener) Addr() net.Addr { return l.conn.LocalAddr() }

// Close closes the listener only.
func (l *oneListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// finish is why the service ends an attempt whose agent called a tool. It is durable with
// the entry of that call, so that the next service tells the worker again.
type finish struct {
	Question *api.Question `json:"question,omitempty"`
	Spent    string        `json:"spent,omitempty"`
}

// mark stores what a call of a tool changes about its dispatch, in the transaction of
// the call's entry. A call may be allowed only while the attempt runs.
func (l *lifecycle) mark(tx *store.Tx, a *active, k gateway.Mark) error {
	was := &a.row.record
	if (k == gateway.Mark{Allowed: k.Allowed, Tier: k.Tier}) { // it changes nothing else
		if counted, err := countCall(tx, was, k.Allowed); counted || err != nil {
			if err == nil && k.Allowed {
				err = l.checkForce(tx, was, k.Tier)
			}
			return err
		}
	}
	r, ok, err := load(tx, was.ID)
	d := &r.record
	switch {
	case err != nil:
		return err
	case !ok || d.Attempt != was.Attempt || d.State != api.EventStarted:
		return gateway.ErrEnded
	case k.Allowed:
		if err := l.checkCall(tx, r, k); err != nil {
			return err
		}
	}
	if d.Calls == nil {
		d.Calls = &api.ToolCalls{}
	}
	calls := *d.Calls
	if d.Calls = &calls; k.Allowed {
		calls.Allowed++
	} else {
		calls.Denied++
	}
	if d.Taint == nil {
		d.Taint = k.Taint // the first one says it
	}
	if k.Progress != nil {
		d.Progress = k.Progress
	}
	if k.Question != nil {
		r.finish.Question = k.Question
	}
	if k.Spent != "" && r.finish.Spent == "" {
		r.finish.Spent = k.Spent
	}
	return update(tx, r)
}

// checkCall refuses a call that something overtook since it was decided.
func (l *lifecycle) checkCall(tx *store.Tx, r row, k gateway.Mark) error {
	d := &r.record
	switch {
	case d.CancelBy != "":
		return gateway.ErrOvertaken
	case r.finish.Spent != "":
		return gateway.ErrEnded
	case k.Question != nil && r.finish.Question != nil:
		return gateway.ErrAsked
	}
	return l.checkForce(tx, d, k.Tier)
}

// checkForce refuses a call that a stop or a lower ceiling overtook.
func (l *lifecycle) checkForce(tx *store.Tx, d *api.Dispatch, tier api.Tier) error {
	stops, err := l.cfg.Registry.StopsIn(tx, api.StopSubject{Principal: d.Principal, Target: d.Target, Run: d.Run, Dispatch: d.ID})
	if err != nil {
		return err
	}
	consent, err := l.cfg.Registry.ConsentIn(tx, d.Principal)
	if err == nil && (len(stops) > 0 || consent < tier) {
		err = gateway.ErrOvertaken
	}
	return err
}

// ask gives the worker a question that is durable, and returns once the worker keeps it.
func (l *lifecycle) ask(ctx context.Context, a *active, q api.Question) error {
	if err := a.worker.Ask(q); err != nil {
		return err
	}
	select {
	case <-a.tools.asked:
		return nil
	case <-a.worker.Exited():
		return errEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *lifecycle) spend(a *active, limit string) {
	if err := a.worker.Spent(limit); err != nil {
		l.logger(&a.row.record).WarnContext(l.life, "telling a worker that a limit ends it failed", slog.Any("err", err))
	}
}

// tell tells a worker again why its attempt ends.
func (f finish) tell(a *active) error {
	var err error
	if f.Spent != "" {
		err = a.worker.Spent(f.Spent)
	}
	if f.Question != nil {
		err = errors.Join(err, a.worker.Ask(*f.Question))
	}
	return err
}
