package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// auditVerbs are the verbs about the log and the evidence.
type auditVerbs struct{ *tree }

func (t *auditVerbs) listCommand(v *console.Verb) {
	var q api.LogQuery
	v.Do(func(ctx context.Context, _ []string) error {
		return t.Page(func() error { return t.readLog(ctx, q, false) })
	})
	t.addFilters(v, &q)
	v.Flag(into(&q.First, parseCount(math.MaxInt)), "first")
	v.MarkFlagsMutuallyExclusive("first", "last")
}

func (t *auditVerbs) watchCommand(v *console.Verb) {
	var q api.LogQuery
	v.Do(func(ctx context.Context, _ []string) error { return t.readLog(ctx, q, true) })
	t.addFilters(v, &q)
}

func (t *auditVerbs) readLog(ctx context.Context, q api.LogQuery, follow bool) error {
	return t.withOperator(func(o client.Operator) error { return o.Log(ctx, q, follow, t.printLogLine) })
}

// addFilters adds the flags that select log entries. They are parsed into q. An
// empty value, as from an unset variable, is an error: it must not mean every
// entry.
func (t *auditVerbs) addFilters(v *console.Verb, q *api.LogQuery) {
	v.Flag(into(&q.After, parseEntry), "after")
	v.Flag(into(&q.Before, parseEntry), "before")
	v.Flag(into(&q.Last, parseCount(api.MaxLogPage)), "last")
	v.Flag(into(&q.Principal, api.ParsePrincipal), "principal")
	v.Flag(into(&q.Run, api.ParseRunID), "run")
	v.Flag(into(&q.Task, api.ParseGrownTaskID), "task")
	v.Flag(into(&q.Dispatch, api.ParseDispatchID), "dispatch")
	v.Flag(into(&q.Role, api.ParseName), "role")
	v.Flag(into(&q.Tool, func(s string) (string, error) { return s, api.CheckToolPattern(s) }), "tool")
	v.Flag(&q.Kinds, "kind")
	v.Flag(into(&q.Decision, parseDecision), "decision")
	v.Flag(into(&q.Since, func(s string) (time.Time, error) { return api.ParseTime(s, t.Now(), 0) }), "since")
	v.Flag(into(&q.Until, func(s string) (time.Time, error) { return api.ParseTime(s, t.Now(), 1) }), "until")
}

// into parses the value of a flag into to.
func into[T any](to *T, parse func(string) (T, error)) func(string) error {
	return func(s string) error {
		v, err := parse(s)
		if err == nil {
			*to = v
		}
		return err
	}
}

func parseEntry(s string) (*uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return nil, errors.New("want the number of an entry")
	}
	return &n, nil
}

func parseCount(most int) func(string) (int, error) {
	return func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > most {
			return 0, fmt.Errorf("want a number from 1 to %d", most)
		}
		return n, nil
	}
}

func parseDecision(s string) (string, error) {
	if s != "allow" && s != "deny" {
		return "", errors.New("want allow or deny")
	}
	return s, nil
}

func (t *auditVerbs) printLogLine(l api.LogLine) error {
	var err error
	switch t.Format {
	case "text":
		_, err = fmt.Fprintln(t.Stdout, t.EntryLine(l.Text))
	case "name":
		_, err = fmt.Fprintln(t.Stdout, l.Seq)
	default:
		_, err = fmt.Fprintf(t.Stdout, "{\"seq\":%d,\"entry\":%s}\n", l.Seq, l.Leaf)
	}
	return err
}
