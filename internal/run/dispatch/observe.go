package dispatch

import (
	"context"
	"log/slog"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Observer is notified of what has happened, after it is durable. Its methods
// must not block. A service that stops in between does not notify later: the
// log is what counts.
type Observer interface {
	// Accepted: the attempt was admitted, took after it was requested.
	Accepted(d api.Dispatch, took time.Duration)
	// Started: the worker's key is bound, and the worker may proceed.
	Started(d api.Dispatch)
	// Ended: the attempt has ended, or its question has expired or was cancelled.
	Ended(d api.Dispatch)
	// Recovered: a restarted service found a worker running, ended or absent.
	Recovered(worker string)
}

func (s *records) observeAccepted(ctx context.Context, d api.Dispatch, since time.Time) {
	s.logger(&d).InfoContext(ctx, "accepted", slog.String("subagent", string(d.Subagent)), slog.String("principal", string(d.Principal)))
	s.cfg.Observer.Accepted(d, s.cfg.Now().Sub(since))
}

func (s *records) observeStarted(ctx context.Context, d api.Dispatch) {
	s.logger(&d).InfoContext(ctx, "started")
	s.cfg.Observer.Started(d)
}

// observeEnded does not log the message: an agent may have written it.
func (s *records) observeEnded(ctx context.Context, d api.Dispatch) {
	s.logger(&d).InfoContext(ctx, "ended", slog.String("outcome", string(d.State)), slog.String("reason", string(d.Reason)))
	s.cfg.Observer.Ended(d)
}

func (s *records) observeRecovered(ctx context.Context, r row, worker string) {
	s.logger(&r.record).InfoContext(ctx, "recovered after restart", slog.String("worker", worker))
	s.cfg.Observer.Recovered(worker)
}

// logger returns the logger of lines about one attempt.
func (s *records) logger(d *api.Dispatch) *slog.Logger {
	l := s.cfg.Logger.With(slog.String("dispatch", string(d.ID)), slog.Int("attempt", d.Attempt))
	if id := d.Trace.ID(); id != "" {
		l = l.With(slog.String("trace", id))
	}
	return l
}

type traceKey struct{}

// WithTrace returns a context whose requests belong to the span t.
func WithTrace(ctx context.Context, t api.Trace) context.Context {
	return context.WithValue(ctx, traceKey{}, t)
}

// TraceOf returns the span of WithTrace, or the zero value.
func TraceOf(ctx context.Context) api.Trace {
	t, _ := ctx.Value(traceKey{}).(api.Trace)
	return t
}
