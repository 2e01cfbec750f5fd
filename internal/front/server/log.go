package server

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
)

// logQuery selects log entries.
type logQuery struct {
	audit.Query
	first  int // at most this many of the oldest; 0: all
	last   int // at most this many of the newest; 0: all
	follow bool
}

// readLogQuery reads the query strictly: an unknown, repeated or malformed
// parameter would otherwise select entries that the caller did not mean.
func readLogQuery(r *request) (logQuery, error) {
	q := queryErrors{}
	var out logQuery
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return out, malformed(api.CodeInvalid, "query: %w", err)
	}
	for name, list := range values {
		switch {
		case name == "kind":
			q.set("kind", out.readKinds(list))
		case len(list) != 1:
			q.set(name, errTwice)
		default:
			q.set(name, out.read(name, list[0]))
		}
	}
	if q.err == nil && out.first > 0 && out.last > 0 {
		return out, malformed(api.CodeInvalid, "first and last: want one of them")
	}
	return out, q.err
}

// queryErrors keeps the error of the first parameter by name, whatever the order
// of the map.
type queryErrors struct {
	name string
	err  error
}

func (q *queryErrors) set(name string, err error) {
	if err != nil && (q.err == nil || name < q.name) {
		q.name, q.err = name, malformed(api.CodeInvalid, "%.40s: %w", name, err)
	}
}

const (
	errTwice   = constError("given more than once")
	errUnknown = constError("unknown parameter")
	errTime    = constError("want a time as in 2026-11-21T14:22:11Z (RFC 3339), in the years 1970 to 9999")
	errBool    = constError("want true or false")
	errDecided = constError("want allow or deny")
)

type constError string

func (e constError) Error() string { return string(e) }

func (q *logQuery) read(name, text string) (err error) {
	if text == "" { // an empty shell variable must not select every entry
		return constError("must not be empty")
	}
	switch name {
	case "follow":
		if q.follow, err = strconv.ParseBool(text); err != nil {
			err = errBool
		}
	case "after":
		q.From, err = logNumber(text)
		q.From++
	case "before":
		if q.Before, err = logNumber(text); err == nil && q.Before == 0 {
			err = constError("want 1 or more")
		}
	case "first":
		q.first, err = boundedNumber(text, 1<<53)
	case "last":
		q.last, err = boundedNumber(text, api.MaxLogPage)
	case "run":
		q.Run, err = api.ParseRunID(text)
	case "task":
		q.Task, err = api.ParseGrownTaskID(text)
	case "dispatch":
		q.Dispatch, err = api.ParseDispatchID(text)
	case "role":
		q.Role, err = api.ParseName(text)
	case "tool":
		q.Tool, err = text, api.CheckToolPattern(text)
	case "principal":
		q.Principal, err = api.ParsePrincipal(text)
	case "decision":
		if q.Decision = record.Decided(text); q.Decision != record.Allow && q.Decision != record.Deny {
			err = errDecided
		}
	case "since":
		q.Since, err = logTime(text)
	case "until":
		q.Until, err = logTime(text)
	default:
		err = errUnknown
	}
	return err
}

func (q *logQuery) readKinds(list []string) error {
	for _, text := range list {
		k := record.Kind(text)
		switch {
		case !slices.Contains(record.Kinds(), k):
			return api.Errorf(api.CodeInvalid, "unknown kind %.80q: want one of %s", text, api.OneOf(record.Kinds()))
		case slices.Contains(q.Kinds, k):
			return errTwice
		}
		q.Kinds = append(q.Kinds, k)
	}
	return nil
}

func logNumber(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 53)
	if err != nil {
		return 0, constError("want the number of an entry")
	}
	return n, nil
}

func boundedNumber(text string, high int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > high {
		return 0, api.Errorf(api.CodeInvalid, "%.40q: want a number from 1 to %d", text, high)
	}
	return n, nil
}

func logTime(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.UTC().Year() < 1970 || t.UTC().Year() > 9999 {
		return time.Time{}, errTime
	}
	return t, nil
}

// entries streams log entries; with follow, new ones too.
func (c *logCalls) entries(w http.ResponseWriter, r *request) error {
	q, err := readLogQuery(r)
	if err == nil {
		err = (scopes{c.cfg}).resolve(r, &q.Run, &q.Dispatch)
	}
	if err != nil {
		return err
	}
	lines := newLines(w)
	if q.last > 0 {
		q.Limit, q.Newest = q.last, true
		if _, err = c.sendPage(r, lines, &q.Query); err != nil {
			return lines.end(err)
		}
		q.Limit, q.Newest = 0, false
	}
	if q.follow {
		return lines.end(c.watch(r, lines, q))
	}
	for left, n := q.first, 1; q.last == 0 && n > 0; left -= n {
		if q.Limit = api.MaxLogPage; q.first > 0 {
			if left == 0 {
				break
			}
			q.Limit = min(left, api.MaxLogPage)
		}
		if n, err = c.sendPage(r, lines, &q.Query); err != nil {
			return lines.end(err)
		}
	}
	return lines.end(nil)
}

// sendPage sends the entries that q selects, moves q behind them and returns how
// many there were.
func (c *logCalls) sendPage(r *request, lines *lines, q *audit.Query) (int, error) {
	list, err := c.cfg.Ledger.List(r.Context(), *q)
	if err != nil {
		return 0, err
	}
	for i := range list {
		if err := lines.put(list[i].Line()); err != nil {
			return 0, err
		}
		q.From = list[i].Seq + 1
	}
	if len(list) == 0 {
		return 0, nil
	}
	return len(list), http.NewResponseController(lines.w).Flush()
}

func (c *logCalls) watch(r *request, lines *lines, q logQuery) error {
	// The header at once tells the follower that the connection works.
	lines.begin()
	if err := http.NewResponseController(lines.w).Flush(); err != nil {
		return err
	}
	sent := 0
	for entry, err := range c.cfg.Ledger.Watch(r.Context(), q.Query) {
		if err != nil {
			return err
		}
		if err := lines.send(entry.Line()); err != nil {
			return err
		}
		if sent++; sent == q.first {
			return nil
		}
	}
	return nil
}
