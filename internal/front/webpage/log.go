package webpage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// entriesPage is how many entries a page of the log has unless first or last is given.
const entriesPage = 100

// parseLogQuery reads the filters of audit list from a form. An absent one selects all.
func parseLogQuery(q url.Values, now time.Time) (out api.LogQuery, err error) {
	keep := func(name string, e error) {
		if e != nil && err == nil {
			err = api.Errorf(api.CodeInvalid, "%s: %w", name, e)
		}
	}
	number := func(name string, most uint64) (n uint64, given bool) {
		text := q.Get(name)
		if text == "" {
			return 0, false
		}
		n, e := strconv.ParseUint(text, 10, 64)
		if e != nil || n > most {
			keep(name, errors.New("want a number up to "+strconv.FormatUint(most, 10)))
		}
		return n, true
	}
	at := func(name string, days int) (t time.Time) {
		if text := q.Get(name); text != "" {
			var e error
			t, e = api.ParseTime(text, now, days)
			keep(name, e)
		}
		return t
	}
	const maxEntry = 1 << 53
	if n, ok := number("after", maxEntry); ok {
		out.After = &n
	}
	if n, ok := number("before", maxEntry); ok {
		out.Before = &n
	}
	first, _ := number("first", api.MaxLogPage)
	last, _ := number("last", api.MaxLogPage)
	if first > 0 && last > 0 {
		keep("first", errors.New("want first or last, not both"))
	}
	out.First, out.Last = int(first), int(last) //nolint:gosec // G115: bounded
	out.Run = filter(q, "run", api.ParseRunID, keep)
	out.Task = filter(q, "task", api.ParseGrownTaskID, keep)
	out.Dispatch = filter(q, "dispatch", api.ParseDispatchID, keep)
	out.Role = filter(q, "role", api.ParseName, keep)
	out.Tool = filter(q, "tool", func(s string) (string, error) { return s, api.CheckToolPattern(s) }, keep)
	out.Principal = filter(q, "principal", api.ParsePrincipal, keep)
	out.Decision = filter(q, "decision", parseDecision, keep)
	out.Kinds = q["kind"]
	out.Since, out.Until = at("since", 0), at("until", 1)
	return out, err
}

func parseDecision(s string) (string, error) {
	if s != "allow" && s != "deny" {
		return "", errors.New("want allow or deny")
	}
	return s, nil
}

// filter parses a field that may be absent.
func filter[T ~string](q url.Values, name string, parse func(string) (T, error), keep func(string, error)) (v T) {
	if text := q.Get(name); text != "" {
		var err error
		v, err = parse(text)
		keep(name, err)
	}
	return v
}

// logPages shows entries of the log and what they name.
type logPages struct{ source }

// log lists entries, the newest page unless the filters say otherwise.
func (s logPages) log(r *http.Request) (*view, error) {
	given := given(r)
	q, err := parseLogQuery(given, s.now())
	if err != nil {
		return nil, err
	}
	if q.First == 0 && q.Last == 0 {
		if q.After != nil {
			q.First = entriesPage
		} else {
			q.Last = entriesPage
		}
	}
	list, err := s.lines(q)(r.Context())
	if err != nil {
		return nil, err
	}
	var older, newer string
	if len(list) > 0 {
		if list[0].Seq > 0 {
			older = turn(given, "before", list[0].Seq)
		}
		newer = turn(given, "after", list[len(list)-1].Seq)
	}
	return &view{"log", "Log", struct {
		Filter       url.Values
		Fields       []string
		Lines        part[[]api.LogLine]
		Older, Newer string
	}{given, []string{"principal", "run", "task", "dispatch", "role", "tool", "kind", "since", "until"}, part[[]api.LogLine]{Value: list}, older, newer}}, nil
}

// turn is the address of the page of the log before or after an entry.
func turn(given url.Values, way string, entry uint64) string {
	q := url.Values{}
	for name, values := range given {
		if name != "before" && name != "after" {
			q[name] = values
		}
	}
	q.Set(way, strconv.FormatUint(entry, 10))
	return "/log?" + q.Encode()
}

// proofTime bounds the wait for a checkpoint that covers an entry.
const proofTime = 5 * time.Second

// entry shows one entry with what proves its place in the log, as the service gives it.
func (s logPages) entry(r *http.Request) (*view, error) {
	n, err := pathNumber(r, "seq", "entry", 0)
	if err != nil {
		return nil, err
	}
	q := api.LogQuery{First: 1}
	if n > 0 {
		before := n - 1
		q.After = &before
	}
	list, err := s.lines(q)(r.Context())
	if err == nil && (len(list) != 1 || list[0].Seq != n) {
		err = api.Errorf(api.CodeNotFound, "the log has no entry #%d", n)
	}
	if err != nil {
		return nil, err
	}
	var about struct {
		Kind     string         `json:"kind"`
		Run      api.RunID      `json:"run"`
		Dispatch api.DispatchID `json:"dispatch"`
		Detail   struct {
			Number uint64 `json:"number"`
		} `json:"detail"`
	}
	_ = json.Unmarshal(list[0].Leaf, &about) // an entry of a hostile request has ids of no form, and no link
	// An entry of either kind has the number of what it is about; any other has no link.
	number := map[string]uint64{about.Kind: about.Detail.Number}
	return &view{"entry", "Entry #" + strconv.FormatUint(n, 10), struct {
		api.LogLine
		Entry    string
		Run      api.RunID
		Dispatch api.DispatchID
		Revision uint64 // of the catalog; 0: none
		Decision uint64 // number of the operator record that it is about; 0: none
		Proof    part[string]
		Status   part[api.ServiceStatus]
	}{
		list[0], string(list[0].Leaf), about.Run, about.Dispatch, number["catalog.revision"], number["operator.recorded"],
		partOf(r.Context(), func(ctx context.Context) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, proofTime)
			defer cancel()
			var b bytes.Buffer
			err := s.operator(r.Context()).Proof(ctx, n, &b)
			return b.String(), err
		}),
		partOf(r.Context(), s.operator(r.Context()).Status),
	}}, nil
}
