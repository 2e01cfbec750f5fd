package webpage

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/bailiwick-dev/bailiwick/api"
)

const dispatchesPage = 50

// dispatchPages shows dispatches and what they left. It keeps indexed logs between requests.
type dispatchPages struct {
	source

	logs logCache
}

// dispatches lists dispatches by the filters of dispatch list.
func (s *dispatchPages) dispatches(r *http.Request) (*view, error) {
	q, f := given(r), &form{}
	f.values = q
	want := api.DispatchFilter{
		Subagent: filter(q, "subagent", api.ParseName, f.keep), Principal: filter(q, "principal", api.ParsePrincipal, f.keep),
		Run: filter(q, "run", api.ParseRunID, f.keep), After: filter(q, "after", api.ParseDispatchID, f.keep), Limit: dispatchesPage,
	}
	for _, word := range q["state"] {
		states, err := api.ParseEvents(word)
		f.keep("state", err)
		want.States = append(want.States, states...)
	}
	if f.err != nil {
		return nil, f.err
	}
	list, err := s.runtime(r.Context()).List(r.Context(), want)
	if err != nil {
		return nil, err
	}
	next := ""
	if len(list) == dispatchesPage {
		q.Set("after", string(list[len(list)-1].ID))
		next = "/dispatches?" + q.Encode()
	}
	return &view{"dispatches", "Dispatches", struct {
		Dispatches []api.Dispatch
		Filter     url.Values
		States     []string
		Next       string
	}{list, q, append([]string{api.DispatchesOpen, api.DispatchesEnded}, words(api.Events())...), next}}, nil
}

// dispatchOf reads the dispatch that a request names, at the attempt that it names.
func (s *dispatchPages) dispatchOf(r *http.Request) (d api.Dispatch, attempt int, err error) {
	id, err := api.ParseDispatchID(r.PathValue("id"))
	if err != nil {
		return d, 0, api.Errorf(api.CodeInvalid, "%w", err)
	}
	if text := r.URL.Query().Get("attempt"); text != "" {
		if attempt, err = strconv.Atoi(text); err != nil || attempt < 1 {
			return d, 0, api.Errorf(api.CodeInvalid, "attempt %.20q: want a number from 1", text)
		}
	}
	d, err = s.runtime(r.Context()).Attempt(r.Context(), id, attempt)
	return d, attempt, err
}

func (s *dispatchPages) dispatch(r *http.Request) (*view, error) {
	d, _, err := s.dispatchOf(r)
	if err != nil {
		return nil, err
	}
	return &view{"dispatch", "Dispatch " + string(d.ID), struct {
		api.Dispatch
		Entries part[[]api.LogLine]
	}{d, operatorPart(r.Context(), s.lines(api.LogQuery{Dispatch: d.ID, Last: eventsPage}))}}, nil
}
