// Package server is the API of the service on a unix socket.
//
// Who is calling is what the operating system says of the peer (SO_PEERCRED),
// or whose token a process has exchanged for a handle; nothing else in a request
// says it, and what a request declares only lowers how far it goes. Two path
// prefixes have two authorisations: /v1/runtime/ is what may be driven by an AI,
// /v1/operator/ is for people, and never for who calls by a token. A caller that
// cannot be established, a request that is malformed and a verb that is refused
// are each an entry in the log (R-A3).
//
// Carries R-T4 (authentication), R-T5 (what a session declares) and R-T6 (a
// token is in one request and goes nowhere from there).
package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/audit"
	"github.com/bailiwick-dev/bailiwick/internal/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/oauth"
	"github.com/bailiwick-dev/bailiwick/internal/operator"
	"github.com/bailiwick-dev/bailiwick/internal/policy"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/retain"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

const (
	maxBody   = 1 << 20
	maxHeader = 32 << 10
	// bodyTime is for reading a request.
	bodyTime   = 30 * time.Second
	headerTime = 5 * time.Second
	idleTime   = 60 * time.Second
)

// Config is what a Server serves.
type Config struct {
	Dispatch *dispatch.Service
	Registry *operator.Registry
	Runs     Runs            // the orchestrator; nil: there is none
	OAuth    *oauth.Verifier // of another issuer's tokens; nil: only ours count
	Ledger   *audit.Ledger
	Tree     Tree // over the ledger
	Evidence Evidence
	Retain   *retain.Keeper
	Login    func(uid uint32) (string, error) // name of an account; an error when it has none
	Status   func(context.Context) (api.ServiceStatus, error)
	Trust    func(context.Context) ([]byte, error) // what an auditor should be given
	Now      func() time.Time
	Stop     func()        // begins the end of the service; returns at once
	Idle     time.Duration // Stop is called when no request and no worker has been there for so long; 0: never
	Broken   func() bool   // only the next service can serve again: one that has an Idle time then ends at once; nil: never
	Logger   *slog.Logger
	Observe  func(Answered) // told of each request; nil: nobody is
	Traced   bool           // spans are recorded: a trace that begins here says so
}

// Server answers requests.
type Server struct {
	cfg      Config
	gate     *gate
	sessions *sessions
	refusals *refusals
	told     *told
	http     *http.Server
}

// New returns a server that does not listen yet.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, gate: newGate(cfg.Now, cfg.Idle), sessions: newSessions(cfg.Now), refusals: newRefusals(cfg.Now), told: &told{now: cfg.Now, left: map[api.Principal]allowance{}}}
	mux := http.NewServeMux()
	for pattern, h := range s.calls() {
		mux.Handle(pattern, s.handle(pattern, h))
	}
	mux.Handle("/", s.handle("", func(_ http.ResponseWriter, r *http.Request, _ caller) error {
		return api.Errorf(api.CodeNotFound, "%s %s: there is no such call", r.Method, r.URL.Path)
	}))
	s.http = &http.Server{
		Handler: s.admit(mux), ConnContext: s.connContext, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	return s
}

// calls is every call that there is.
func (s *Server) calls() map[string]handler {
	calls := s.runCalls()
	maps.Copy(calls, map[string]handler{
		"POST /v1/runtime/dispatches":               s.submit,
		"GET /v1/runtime/dispatches":                s.list,
		"GET /v1/runtime/dispatches/{id}":           s.describe,
		"POST /v1/runtime/dispatches/{id}/cancel":   s.cancel,
		"POST /v1/runtime/dispatches/{id}/answer":   s.answerQuestion,
		"POST /v1/runtime/dispatches/{id}/pin":      s.pin(true),
		"POST /v1/runtime/dispatches/{id}/unpin":    s.pin(false),
		"GET /v1/runtime/dispatches/{id}/log":       s.log,
		"GET /v1/runtime/dispatches/{id}/patch":     s.patch,
		"GET /v1/runtime/dispatches/{id}/output":    s.output,
		"GET /v1/runtime/dispatches/{id}/statement": s.statement,
		"POST /v1/runtime/can":                      s.can,
		"GET /v1/runtime/who":                       s.who,
		"GET /v1/runtime/catalog/capabilities":      s.listing(api.KindCapability),
		"GET /v1/runtime/catalog/subagents":         s.listing(api.KindSubagent),
		"GET /v1/runtime/catalog/envs":              s.listing(api.KindEnv),
		"POST /v1/runtime/refused":                  s.refused,
		"POST /v1/runtime/http-ready":               s.httpReady,
		"POST /v1/session":                          s.exchange,
		"GET /v1/operator/status":                   s.operator(policy.ActionStatusRead, s.status),
		"GET /v1/operator/log":                      s.operator(policy.ActionAuditRead, s.entries),
		"GET /v1/operator/log/checkpoint":           s.operator(policy.ActionAuditRead, s.checkpoint),
		"GET /v1/operator/log/tiles/{path...}":      s.operator(policy.ActionAuditRead, s.tile),
		"GET /v1/operator/log/proof":                s.operator(policy.ActionAuditRead, s.proof),
		"GET /v1/operator/evidence":                 s.operator(policy.ActionAuditRead, s.evidence),
		"POST /v1/operator/log/check":               s.operator(policy.ActionAuditRead, s.checkLog),
		"GET /v1/operator/trust":                    s.operator(policy.ActionAuditRead, s.trust),
		"GET /v1/operator/gc":                       s.operator(policy.ActionServiceGC, s.collect(true)),
		"POST /v1/operator/gc":                      s.operator(policy.ActionServiceGC, s.collect(false)),
		"POST /v1/operator/stop":                    s.operator(policy.ActionServiceStop, s.stop),
		"POST /v1/operator/stay":                    s.operator(policy.ActionServiceStay, s.stay),
		"GET /v1/operator/records/head":             s.operator(policy.ActionOperatorRead, s.recordHead),
		"POST /v1/operator/records":                 s.operator(policy.ActionOperatorRecord, s.record),
		"GET /v1/operator/principals":               s.operator(policy.ActionOperatorRead, s.principals),
		"GET /v1/operator/principals/{principal}":   s.operator(policy.ActionOperatorRead, s.principal),
		"GET /v1/operator/tokens":                   s.operator(policy.ActionOperatorRead, s.tokens),
		"GET /v1/operator/stops":                    s.operator(policy.ActionOperatorRead, s.stops),
		"POST /v1/operator/stops":                   s.operator(policy.ActionStopEngage, s.engage),
	})
	return calls
}

