package webpage

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/bailiwick-dev/bailiwick/api"
)

// event tells a page that an entry was written. Pages read what has changed from the
// service; an event says only what it is about.
type event struct {
	Kind     string `json:"kind"`
	Run      string `json:"run,omitempty"`
	Dispatch string `json:"dispatch,omitempty"`
}

// newest is the number of the newest entry as a page has it; empty if it cannot be read.
func (s *site) newest(r *http.Request) string {
	if !reads(r.Context()) {
		return ""
	}
	list, err := s.source().lines(api.LogQuery{Last: 1})(r.Context())
	if err != nil || len(list) == 0 {
		return ""
	}
	return strconv.FormatUint(list[0].Seq, 10)
}

// events streams the entries that are written from now on, or after the number in
// Last-Event-ID or the query, as server-sent events. The first event, of type newest, has
// the number of the newest entry. It ends with the connection.
func (s logPages) events(w http.ResponseWriter, r *http.Request) error {
	after := r.Header.Get("Last-Event-ID")
	if after == "" {
		after = r.URL.Query().Get("after")
	}
	q, newest := api.LogQuery{}, ""
	last, err := s.lines(api.LogQuery{Last: 1})(r.Context())
	if err != nil {
		return err
	}
	for _, l := range last {
		q.After, newest = &l.Seq, strconv.FormatUint(l.Seq, 10)
	}
	if after != "" {
		n, err := strconv.ParseUint(after, 10, 53)
		if err != nil {
			return api.Errorf(api.CodeInvalid, "after %.20q: want the number of an entry", after)
		}
		if q.After != nil && n < *q.After { // else the log is another one, which ends earlier
			q.After = &n
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w).Flush
	if _, err := fmt.Fprintf(w, "event: newest\ndata: %s\n\n", newest); err != nil || flush() != nil {
		return nil //nolint:nilerr // the browser has left
	}
	// Its error is that the browser has left, or that the service has: the browser connects
	// again, and learns then.
	_ = s.operator(r.Context()).Log(r.Context(), q, true, func(l api.LogLine) error {
		var e event
		if err := json.Unmarshal(l.Leaf, &e); err != nil {
			return err
		}
		b, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "id: %d\ndata: %s\n\n", l.Seq, b); err != nil {
			return err
		}
		return flush()
	})
	return nil
}
