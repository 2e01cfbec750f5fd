// Package server serves the API of the service on a unix socket, and over TLS.
//
// It establishes the caller from the socket's peer (SO_PEERCRED), or from the handle that a
// caller got for a token or by logging in, and from nothing else in a request; a caller over
// TLS has no account, and without a handle it can only log in. What a
// request declares only lowers its ceiling. api.CallTable lists every call. The
// runtime calls may be driven by an AI; the operator calls are for people and
// never for a caller by token. An unauthenticated caller, a malformed request and
// a denied call each get an entry in the log (R-A3).
//
// Carries R-T4 (authentication), R-T5 (what a session declares) and R-T6 (a
// token is in one request and goes no further).
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
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/base/usererror"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/run/retention"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/inforce"
	"github.com/bailiwick-dev/bailiwick/internal/state/login"
	"github.com/bailiwick-dev/bailiwick/internal/state/oauth"
	"github.com/bailiwick-dev/bailiwick/internal/state/operator"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

const (
	maxHeader     = 32 << 10
	bodyTimeout   = 30 * time.Second
	headerTimeout = 5 * time.Second
	idleTimeout   = 60 * time.Second // of a connection
)

// Config is what a Server serves.
type Config struct {
	Mode      string // of the service, for hints
	Dispatch  *dispatch.Service
	InForce   *inforce.Reader // the catalog and the policy
	Registry  *operator.Registry
	Operator  api.Principal // whose ids are stored as it chooses them; empty: everybody's; see scopes
	Runs      Runs          // the orchestrator; nil: none is configured
	Reader    RunReader     // of runs, also without an orchestrator
	Schedules Schedules
	Approvals Approvals
	OAuth     *oauth.Verifier // of another issuer's tokens; nil: only the service's own are accepted
	People    *login.Sessions // of people who logged in; nil: logins are not configured
	Provider  *login.Provider // of their ID tokens; nil: none
	Passkeys  *login.Passkeys // nil: none
	Map       Map             // of identities to people
	Ledger    *audit.Ledger
	Tree      Tree // over the ledger
	Evidence  Evidence
	// CheckState compares all rows of the state with the log; nil: none are.
	CheckState func(context.Context) error
	Retain     *retention.Collector
	Login      func(uid uint32) (string, error) // login name of an account; an error when it has none
	Status     func(context.Context) (api.ServiceStatus, error)
	Trust      func(context.Context) ([]byte, error) // the trust file for auditors
	// Secrets lists the secrets; with check, it reads each value.
	Secrets func(ctx context.Context, check bool) (api.SecretList, error)
	Now     func() time.Time
	// Page is the account of the page for several people. It makes calls in the sessions of
	// people, and to log people in, and no others; empty: no account is the page's.
	Page    api.Principal
	Stop    func()        // begins the shutdown of the service; returns at once
	Idle    time.Duration // Stop is called after this long without requests and workers; 0: never
	Broken  func() bool   // whether only a restarted service can serve again; if Idle is set, Stop is then called at once; nil: never
	Logger  *slog.Logger
	Observe func(Answered) // called after each request; may be nil
	Traced  bool           // whether the spans of traces that start here are recorded
}

// Server answers requests.
type Server struct {
	cfg     Config
	gate    *gate
	callers *callers
	catalog *catalogCalls
	http    *drain
	remote  *drain // over TLS
}

// New returns a server that does not listen yet. It panics if a call of the
// table has no handler.
func New(cfg Config) *Server {
	callers := newCallers(&cfg)
	s := &Server{cfg: cfg, gate: newGate(cfg.Now, cfg.Idle), callers: callers, catalog: newCatalogCalls(&cfg, callers)}
	handlers := s.handlers()
	mux := http.NewServeMux()
	for call := range api.CallTable() {
		mux.Handle(string(call), s.serve(call, s.authorize(call, handlers[call])))
	}
	mux.Handle("/", s.serve("", func(_ http.ResponseWriter, r *request) error {
		return api.Errorf(api.CodeNotFound, "%s %s: no such call", r.Method, r.URL.Path)
	}))
	s.http, s.remote = newDrain(NewHTTP(s.admit(mux), cfg.Logger)), newDrain(NewHTTP(s.admit(mux), cfg.Logger))
	return s
}

// handlers returns the handler of every call.
func (s *Server) handlers() map[api.Call]handler {
	all := map[api.Call]handler{api.CallSession: s.callers.exchange}
	maps.Copy(all, (&loginCalls{s.callers}).handlers())
	for _, group := range []map[api.Call]handler{
		(&dispatchCalls{&s.cfg, s.callers}).handlers(),
		(&runCalls{&s.cfg, s.callers}).handlers(),
		(&scheduleCalls{&s.cfg}).handlers(),
		(&approvalCalls{&s.cfg}).handlers(),
		s.catalog.handlers(),
		(&operatorCalls{&s.cfg, s.gate}).handlers(),
		(&pendingCalls{&s.cfg}).handlers(),
		(&invitationCalls{&s.cfg, s.callers}).handlers(),
		(&logCalls{&s.cfg}).handlers(),
	} {
		maps.Copy(all, group)
	}
	return all
}

