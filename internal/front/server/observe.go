package server

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
)

// Answered is a request that has been answered.
type Answered struct {
	Route      string // the pattern of its call; empty for an unknown one
	Status     int    // HTTP; 0: the connection was broken off
	Start, End time.Time
	Trace      api.Trace // its span; may be empty
	Parent     api.Trace // the caller's span, from the traceparent header
}

// observed reports each request to Config.Observe. A POST, and any request with a
// traceparent, gets a span of its own; an invalid traceparent is ignored, as the
// specification says.
func (s *Server) observed(call api.Call, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := Answered{Route: string(call), Start: s.cfg.Now()}
		if given := r.Header.Values(api.TraceHeader); len(given) == 1 {
			a.Parent, _ = api.ParseTrace(given[0])
		}
		switch {
		case a.Parent != "":
			a.Trace = a.Parent.Child()
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

// statusWriter records the status of a response.
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

// Unwrap lets http.ResponseController reach the connection's writer.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// below returns the writer of the connection itself, which MaxBytesReader needs.
func below(w http.ResponseWriter) http.ResponseWriter {
	if o, ok := w.(*statusWriter); ok {
		return o.ResponseWriter
	}
	return w
}

// traceAttr returns the trace id of a request for a log line.
func traceAttr(r *http.Request) slog.Attr {
	return slog.String("trace", dispatch.TraceOf(r.Context()).ID())
}
