package server

import (
	"log/slog"
	"net/http"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// httpReady says whether the tools may be served over HTTP (R-T2). That the log
// can be written is not looked up anywhere: the question is written into it.
// Any account may ask; the answer says no more than two words.
func (s *Server) httpReady(w http.ResponseWriter, r *http.Request, who caller) error {
	ready := api.HTTPReady{Token: slices.ContainsFunc(s.cfg.Registry.Tokens(), func(t api.TokenInfo) bool { return t.State == api.TokenActive })}
	_, err := s.cfg.Ledger.Record(r.Context(), record.Entry{
		Kind: record.KindHTTPRequested, Principal: who.Principal, Detail: record.HTTPRequest{Token: ready.Token},
	}, nil)
	if ready.Audit = err == nil; err != nil {
		s.cfg.Logger.ErrorContext(r.Context(), "the log cannot be written", slog.Any("err", err))
	}
	return answer(w, http.StatusOK, ready)
}
