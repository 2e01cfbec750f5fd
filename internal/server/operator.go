package server

import (
	"net/http"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/audit"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

func (s *Server) status(w http.ResponseWriter, r *http.Request, _ caller) error {
	st, err := s.cfg.Status(r.Context())
	if err != nil {
		return err
	}
	st.OneShot = s.gate.oneShot(s.cfg.Dispatch.Running() > 0)
	for _, stop := range s.cfg.Registry.Stops() {
		if stop.LiftedAt == nil {
			st.Stops = append(st.Stops, stop.ID)
		}
	}
	return answer(w, http.StatusOK, st)
}

func (s *Server) stop(w http.ResponseWriter, _ *http.Request, _ caller) error {
	s.cfg.Stop()
	return answer(w, http.StatusAccepted, struct{}{})
}

// logQuery reads which entries are wanted.
func logQuery(r *http.Request) (q audit.Query, last int, err error) {
	v := r.URL.Query()
	if v.Has("after") {
		n, err := number(r, "after", 0, 0, 1<<53)
		if err != nil {
			return q, 0, err
		}
		q.From = uint64(n) + 1 //nolint:gosec // G115: number checks the range
	}
	n, err := number(r, "last", 0, 0, 1000)
	if err != nil {
		return q, 0, err
	}
	if text := v.Get("run"); text != "" {
		if q.Run, err = api.ParseRunID(text); err != nil {
			return q, 0, malformed(api.CodeInvalid, "%w", err)
		}
	}
	if text := v.Get("dispatch"); text != "" {
		if q.Dispatch, err = api.ParseDispatchID(text); err != nil {
			return q, 0, malformed(api.CodeInvalid, "%w", err)
		}
	}
	if text := v.Get("principal"); text != "" {
		if q.Principal, err = api.ParsePrincipal(text); err != nil {
			return q, 0, malformed(api.CodeInvalid, "%w", err)
		}
	}
	if text := v.Get("kind"); text != "" {
		for _, k := range record.Kinds() {
			if string(k) == text {
				q.Kind = k
			}
		}
		if q.Kind == "" {
			return q, 0, malformed(api.CodeInvalid, "kind %q: want one of %v", text, record.Kinds())
		}
	}
	return q, int(n), nil
}

// entries streams the log: what is there, and with follow what comes.
func (s *Server) entries(w http.ResponseWriter, r *http.Request, _ caller) error {
	q, last, err := logQuery(r)
	if err != nil {
		return err
	}
	follow, err := flag(r, "follow")
	if err != nil {
		return err
	}
	lines := newLines(w)
	if last > 0 {
		q.Limit, q.Newest = last, true
		if q, err = s.sendPage(r, lines, q); err != nil {
			return lines.end(err)
		}
	}
	if follow {
		return lines.end(s.watch(r, lines, q))
	}
	for last == 0 {
		before := q.From
		if q, err = s.sendPage(r, lines, q); err != nil || q.From == before {
			return lines.end(err)
		}
	}
	return lines.end(nil)
}

// sendPage sends the entries that q chooses and returns the query for those
// behind them.
func (s *Server) sendPage(r *http.Request, lines *lines, q audit.Query) (audit.Query, error) {
	list, err := s.cfg.Ledger.List(r.Context(), q)
	if err != nil {
		return q, err
	}
	for i := range list {
		if err := lines.send(list[i].Line()); err != nil {
			return q, err
		}
		q.From = list[i].Seq + 1
	}
	q.Limit, q.Newest = 0, false
	return q, nil
}

func (s *Server) watch(r *http.Request, lines *lines, q audit.Query) error {
	// What is sent at once keeps a follower from taking silence for a broken
	// connection.
	lines.begin()
	if err := http.NewResponseController(lines.w).Flush(); err != nil {
		return err
	}
	for c, err := range s.cfg.Ledger.Watch(r.Context(), q) {
		if err != nil {
			return err
		}
		if err := lines.send(c.Line()); err != nil {
			return err
		}
	}
	return nil
}
