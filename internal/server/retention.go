package server

import "net/http"

// pin keeps a dispatch whatever the rules of retention say, or no longer.
func (s *Server) pin(on bool) handler {
	return func(w http.ResponseWriter, r *http.Request, who caller) error {
		id, err := dispatchID(r)
		if err != nil {
			return err
		}
		d, err := s.cfg.Dispatch.Pin(r.Context(), who.Principal, id, on)
		if err != nil {
			return err
		}
		return answer(w, http.StatusOK, d)
	}
}

// collect removes what the rules of retention let go; with dryRun it says what
// that is.
func (s *Server) collect(dryRun bool) handler {
	return func(w http.ResponseWriter, r *http.Request, who caller) error {
		report, err := s.cfg.Retain.Collect(r.Context(), who.Principal, dryRun)
		if err != nil {
			return err
		}
		return answer(w, http.StatusOK, report)
	}
}
