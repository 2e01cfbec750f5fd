package server

import (
	"bytes"
	"io"
	"net/http"
)

// statement sends what was signed of a dispatch that has ended, as it was
// signed.
func (s *Server) statement(w http.ResponseWriter, r *http.Request, who caller) error {
	id, err := dispatchID(r)
	if err != nil {
		return err
	}
	envelope, err := s.cfg.Dispatch.Statement(r.Context(), who.Principal, id)
	if err == nil {
		err = s.still(r.Context(), who) // it may have taken a while
	}
	if err != nil {
		return err
	}
	return send(w, io.NopCloser(bytes.NewReader(envelope)), int64(len(envelope)))
}

// trust sends what an auditor of this installation should be given.
func (s *Server) trust(w http.ResponseWriter, r *http.Request, _ caller) error {
	doc, err := s.cfg.Trust(r.Context())
	if err != nil {
		return err
	}
	return send(w, io.NopCloser(bytes.NewReader(doc)), int64(len(doc)))
}
