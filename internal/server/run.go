package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/audit"
	"github.com/bailiwick-dev/bailiwick/internal/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/policy"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// Runs is the orchestrator, as far as it is asked here (R-O1). It decides about
// every call itself; who calls by a token steers nothing whatever it says.
type Runs interface {
	RunReader
	RunSteerer
	QueueKeeper
}

// RunReader shows runs to those who may see them.
type RunReader interface {
	Describe(ctx context.Context, who api.Principal, id api.RunID, after string, limit int) (api.Run, error)
	List(ctx context.Context, who api.Principal, limit int) ([]api.Run, error)
	Events(ctx context.Context, who api.Principal, id api.RunID, after string, wait time.Duration) (api.RunEvents, error)
	Plan(ctx context.Context, who api.Principal, id api.RunID) (json.RawMessage, error)
}

// RunSteerer begins runs, and steers those that are there.
type RunSteerer interface {
	Submit(ctx context.Context, by dispatch.Caller, req api.RunRequest) (api.Run, error)
	Retry(ctx context.Context, by dispatch.Caller, id api.RunID, req api.RunRetry) (api.Run, error)
	Cancel(ctx context.Context, by dispatch.Caller, id api.RunID, req api.RunCancel) (api.Run, error)
	Answer(ctx context.Context, by dispatch.Caller, id api.RunID, req api.RunAnswer) (api.Run, error)
	Pause(ctx context.Context, by dispatch.Caller, id api.RunID) (api.Run, error)
	Resume(ctx context.Context, by dispatch.Caller, id api.RunID) (api.Run, error)
}

// QueueKeeper shows and steers queues.
type QueueKeeper interface {
	Queues(ctx context.Context) ([]api.Queue, error)
	PauseQueue(ctx context.Context, by dispatch.Caller, name api.Name) (api.Queue, error)
	ResumeQueue(ctx context.Context, by dispatch.Caller, name api.Name) (api.Queue, error)
}

const (
	submitRunCall = "POST /v1/runtime/runs"
	maxRunBody    = api.MaxPlan + 64<<10
	maxCursor     = 256
	runPage       = 100 // tasks in an answer, where nobody says how many
)

// runCalls is every call about runs.
func (s *Server) runCalls() map[string]handler {
	return map[string]handler{
		submitRunCall:                            s.submitRun,
		"GET /v1/runtime/runs":                   s.runList,
		"GET /v1/runtime/runs/{id}":              s.withRun(s.runShow),
		"GET /v1/runtime/runs/{id}/events":       s.withRun(s.runEvents),
		"GET /v1/runtime/runs/{id}/plan":         s.withRun(s.runPlan),
		"POST /v1/operator/runs/{id}/cancel":     s.steered(policy.ActionRunCancel, "run.cancel", s.runCancel),
		"POST /v1/operator/runs/{id}/pause":      s.steered(policy.ActionRunPause, "run.pause", s.runPause(true)),
		"POST /v1/operator/runs/{id}/resume":     s.steered(policy.ActionRunPause, "run.resume", s.runPause(false)),
		"POST /v1/operator/runs/{id}/retry":      s.steered(policy.ActionRunCancel, "run.retry", s.runRetry),
		"POST /v1/operator/runs/{id}/answer":     s.steered(policy.ActionRunAnswer, "run.answer", s.runAnswer),
		"GET /v1/operator/queues":                s.operator(policy.ActionStatusRead, s.queueList),
		"POST /v1/operator/queues/{name}/pause":  s.operator(policy.ActionQueuePause, s.queuePause(true)),
		"POST /v1/operator/queues/{name}/resume": s.operator(policy.ActionQueuePause, s.queuePause(false)),
	}
}

// runs is the orchestrator, or that there is none.
func (s *Server) runs() (Runs, error) {
	if s.cfg.Runs == nil {
		return nil, api.Errorf(api.CodeNotConfigured, "this service runs without an orchestrator, so there are no runs").
			WithHint("dispatch each subagent by itself, or have a person run: bailiwick up --orchestrator")
	}
	return s.cfg.Runs, nil
}

