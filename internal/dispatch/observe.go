package dispatch

import (
	"context"
	"log/slog"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Observer is told what has happened, after it is durable. It is never asked
// anything, it must not block, and a service that ends before it was told does
// not tell it later: what counts is the log.
type Observer interface {
	// Accepted: the attempt was admitted, so long after it was asked for.
	Accepted(d api.Dispatch, took time.Duration)
	// Started: the worker's key is bound and the worker may proceed.
	Started(d api.Dispatch)
	// Ended: the attempt came to its end, or the question that it ended with
	// was given up.
	Ended(d api.Dispatch)
	// Found: a restarted service found a worker of d running, ended or absent.
	Recovered(worker string)
}

// nobody is the Observer of a service that has none.
type nobody struct{}

func (nobody) Accepted(api.Dispatch, time.Duration) {}
func (nobody) Started(api.Dispatch)                 {}
func (nobody) Ended(api.Dispatch)                   {}
func (nobody) Recovered(string)                     {}

func (s *Service) accepted(d api.Dispatch, since time.Time) {
	s.logOf(&d).InfoContext(s.life, "accepted", slog.String("subagent", string(d.Subagent)), slog.String("principal", string(d.Principal)))
	s.cfg.Observer.Accepted(d, s.cfg.Now().Sub(since))
}

func (s *Service) started(d api.Dispatch) {
	s.logOf(&d).InfoContext(s.life, "started")
	s.cfg.Observer.Started(d)
}

// ended says nothing of the message: an agent may have written it.
func (s *Service) ended(d api.Dispatch) {
	s.logOf(&d).InfoContext(s.life, "ended", slog.String("outcome", string(d.State)), slog.String("reason", string(d.Reason)))
	s.cfg.Observer.Ended(d)
}

// logOf returns the logger of lines about one attempt of a dispatch.
func (s *Service) logOf(d *api.Dispatch) *slog.Logger {
	l := s.cfg.Logger.With(slog.String("dispatch", string(d.ID)), slog.Int("attempt", d.Attempt))
	if id := d.Trace.ID(); id != "" {
		l = l.With(slog.String("trace", id))
	}
	return l
}

type traceKey struct{}

// WithTrace says which span the requests that are made with ctx belong to.
func WithTrace(ctx context.Context, t api.Trace) context.Context {
	return context.WithValue(ctx, traceKey{}, t)
}

// TraceOf returns what WithTrace said.
func TraceOf(ctx context.Context) api.Trace {
	t, _ := ctx.Value(traceKey{}).(api.Trace)
	return t
}

// Catalog returns the number of the revision that the service goes by, 0 when
// none has been applied, and why there is none to go by.
func (s *Service) Catalog(ctx context.Context) (uint64, error) {
	p, err := s.snapshots.Current(ctx)
	if err != nil || p.Revision == nil {
		return 0, err
	}
	return p.Revision.Number(), nil
}
