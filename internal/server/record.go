package server

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/dispatch"
)

func (s *Server) recordHead(w http.ResponseWriter, _ *http.Request, _ caller) error {
	return answer(w, http.StatusOK, s.cfg.Registry.Head())
}

// record takes what an operator signed. That it came through the operator's
// account is not what makes it count: the signature is.
func (s *Server) record(w http.ResponseWriter, r *http.Request, who caller) error {
	var req api.OperatorRequest
	if err := decode(r, &req); err != nil {
		return err
	}
	receipt, err := s.cfg.Registry.Add(r.Context(), who.Principal, req.Envelope)
	if err != nil {
		switch api.CodeOf(err) { //nolint:exhaustive // the others are faults, not refusals
		case api.CodeInvalid, api.CodeConflict, api.CodeIntegrity:
			err = dispatch.LogInvalid(r.Context(), s.cfg.Ledger, who.Principal, "operator.record", err)
		}
		return err
	}
	return answer(w, http.StatusOK, receipt)
}

// principals lists those that operators decided something about and those
// that the catalog has grants for.
func (s *Server) principals(w http.ResponseWriter, r *http.Request, _ caller) error {
	list := s.cfg.Registry.Principals()
	engine, err := s.cfg.Dispatch.Engine(r.Context())
	if err != nil {
		return err
	}
	for _, p := range engine.Principals() {
		if !slices.ContainsFunc(list, func(i api.PrincipalInfo) bool { return i.Principal == p }) {
			list = append(list, s.cfg.Registry.Principal(p))
		}
	}
	for i := range list {
		list[i].Grants = engine.Grants(list[i].Principal)
	}
	slices.SortFunc(list, func(a, b api.PrincipalInfo) int { return strings.Compare(string(a.Principal), string(b.Principal)) })
	return answer(w, http.StatusOK, list)
}

func (s *Server) principal(w http.ResponseWriter, r *http.Request, _ caller) error {
	p, err := api.ParsePrincipal(r.PathValue("principal"))
	if err != nil {
		return malformed(api.CodeInvalid, "%w", err)
	}
	info, err := s.info(r.Context(), p)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, info)
}

func (s *Server) info(ctx context.Context, p api.Principal) (api.PrincipalInfo, error) {
	engine, err := s.cfg.Dispatch.Engine(ctx)
	if err != nil {
		return api.PrincipalInfo{}, err
	}
	info := s.cfg.Registry.Principal(p)
	info.Grants = engine.Grants(p)
	return info, nil
}

func (s *Server) tokens(w http.ResponseWriter, _ *http.Request, _ caller) error {
	return answer(w, http.StatusOK, s.cfg.Registry.Tokens())
}