func (s *Server) submitRun(w http.ResponseWriter, r *http.Request, who caller) error {
	var req api.RunRequest
	if err := decode(r, &req); err != nil {
		return err
	}
	if len(req.Plan) == 0 {
		return malformed(api.CodeInvalid, "request: the member \"plan\" is missing")
	}
	runs, err := s.runs()
	if err != nil {
		return err
	}
	run, err := runs.Submit(r.Context(), who.Caller, req)
	if err != nil {
		return s.orGone(r.Context(), who, err)
	}
	return answer(w, http.StatusAccepted, run)
}

func (s *Server) runList(w http.ResponseWriter, r *http.Request, who caller) error {
	limit, err := number(r, "limit", 50, 1, maxList)
	if err != nil {
		return err
	}
	runs, err := s.runs()
	if err != nil {
		return err
	}
	list, err := runs.List(r.Context(), who.Principal, int(limit))
	if err != nil {
		return err
	}
	if list == nil {
		list = []api.Run{}
	}
	return answer(w, http.StatusOK, list)
}

// runHandler answers a request about one run.
type runHandler func(w http.ResponseWriter, r *http.Request, who caller, runs Runs, id api.RunID) error

// withRun finds out which run a request is about.
func (s *Server) withRun(h runHandler) handler {
	return func(w http.ResponseWriter, r *http.Request, who caller) error {
		id, err := api.ParseRunID(r.PathValue("id"))
		if err != nil {
			return malformed(api.CodeInvalid, "%w", err)
		}
		runs, err := s.runs()
		if err != nil {
			return err
		}
		return h(w, r, who, runs, id)
	}
}

// steered is a call that steers a run. Whose run it is decides about an account;
// who calls by a token is refused before anything is looked up.
func (s *Server) steered(action policy.Action, operation string, h runHandler) handler {
	inner := s.withRun(h)
	return func(w http.ResponseWriter, r *http.Request, who caller) error {
		if who.byToken {
			return s.refuseSteering(r.Context(), who, action, operation)
		}
		return inner(w, r, who)
	}
}

// refuseSteering logs the denial, and is one whatever the policies say.
func (s *Server) refuseSteering(ctx context.Context, who caller, action policy.Action, operation string) error {
	engine, err := s.cfg.Dispatch.Engine(ctx)
	if err != nil {
		return err
	}
	d := engine.Decide(policy.Request{Principal: who.Principal, Owner: who.Principal, Action: action, Resource: "run", Token: true})
	_, err = s.cfg.Ledger.Commit(ctx, d, record.Entry{Kind: record.KindAccessAllowed, Detail: record.Access{Operation: operation}}, nil)
	if err == nil {
		err = api.Errorf(api.CodeDenied, "%s is for people, and not for who calls by a token", operation)
	}
	var denied *api.Error
	if errors.As(err, &denied) && denied.Code == api.CodeDenied {
		err = denied.WithHint("steering runs is for people: bailiwick run --help, at the account of the service")
	}
	return err
}

// afterOf reads where a page begins. Whose cursor it is the orchestrator knows.
func afterOf(r *http.Request) (string, error) {
	after := r.URL.Query().Get("after")
	if len(after) > maxCursor {
		return "", malformed(api.CodeInvalid, "after: not a cursor that was returned")
	}
	return after, nil
}

func (s *Server) runShow(w http.ResponseWriter, r *http.Request, who caller, runs Runs, id api.RunID) error {
	after, err := afterOf(r)
	if err != nil {
		return err
	}
	limit, err := number(r, "limit", runPage, 1, maxList)
	if err != nil {
		return err
	}
	run, err := runs.Describe(r.Context(), who.Principal, id, after, int(limit))
	if err == nil {
		run.Sealed, err = s.sealed(r.Context(), &run)
	}
	return outcome(w, http.StatusOK, run, err)
}

