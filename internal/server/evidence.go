package server

import (
	"context"
	"encoding/base64"
	"net/http"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/evidence"
	"github.com/bailiwick-dev/bailiwick/internal/export"
	"github.com/bailiwick-dev/bailiwick/internal/policy"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// Evidence makes the evidence about what is over.
type Evidence interface {
	Bundle(ctx context.Context, req export.Request) (*evidence.Bundle, error)
}

// evidence streams a bundle. That somebody takes it is logged before: it says
// who did what, to whoever has it.
func (s *Server) evidence(w http.ResponseWriter, r *http.Request, who caller) error {
	req, err := evidenceRequest(r)
	if err != nil {
		return err
	}
	engine, err := s.cfg.Dispatch.Engine(r.Context())
	if err != nil {
		return err
	}
	d := engine.Decide(policy.Request{Principal: who.Principal, Action: policy.ActionAuditRead, Resource: "service", Token: who.byToken})
	operation := "evidence of run " + string(req.Run)
	if req.Dispatch != "" {
		operation = "evidence of dispatch " + string(req.Dispatch)
	}
	if _, err := s.cfg.Ledger.Commit(r.Context(), d, record.Entry{Kind: record.KindAuditRead, Detail: record.Access{Operation: operation}}, nil); err != nil {
		return err
	}
	b, err := s.cfg.Evidence.Bundle(r.Context(), req)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/x-tar")
	if err := evidence.Write(w, b); err != nil {
		panic(http.ErrAbortHandler) // a truncated body must not look whole
	}
	return nil
}

func evidenceRequest(r *http.Request) (req export.Request, err error) {
	q := r.URL.Query()
	for name, list := range q {
		if name != "checkpoint" && (len(list) != 1 || name != "run" && name != "dispatch" && name != "blobs") {
			return req, malformed(api.CodeInvalid, "%.40s: there is no such parameter, or it is said twice", name)
		}
	}
	if q.Has("run") == q.Has("dispatch") {
		return req, malformed(api.CodeInvalid, "name a run or a dispatch")
	}
	if q.Has("run") {
		req.Run, err = api.ParseRunID(q.Get("run"))
	} else {
		req.Dispatch, err = api.ParseDispatchID(q.Get("dispatch"))
	}
	if err != nil {
		return req, malformed(api.CodeInvalid, "%w", err)
	}
	if req.Blobs, err = flag(r, "blobs"); err != nil {
		return req, err
	}
	if len(q["checkpoint"]) > api.MaxCheckpoints {
		return req, malformed(api.CodeInvalid, "%d checkpoints, more than %d", len(q["checkpoint"]), api.MaxCheckpoints)
	}
	for _, text := range q["checkpoint"] {
		b, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			return req, malformed(api.CodeInvalid, "checkpoint: %w", err)
		}
		req.From = append(req.From, b)
	}
	return req, nil
}

// checkLog has every entry of the log read, hashed and put in its place again.
func (s *Server) checkLog(w http.ResponseWriter, r *http.Request, _ caller) error {
	var out api.LogCheck
	var err error
	if out.Entries, err = s.cfg.Tree.Check(r.Context()); err == nil {
		out.Chained, err = s.cfg.Ledger.CheckChains(r.Context())
	}
	if r.Context().Err() != nil {
		return r.Context().Err()
	}
	if err != nil {
		out.Wrong = err.Error()
	}
	return answer(w, http.StatusOK, out)
}
