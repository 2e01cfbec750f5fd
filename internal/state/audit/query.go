package audit

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Query selects the entries that match all of its fields. The zero value selects
// the whole log, a page at a time.
type Query struct {
	From   uint64 // the first number
	Before uint64 // the number after the last; 0: no limit
	Limit  int    // 0 means 100; at most 1,000
	Newest bool   // the newest Limit matches, still in the order of the log

	Run       api.RunID  // the run, its tasks and their dispatches
	Task      api.TaskID // tasks of this name, and their dispatches
	Dispatch  api.DispatchID
	Role      api.Name // dispatches in this role
	Tool      string   // calls of this tool; * stands for any text
	Principal api.Principal
	Kind      record.Kind
	Kinds     []record.Kind // one of these
	Decision  record.Decided

	// Since (inclusive) and Until (exclusive) bound the time of an entry, in
	// microseconds. Zero: no bound.
	Since, Until time.Time
}

const (
	defaultLimit = 100
	maxLimit     = 1000
)

func (q *Query) limit() int {
	if q.Limit <= 0 {
		return defaultLimit
	}
	return min(q.Limit, maxLimit)
}

// filtered reports whether there may be gaps between the matches.
func (q *Query) filtered() bool {
	_, some := q.kinds()
	return some || len(q.filters()) > 0 || q.Tool != "" || q.Before != 0 || !q.Since.IsZero() || !q.Until.IsZero()
}

// kinds returns the kinds that match. some is false if all do.
func (q *Query) kinds() (list []record.Kind, some bool) {
	if q.Kind == "" && q.Kinds == nil && q.Decision == "" {
		return nil, false
	}
	for _, k := range record.Kinds() {
		if (q.Kind == "" || k == q.Kind) && (q.Kinds == nil || slices.Contains(q.Kinds, k)) && (q.Decision == "" || k.Decided() == q.Decision) {
			list = append(list, k)
		}
	}
	return list, true
}

// filter requires a column to have one of some values, or to match one pattern.
type filter struct {
	column, index string // index is empty for a pattern
	values        []any
}

func (f filter) sql() string {
	if f.index == "" {
		return f.column + " GLOB ?"
	}
	if len(f.values) == 1 {
		return f.column + " = ?"
	}
	return f.column + " IN (?" + strings.Repeat(", ?", len(f.values)-1) + ")"
}

// filters returns the filters of q other than its times and a pattern of tools, those
// that are likely to match least first.
func (q *Query) filters() []filter {
	var list []filter
	tool := q.Tool
	if strings.Contains(tool, "*") {
		tool = "" // see toolFilter
	}
	for _, f := range [...]struct{ column, value string }{
		{"dispatch", string(q.Dispatch)},
		{"task", string(q.Task)},
		{"run", string(q.Run)},
		{"tool", tool},
		{"role", string(q.Role)},
		{"principal", string(q.Principal)},
	} {
		if f.value != "" {
			list = append(list, filter{f.column, "audit_entry_" + f.column, []any{f.value}})
		}
	}
	if kinds, some := q.kinds(); some {
		f := filter{column: "kind", index: "audit_entry_kind"}
		for _, k := range kinds {
			f.values = append(f.values, string(k))
		}
		list = append(list, f)
	}
	return list
}

// span is the entries from..to-1.
type span struct{ from, to uint64 }

// spans returns the ranges of a log of head entries that can contain matches of
// q, by their number and time.
func (q *Query) spans(r store.Reader, head uint64) ([]span, error) {
	whole := span{q.From, head}
	if q.Before != 0 {
		whole.to = min(whole.to, q.Before)
	}
	if q.Since.IsZero() && q.Until.IsZero() {
		return []span{whole}, nil
	}
	low, high := q.between()
	var list []span
	add := func(s span) {
		s.from, s.to = max(s.from, whole.from), min(s.to, whole.to)
		switch last := len(list) - 1; {
		case s.from >= s.to:
		case last >= 0 && list[last].to == s.from:
			list[last].to = s.to
		default:
			list = append(list, s)
		}
	}
	var next int64
	err := r.Each("SELECT span FROM audit_span WHERE high >= ? AND low < ? ORDER BY span", store.Args{low, high}, func(scan store.Scan) error {
		var n int64
		err := scan(&n)
		add(span{uint64(n) * spanLength, uint64(n+1) * spanLength}) //nolint:gosec // G115: seq is never negative
		return err
	})
	if err == nil {
		err = r.Get("SELECT coalesce(max(span) + 1, 0) FROM audit_span", nil, &next)
	}
	add(span{uint64(next) * spanLength, head}) //nolint:gosec // G115: likewise
	return list, err
}