// sealed reports whether the newest signed checkpoint covers the end of a run.
func (s *Server) sealed(ctx context.Context, run *api.Run) (bool, error) {
	if run.SettledAt == nil || s.cfg.Tree == nil {
		return false, nil
	}
	end, err := s.cfg.Ledger.List(ctx, audit.Query{Run: run.RunID, Kinds: []record.Kind{record.KindRunSettled}, Newest: true, Limit: 1})
	if err != nil || len(end) == 0 {
		return false, err
	}
	_, c := s.cfg.Tree.Latest()
	return end[0].Seq < c.Size, nil
}

func (s *Server) runEvents(w http.ResponseWriter, r *http.Request, who caller, runs Runs, id api.RunID) error {
	after, err := afterOf(r)
	if err != nil {
		return err
	}
	wait, err := waitOf(r)
	if err != nil {
		return err
	}
	events, err := runs.Events(r.Context(), who.Principal, id, after, wait)
	if err == nil {
		err = s.still(r.Context(), who)
	}
	if events.Events == nil {
		events.Events = []api.RunEvent{}
	}
	return outcome(w, http.StatusOK, events, err)
}

func (s *Server) runPlan(w http.ResponseWriter, r *http.Request, who caller, runs Runs, id api.RunID) error {
	plan, err := runs.Plan(r.Context(), who.Principal, id)
	return outcome(w, http.StatusOK, plan, err)
}

func (s *Server) runCancel(w http.ResponseWriter, r *http.Request, who caller, runs Runs, id api.RunID) error {
	var req api.RunCancel
	if err := decode(r, &req); err != nil {
		return err
	}
	run, err := runs.Cancel(r.Context(), who.Caller, id, req)
	return outcome(w, http.StatusOK, run, err)
}

func (s *Server) runPause(on bool) runHandler {
	return func(w http.ResponseWriter, r *http.Request, who caller, runs Runs, id api.RunID) error {
		act := runs.Resume
		if on {
			act = runs.Pause
		}
		run, err := act(r.Context(), who.Caller, id)
		return outcome(w, http.StatusOK, run, err)
	}
}

func (s *Server) runRetry(w http.ResponseWriter, r *http.Request, who caller, runs Runs, id api.RunID) error {
	var req api.RunRetry
	if err := decode(r, &req); err != nil {
		return err
	}
	run, err := runs.Retry(r.Context(), who.Caller, id, req)
	return outcome(w, http.StatusAccepted, run, err)
}

func (s *Server) runAnswer(w http.ResponseWriter, r *http.Request, who caller, runs Runs, id api.RunID) error {
	var req api.RunAnswer
	if err := decode(r, &req); err != nil {
		return err
	}
	if req.Task == "" {
		return malformed(api.CodeInvalid, "request: the member \"task\" is missing")
	}
	run, err := runs.Answer(r.Context(), who.Caller, id, req)
	return outcome(w, http.StatusAccepted, run, err)
}

func (s *Server) queueList(w http.ResponseWriter, r *http.Request, _ caller) error {
	runs, err := s.runs()
	if err != nil {
		return err
	}
	list, err := runs.Queues(r.Context())
	return outcome(w, http.StatusOK, list, err)
}

func (s *Server) queuePause(on bool) handler {
	return func(w http.ResponseWriter, r *http.Request, who caller) error {
		name, err := api.ParseName(r.PathValue("name"))
		if err != nil {
			return malformed(api.CodeInvalid, "queue: %w", err)
		}
		runs, err := s.runs()
		if err != nil {
			return err
		}
		act := runs.ResumeQueue
		if on {
			act = runs.PauseQueue
		}
		q, err := act(r.Context(), who.Caller, name)
		return outcome(w, http.StatusOK, q, err)
	}
}

// outcome answers with v, unless there is an error.
func outcome[T any](w http.ResponseWriter, status int, v T, err error) error {
	if err != nil {
		return err
	}
	return answer(w, status, v)
}
