package cli

import (
	"net/http"
	"strings"
	"testing"
)

// A name that the service does not know, or does not show the caller, suggests the
// nearest of the names that it lists for the caller, and no other.
//
// proves R-B6
func TestUnknownNamesSuggestOnesThatTheCallerSees(t *testing.T) {
	const first, second = "d-06f7b8c0xq4ysz8q2n1v5k3m", "d-06f7b8c0zzzzzzzz2n1v5k3m"
	lists := map[string]string{
		"/kind-env":        `{"items":[{"name":"staging","kind":"env"}]}`,
		"/kind-role":       `{"items":[{"name":"quality","kind":"role"}]}`,
		"/kind-target":     `{"items":[{"name":"local","kind":"target"}]}`,
		"/kind-dispatches": `[{"dispatchId":"` + first + `","state":"finished"},{"dispatchId":"` + second + `","state":"finished"}]`,
	}
	socket := serve(t, func(w http.ResponseWriter, r *http.Request) {
		kind := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		switch list := lists["/kind-"+kind]; {
		case r.Method == http.MethodGet && list != "" && r.URL.Query().Get("name") == "":
			_, _ = w.Write([]byte(list))
		case strings.HasSuffix(r.URL.Path, "/who"):
			_, _ = w.Write([]byte(`{"principal":"local:root"}`))
		case strings.Contains(r.URL.Path, "/catalog/"):
			_, _ = w.Write([]byte(`{"items":[]}`))
		default:
			name := r.URL.Path + r.URL.RawQuery
			for _, known := range []string{"lokal", "qualty", "other", "d-06f7b8c0xq4ysz8q2n1v5k3n", "d-06f7b8c0xq5"} {
				if strings.Contains(name, known) {
					name = known
				}
			}
			if r.Method == http.MethodPost {
				name = "lokal"
			}
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"code":"not_found","message":"\"` + name + `\" not found","hint":"see: the list"}`))
		}
	})
	for line, want := range map[string]string{
		"env show stagign":                         "did you mean: staging; ",
		"env show production":                      "", // whatever else there is
		"role show qualty":                         "did you mean: quality; ",
		"stop --target lokal":                      "did you mean: local; ",
		"dispatch show d-06f7b8c0xq4ysz8q2n1v5k3n": "did you mean: " + first + "; ",
		"dispatch show d-06f7b8c0xq5":              "did you mean: " + first + "; ",
		"dispatch show other":                      "",
	} {
		status, _, errs := at(t, socket, line)
		_, near, _ := strings.Cut(errs, "did you mean")
		if status != 1 || want == "" && near != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: status %d, %s", line, status, errs)
		}
	}
}
