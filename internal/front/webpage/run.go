package webpage

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/webpage/graph"
)

const (
	runsPage   = 50
	tasksPage  = 200
	eventsPage = 20
)

// runPages shows runs. It keeps the layouts of graphs between requests.
type runPages struct {
	source

	layouts graph.Cache
}

// runs lists runs by the filters of run list.
func (s *runPages) runs(r *http.Request) (*view, error) {
	q := given(r)
	f, err := api.ParseRunFilter(q)
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "%w", err)
	}
	f.Limit = runsPage
	list, err := s.runtime(r.Context()).Runs(r.Context(), f)
	if err != nil {
		return nil, err
	}
	next := ""
	if len(list) == runsPage {
		q.Set("after", string(list[len(list)-1].RunID))
		next = "/runs?" + q.Encode()
	}
	return &view{"runs", "Runs", struct {
		Runs   []api.Run
		Filter url.Values
		States []string
		Next   string
	}{list, q, append([]string{api.RunsOpen, api.RunsSettled}, words(api.RunStates())...), next}}, nil
}

// given is the query of a form without its empty fields.
func given(r *http.Request) url.Values {
	q := r.URL.Query()
	maps.DeleteFunc(q, func(_ string, values []string) bool {
		return !slices.ContainsFunc(values, func(v string) bool { return v != "" })
	})
	return q
}

func words[T ~string](list []T) (out []string) {
	for _, v := range list {
		out = append(out, string(v))
	}
	return out
}

func (s *runPages) run(r *http.Request) (*view, error) {
	id, err := api.ParseRunID(r.PathValue("id"))
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "%w", err)
	}
	run, err := s.runtime(r.Context()).Run(r.Context(), id, r.URL.Query().Get("after"), tasksPage)
	if err != nil {
		return nil, err
	}
	return &view{"run", "Run " + string(run.RunID), struct {
		api.Run
		Counted []count
		Entries part[[]api.LogLine]
	}{run, counted(run.Counts), operatorPart(r.Context(), s.lines(api.LogQuery{Run: run.RunID, Last: eventsPage}))}}, nil
}

// count is how many tasks are in a state.
type count struct {
	State api.TaskState
	N     int
}

func counted(counts map[api.TaskState]int) (list []count) {
	for _, state := range api.TaskStates() {
		if n := counts[state]; n > 0 {
			list = append(list, count{state, n})
		}
	}
	return list
}

// lines reads entries of the log.
func (s source) lines(q api.LogQuery) func(context.Context) ([]api.LogLine, error) {
	return func(ctx context.Context) (list []api.LogLine, err error) {
		err = s.operator(ctx).Log(ctx, q, false, func(l api.LogLine) error {
			list = append(list, l)
			return nil
		})
		return list, err
	}
}
