package webpage

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/webpage/graph"
)

// viewers is what the graph, the log and the patch keep between requests.
type viewers struct {
	layouts graph.Cache
}

// viewerRoutes is every path of the graph, the log and the patch.
func (s *site) viewerRoutes() []route {
	return []route{
		{pattern: "GET /runs/{id}/graph", page: s.graph},
	}
}

// number reads a number of a query. Absent it is otherwise.
func number(q url.Values, name string, otherwise, least, most int) (int, error) {
	text := q.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, api.Errorf(api.CodeInvalid, "%s %.20q: want a number from %d to %d", name, text, least, most)
	}
	return n, nil
}

// link is the address of a request with other members in its query; an empty value
// removes one.
func linkWith(r *http.Request, members ...string) string {
	q := given(r)
	for i := 0; i+1 < len(members); i += 2 {
		if q.Del(members[i]); members[i+1] != "" {
			q.Set(members[i], members[i+1])
		}
	}
	if len(q) == 0 {
		return r.URL.Path
	}
	return r.URL.Path + "?" + q.Encode()
}
