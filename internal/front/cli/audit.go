package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// auditVerbs are the verbs about the log and the evidence.
type auditVerbs struct{ *tree }

func (t *auditVerbs) noun() *cobra.Command {
	return console.Noun("audit", "Read the log of all decisions, and export and verify evidence",
		console.Group{Title: "Read:", Commands: []*cobra.Command{t.listCommand(), t.showCommand(), t.watchCommand()}},
		console.Group{Title: "Prove:", Commands: []*cobra.Command{t.exportCommand(), t.verifyCommand(), t.trustCommand(), t.keyCommand(), t.proveCommand(), t.tilesCommand()}})
}

const timesHelp = `A time is an instant such as 2026-11-21T14:22:11Z, a day such as 2026-11-21 in UTC, or an
age such as 90m, 2h or 7d. --since includes its time; --until excludes it, but includes the
whole of a day.`

func (t *auditVerbs) listCommand() *cobra.Command {
	var q api.LogQuery
	cmd := &cobra.Command{
		Use: "list", Short: "List log entries in plain words, oldest first", Args: cobra.NoArgs,
		Long: "List log entries in plain words, one per line, oldest first. An entry is shown if all\nfilters match it.\n\n" + timesHelp,
		Example: console.Examples("bailiwick audit list --last 20", "bailiwick audit list --decision deny --since 24h", "bailiwick audit list --role quality --tool 'warehouse/*'", "bailiwick audit list --run nightly-7 --kind task.failed --kind task.denied",
			"bailiwick audit list --principal agent:claude --since 2026-11-20 --until 2026-11-21 -o jsonl"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.Page(func() error { return t.readLog(cmd.Context(), q, false) })
		},
	}
	t.addFilters(cmd, &q)
	cmd.Flags().Func("first", "only the `number` oldest entries", into(&q.First, parseCount(math.MaxInt)))
	cmd.MarkFlagsMutuallyExclusive("first", "last")
	return cmd
}

func (t *auditVerbs) watchCommand() *cobra.Command {
	var q api.LogQuery
	cmd := &cobra.Command{
		Use: "watch", Short: "Print log entries as they are written", Args: cobra.NoArgs,
		Long:    "Print log entries as audit list does, and continue with new ones until it is interrupted,\neven if the service restarts. It starts with the oldest entry unless --after, --last or\n--since is given.\n\n" + timesHelp,
		Example: console.Examples("bailiwick audit watch --last 10", "bailiwick audit watch --since 1m --decision deny"),
		RunE:    func(cmd *cobra.Command, _ []string) error { return t.readLog(cmd.Context(), q, true) },
	}
	t.addFilters(cmd, &q)
	return cmd
}

func (t *auditVerbs) readLog(ctx context.Context, q api.LogQuery, follow bool) error {
	return t.withOperator(func(o client.Operator) error { return o.Log(ctx, q, follow, t.printLogLine) })
}

// addFilters adds the flags that select log entries. They are parsed into q. An
// empty value, as from an unset variable, is an error: it must not mean every
// entry.
func (t *auditVerbs) addFilters(cmd *cobra.Command, q *api.LogQuery) {
	flags := cmd.Flags()
	flags.Func("after", "only entries after this `number`", into(&q.After, parseEntry))
	flags.Func("before", "only entries before this `number`", into(&q.Before, parseEntry))
	flags.Func("last", fmt.Sprintf("only the `number` newest entries, at most %d", api.MaxLogPage), into(&q.Last, parseCount(api.MaxLogPage)))
	flags.Func("principal", "only entries of this `principal`, such as agent:claude", into(&q.Principal, api.ParsePrincipal))
	flags.Func("run", "only entries of this `run`, its tasks and their dispatches", into(&q.Run, api.ParseRunID))
	flags.Func("task", "only entries of tasks of this `name`, and their dispatches", into(&q.Task, api.ParseGrownTaskID))
	flags.Func("dispatch", "only entries of this dispatch, by its `id`", into(&q.Dispatch, api.ParseDispatchID))
	flags.Func("role", "only entries of dispatches in this `role`", into(&q.Role, api.ParseName))
	flags.Func("tool", "only entries about this `tool`, such as warehouse/query; * stands for any text", into(&q.Tool, func(s string) (string, error) { return s, api.CheckToolPattern(s) }))
	flags.StringArrayVar(&q.Kinds, "kind", nil, "only entries of this `kind`, such as dispatch.denied; may be repeated")
	flags.Func("decision", "only entries with this `decision`: allow or deny", into(&q.Decision, parseDecision))
	flags.Func("since", "only entries since this `time`", into(&q.Since, func(s string) (time.Time, error) { return api.ParseTime(s, t.Now(), 0) }))
	flags.Func("until", "only entries before this `time`", into(&q.Until, func(s string) (time.Time, error) { return api.ParseTime(s, t.Now(), 1) }))
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