// between returns the times from..to-1 that match, in microseconds.
func (q *Query) between() (from, to int64) {
	from, to = -1<<63, 1<<63-1
	if !q.Since.IsZero() {
		from = q.Since.UnixMicro()
	}
	if !q.Until.IsZero() {
		to = q.Until.UnixMicro()
	}
	return from, to
}

// probe is how many entries of each index drive counts.
const probe = 1000

// drive puts the filter first that matches least within s. The query scans its
// index and applies the others to each entry.
func drive(r store.Reader, list []filter, s span) error {
	if len(list) < 2 {
		return nil
	}
	best, least := 0, int64(probe)
	for i, f := range list {
		if f.index == "" {
			continue
		}
		args := append(slices.Clone(f.values), int64(s.from), int64(s.to), probe) //nolint:gosec // G115: see append
		var n int64
		err := r.Get("SELECT count(*) FROM (SELECT 1 FROM audit_entry INDEXED BY "+f.index+" WHERE "+f.sql()+" AND seq >= ? AND seq < ? LIMIT ?)", args, &n)
		if err != nil {
			return err
		}
		if n < least {
			best, least = i, n
		}
	}
	list[0], list[best] = list[best], list[0]
	return nil
}

// sql returns the statement that scans the index of the first filter, with one
// part for each of its values. The text depends only on the choice of filters.
func (q *Query) sql(list []filter, s span, limit int) (string, store.Args) {
	where, order := " WHERE seq >= ? AND seq < ?", " ORDER BY seq LIMIT ?"
	args := store.Args{int64(s.from), int64(s.to)} //nolint:gosec // G115: see append
	if q.Newest {
		order = " ORDER BY seq DESC LIMIT ?"
	}
	if !q.Since.IsZero() || !q.Until.IsZero() {
		from, to := q.between()
		where, args = where+" AND at >= ? AND at < ?", append(args, from, to)
	}
	if len(list) > 0 && list[0].index == "" { // a pattern alone: every entry is looked at
		where, args, list = where+" AND "+list[0].sql(), append(args, list[0].values...), nil
	}
	if len(list) == 0 {
		return "SELECT " + wholeRow + " FROM audit_entry" + where + order, append(args, limit)
	}
	for _, f := range list[1:] {
		where, args = where+" AND "+f.sql(), append(args, f.values...)
	}
	first := list[0]
	part := "SELECT " + wholeRow + " FROM audit_entry INDEXED BY " + first.index + where + " AND " + first.column + " = ?"
	text, all := strings.Repeat(part+" UNION ALL ", len(first.values)-1)+part, store.Args{}
	for _, v := range first.values {
		all = append(append(all, args...), v)
	}
	return text + order, append(all, limit)
}

// page returns the entries that match q, and the length of the log that it read.
func (l *Ledger) page(ctx context.Context, q Query) (list []Committed, head uint64, err error) {
	err = l.store.Read(ctx, func(v *store.View) error {
		if head, err = length(v); err != nil {
			return err
		}
		list, err = q.run(v, head)
		return err
	})
	return list, head, err
}

func (q *Query) run(r store.Reader, head uint64) ([]Committed, error) {
	spans, err := q.spans(r, head)
	if err != nil {
		return nil, err
	}
	filters := q.filters()
	if strings.Contains(q.Tool, "*") {
		f, err := q.toolFilter(r)
		if err != nil {
			return nil, err
		}
		filters = append(filters, f)
	}
	for _, f := range filters {
		if len(f.values) == 0 { // no kind is of that decision
			return nil, nil
		}
	}
	if q.Newest {
		slices.Reverse(spans)
	}
	var list []Committed
	for _, s := range spans {
		if len(list) == q.limit() {
			break
		}
		if err := drive(r, filters, s); err != nil {
			return nil, err
		}
		text, args := q.sql(filters, s, q.limit()-len(list))
		err := r.Each(text, args, func(scan store.Scan) error {
			c, err := read(scan, true)
			list = append(list, c)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if q.Newest {
		slices.Reverse(list)
	}
	return list, nil
}
