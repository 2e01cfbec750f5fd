package server

import (
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/dispatch"
)

// Answered is a request that has been answered.
type Answered struct {
	Route      string // the call's pattern; empty for what is no call
	Status     int    // 0: the connection was broken off
	Start, End time.Time
	Trace      api.Trace // its span; empty when it has none
	Parent     api.Trace // the caller's, of its traceparent header
}

// Routes lists the calls: all that an Answered can name.
func Routes() []string { return slices.Sorted(maps.Keys((&Server{}).calls())) }

// observed tells of each request what became of it. One that asks for
// something to happen, or whose caller is tracing it, gets a span of its own;
// a header that is not a traceparent is ignored, as the specification says.
func (s *Server) observed(operation string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := Answered{Route: operation, Start: s.cfg.Now()}
		if given := r.Header.Values(api.TraceHeader); len(given) == 1 {
			a.Parent, _ = api.ParseTrace(given[0])
		}
		switch {
		case a.Parent != "":
			a.Trace = a.Parent.Under()
		case r.Method == http.MethodPost:
			a.Trace = api.NewTrace(s.cfg.Traced)
		}
		out := &statusWriter{ResponseWriter: w}
		finished := false
		defer func() {
			if a.End = s.cfg.Now(); finished {
				a.Status = out.sent()
			}
			if s.cfg.Observe != nil {
				s.cfg.Observe(a)
			}
		}()
		next.ServeHTTP(out, r.WithContext(dispatch.WithTrace(r.Context(), a.Trace)))
		finished = true
	})
}

// statusWriter remembers the status that was sent.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) sent() int {
	if w.status == 0 {
		return http.StatusOK
	}
	return w.status
}

// Unwrap lets http.ResponseController reach what is below, and MaxBytesReader
// is given that itself.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// below is the writer of the connection itself.
func below(w http.ResponseWriter) http.ResponseWriter {
	if o, ok := w.(*statusWriter); ok {
		return o.ResponseWriter
	}
	return w
}

// traceAttr names the trace of a request in a line of the log.
func traceAttr(r *http.Request) slog.Attr {
	return slog.String("trace", dispatch.TraceOf(r.Context()).ID())
}
