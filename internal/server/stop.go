package server

import (
	"net/http"

	"github.com/bailiwick-dev/bailiwick/api"
)

// engage engages an emergency stop. It wants no key: whoever is at the account
// of the service may end what it could end anyhow. Lifting one does; see record.
func (s *Server) engage(w http.ResponseWriter, r *http.Request, who caller) error {
	var req api.StopRequest
	if err := decode(r, &req); err != nil {
		return err
	}
	stop, err := s.cfg.Dispatch.Stop(r.Context(), who.Principal, req)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, stop)
}

func (s *Server) stops(w http.ResponseWriter, _ *http.Request, _ caller) error {
	return answer(w, http.StatusOK, s.cfg.Registry.Stops())
}
