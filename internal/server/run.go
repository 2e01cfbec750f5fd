package server

import (
	"net/http"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Runs belong to the orchestrator, which this service runs without (R-O1). What
// asks for them is understood, and told so.

func noOrchestrator() error {
	return api.Errorf(api.CodeNotConfigured, "this service runs without an orchestrator, so there are no runs").
		WithHint("dispatch each subagent by itself")
}

func (s *Server) submitRun(_ http.ResponseWriter, r *http.Request, _ caller) error {
	var req api.RunRequest
	if err := decode(r, &req); err != nil {
		return err
	}
	return noOrchestrator()
}

func (s *Server) run(http.ResponseWriter, *http.Request, caller) error { return noOrchestrator() }
