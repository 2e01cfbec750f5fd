package webpage

import (
	"net/http"
	"strconv"

	"github.com/bailiwick-dev/bailiwick/api"
)

// dispatchOf reads the dispatch that a request names, at the attempt that it names.
func (s *site) dispatchOf(r *http.Request) (d api.Dispatch, attempt int, err error) {
	id, err := api.ParseDispatchID(r.PathValue("id"))
	if err != nil {
		return d, 0, api.Errorf(api.CodeInvalid, "%w", err)
	}
	if text := r.URL.Query().Get("attempt"); text != "" {
		if attempt, err = strconv.Atoi(text); err != nil || attempt < 1 {
			return d, 0, api.Errorf(api.CodeInvalid, "attempt %.20q: want a number from 1", text)
		}
	}
	d, err = s.runtime().Attempt(r.Context(), id, attempt)
	return d, attempt, err
}

func (s *site) dispatch(r *http.Request) (*view, error) {
	d, _, err := s.dispatchOf(r)
	if err != nil {
		return nil, err
	}
	return &view{"dispatch", "Dispatch " + string(d.ID), struct {
		api.Dispatch
		Entries part[[]api.LogLine]
	}{d, partOf(r.Context(), s.lines(api.LogQuery{Dispatch: d.ID, Last: eventsPage}))}}, nil
}
