package server

import (
	"net/http"
)

func (s *Server) status(w http.ResponseWriter, r *http.Request, _ caller) error {
	st, err := s.cfg.Status(r.Context())
	if err != nil {
		return err
	}
	st.OneShot = s.gate.oneShot(s.cfg.Dispatch.Running() > 0)
	for _, stop := range s.cfg.Registry.Stops() {
		if stop.LiftedAt == nil {
			st.Stops = append(st.Stops, stop.ID)
		}
	}
	return answer(w, http.StatusOK, st)
}

func (s *Server) stop(w http.ResponseWriter, _ *http.Request, _ caller) error {
	s.cfg.Stop()
	return answer(w, http.StatusAccepted, struct{}{})
}