// Serve answers on l until Shutdown.
func (s *Server) Serve(l *net.UnixListener) error {
	if s.cfg.Idle > 0 {
		go s.awaitIdle() // until the gate closes, as Shutdown makes it
	}
	if s.cfg.People != nil {
		go s.sweepSessions() // likewise
	}
	go s.summarizeAlways() // likewise
	return s.http.serve(l)
}

// Shutdown waits for open requests until ctx is done, then breaks them off. standIn
// answers requests that arrive meanwhile; nil refuses them.
func (s *Server) Shutdown(ctx context.Context, standIn http.Handler) error {
	s.gate.close(standIn)
	err := errors.Join(s.http.end(ctx), s.remote.end(ctx))
	s.callers.sessions.close()
	return errors.Join(err, s.summarize(ctx))
}

// serve establishes the caller, runs h and turns an error into a response.
func (s *Server) serve(call api.Call, h handler) http.Handler {
	spec := call.Spec()
	return s.observed(call, http.HandlerFunc(func(w http.ResponseWriter, hr *http.Request) {
		p, _ := hr.Context().Value(peerKey{}).(peer)
		who, err := s.callers.establish(hr, call)
		if err == nil && p.remote && who.Principal != "" {
			if s.callers.remote.begin(who.Principal) {
				defer s.callers.remote.end(who.Principal)
			} else {
				err = tooMany()
			}
		}
		if who.byToken { // its log entries name the token
			hr = hr.WithContext(record.WithToken(hr.Context(), who.session.token))
		}
		if err == nil {
			err = s.callers.checkPage(hr.Context(), call, who)
		}
		if err == nil {
			err = s.readBody(w, hr, spec.MaxBody)
		}
		if err == nil {
			err = s.callers.checkActive(hr.Context(), who)
		}
		if err == nil {
			status := http.StatusOK
			if spec.Accepted {
				status = http.StatusAccepted
			}
			err = h(w, &request{Request: hr, caller: who, status: status})
		}
		if err == nil {
			return
		}
		if malformed := new(malformedError); errors.As(err, &malformed) {
			err = dispatch.LogInvalid(hr.Context(), s.cfg.Ledger, who.Principal, string(call), malformed.err)
		}
		s.fail(w, hr, who, err)
	}))
}

// readBody reads the whole body within its size and time, before the handler
// runs: a deadline left on the connection would end an answer that takes as long
// as a dispatch.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, limit int64) error {
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(s.cfg.Now().Add(bodyTimeout)); err != nil {
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

// fail is the one place where an error becomes a response. A caller by token may
// be an AI, or on another machine: it is not told paths.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, who caller, err error) {
	var e *api.Error
	if !errors.As(err, &e) && errors.Is(err, store.ErrPoisoned) { // reads are refused as well
		e = api.Errorf(api.CodeAuditUnavailable, "nothing is allowed: %w", err).WithHint("%s", store.Advice(err))
	}
	if e == nil && durable.IsFault(err) {
		e = api.Errorf(api.CodeUnavailable, "%w", err).WithHint("%s", store.Advice(err))
	}
	if errors.Is(err, errLeaving) || e == nil && s.gate.leaving.Err() != nil && r.Context().Err() != nil {
		e = errShuttingDown()
		w.Header().Set("Retry-After", "1") // the next service can answer it
	}
	if e == nil {
		if r.Context().Err() != nil {
			return // the caller is gone
		}
		s.cfg.Logger.ErrorContext(r.Context(), "request failed", traceAttr(r), slog.String("path", r.URL.Path), slog.Any("err", err))
		e = api.Errorf(api.CodeInternal, "%w", err)
	}
	if len(e.Problems) > api.MaxProblems {
		bounded := *e
		bounded.Problems = e.Problems[:api.MaxProblems]
		e = &bounded
	}
	if p, _ := r.Context().Value(peerKey{}).(peer); who.byToken || p.remote {
		e = usererror.ForAgents(e)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(api.Table()[e.Code].HTTP)
	_ = json.NewEncoder(w).Encode(e) // the caller may be gone
}

// authorize wraps the handler of an operator call in its decision.
func (s *Server) authorize(call api.Call, h handler) handler {
	spec := call.Spec()
	switch {
	case h == nil:
		panic("server: no handler for " + string(call))
	case spec.Steers:
		return func(w http.ResponseWriter, r *request) error {
			if r.caller.byToken {
				return s.cfg.refuseSteering(r.Context(), r.caller, spec)
			}
			return h(w, r)
		}
	case spec.Action == "":
		return h
	}
	kind := record.KindAccessAllowed
	if call == api.CallStop {
		kind = record.KindStopRequested
	}
	return func(w http.ResponseWriter, r *request) error {
		d, err := s.cfg.decide(r.Context(), r.caller, spec.Action)
		if err != nil {
			return err
		}
		// An allowed read changes nothing, and an entry for each look at the log
		// would make the log longer.
		if spec.Logged || !d.Allowed() {
			if _, err := s.cfg.Ledger.Commit(r.Context(), d, record.Entry{Kind: kind, Detail: record.Access{Operation: spec.Operation}}, nil); err != nil {
				return err
			}
		}
		return h(w, r)
	}
}
