package webpage

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// found is a result of a search.
type found struct{ What, Name, Path string }

// search finds what a text names exactly: an entry, a run, a dispatch, an artifact of
// the catalog, or entries about a principal or a tool.
func (s homePages) search(r *http.Request) (*view, error) {
	text := strings.TrimSpace(r.URL.Query().Get("q"))
	var all []found
	add := func(what, path string) { all = append(all, found{what, text, path}) }
	if n, err := strconv.ParseUint(strings.TrimPrefix(text, "#"), 10, 53); err == nil {
		add("entry", "/log/"+strconv.FormatUint(n, 10))
	}
	if id, err := api.ParseRunID(text); err == nil {
		if _, err := s.runtime(r.Context()).Run(r.Context(), id, "", 1); err == nil {
			add("run", "/runs/"+text)
		}
	}
	if id, err := api.ParseDispatchID(text); err == nil {
		if _, err := s.runtime(r.Context()).Describe(r.Context(), id, 0); err == nil {
			add("dispatch", "/dispatches/"+text)
		}
	}
	if name, err := api.ParseName(text); err == nil {
		for _, kind := range []api.Kind{api.KindSubagent, api.KindCapability, api.KindEnv, api.KindModel, api.KindSource, api.KindTarget, api.KindRole} {
			if p, err := s.runtime(r.Context()).Artifacts(r.Context(), kind, name, ""); err == nil && len(p.Items) > 0 {
				add(string(kind), "/catalog#"+string(kind)+"-"+text)
			}
		}
		add("runs with the subagent", "/runs?subagent="+text)
	}
	if _, err := api.ParsePrincipal(text); err == nil {
		add("entries of the principal", "/log?"+url.Values{"principal": {text}}.Encode())
		add("runs of the principal", "/runs?"+url.Values{"principal": {text}}.Encode())
	}
	if strings.Contains(text, "/") && api.CheckToolPattern(text) == nil {
		add("entries about the tool", "/log?"+url.Values{"tool": {text}}.Encode())
	}
	return &view{"search", "Search", all}, nil
}