// Serve answers on l until Shutdown.
func (s *Server) Serve(l *net.UnixListener) error {
	if s.cfg.Idle > 0 {
		go s.awaitIdle() // until the gate closes, which Shutdown sees to
	}
	go s.sumUpAlways() // likewise
	err := s.http.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Shutdown lets requests end until ctx is done, then ends them.
func (s *Server) Shutdown(ctx context.Context) error {
	s.gate.close()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = s.http.Close()
	}
	s.sessions.close()
	return errors.Join(err, s.sumUp(ctx))
}

// handler answers a request of an established caller.
type handler func(w http.ResponseWriter, r *http.Request, who caller) error

// handle establishes the caller, and turns an error into its one shape.
func (s *Server) handle(operation string, h handler) http.Handler {
	return s.observed(operation, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := s.establish(r)
		if who.byToken { // what is logged of it says by which
			r = r.WithContext(record.WithToken(r.Context(), who.session.token))
		}
		if err == nil {
			err = s.readBody(w, r, bodyLimit(operation))
		}
		if err == nil {
			err = s.still(r.Context(), who)
		}
		if err == nil {
			err = h(w, r, who)
		}
		if err == nil {
			return
		}
		if malformed := new(requestError); errors.As(err, &malformed) {
			err = dispatch.LogInvalid(r.Context(), s.cfg.Ledger, who.Principal, operation, malformed.err)
		}
		s.fail(w, r, err)
	}))
}

// bodyLimit is how long a request may be: a plan is longer than all else.
func bodyLimit(operation string) int64 {
	if operation == submitRunCall {
		return maxRunBody
	}
	return maxBody
}

// readBody reads the whole body within its size and time. It is done before
// the handler, whose answer may take as long as a dispatch does: a deadline
// that is left on the connection would end it.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, limit int64) error {
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(s.cfg.Now().Add(bodyTime)); err != nil {
		return err
	}
	b, err := io.ReadAll(http.MaxBytesReader(below(w), r.Body, limit))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return malformed(api.CodeTooLarge, "the request is larger than %d bytes", limit)
	case err != nil:
		return malformed(api.CodeInvalid, "the request could not be read: %w", err)
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
	return control.SetReadDeadline(time.Time{})
}

// requestError is a request that could not be understood, not yet logged.
type requestError struct{ err *api.Error }

func (e *requestError) Error() string { return e.err.Error() }

func malformed(code api.Code, format string, args ...any) error {
	return &requestError{api.Errorf(code, format, args...)}
}

// fail is the one place where an error becomes a response.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	var e *api.Error
	if !errors.As(err, &e) && errors.Is(err, store.ErrPoisoned) { // what only reads is refused as well
		e = api.Errorf(api.CodeAuditUnavailable, "nothing is allowed: %w", err).WithHint("see to the disk of the state directory, then restart the service")
	}
	if e == nil && s.gate.leaving.Err() != nil && r.Context().Err() != nil {
		e = errEnding()
	}
	if e == nil {
		if r.Context().Err() != nil {
			return // nobody is there to hear it
		}
		s.cfg.Logger.ErrorContext(r.Context(), "a request failed", traceAttr(r), slog.String("path", r.URL.Path), slog.Any("err", err))
		e = api.Errorf(api.CodeInternal, "%w", err)
	}
	if len(e.Problems) > api.MaxProblems {
		bounded := *e
		bounded.Problems = e.Problems[:api.MaxProblems]
		e = &bounded
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(api.Table()[e.Code].HTTP)
	_ = json.NewEncoder(w).Encode(e) // the caller may be gone
}

// operator admits a verb that only the operator has.
func (s *Server) operator(action policy.Action, h handler) handler {
	return func(w http.ResponseWriter, r *http.Request, who caller) error {
		engine, err := s.cfg.Dispatch.Engine(r.Context())
		if err != nil {
			return err
		}
		d := engine.Decide(policy.Request{Principal: who.Principal, Action: action, Resource: "service", Token: who.byToken})
		kind := record.KindAccessAllowed
		if action == policy.ActionServiceStop {
			kind = record.KindStopRequested
		}
		// A read that is allowed changes nothing and would make every look at
		// the log longer; everything else is logged before it happens.
		if !d.Allowed() || kind == record.KindStopRequested || action == policy.ActionServiceStay || action == policy.ActionServiceGC && r.Method == http.MethodPost {
			if _, err := s.cfg.Ledger.Commit(r.Context(), d, record.Entry{Kind: kind, Detail: record.Access{Operation: string(action)}}, nil); err != nil {
				return err
			}
		}
		return h(w, r, who)
	}
}
