package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
)

func (t *tree) auditCommand() *cobra.Command {
	cmd := group("audit", "Read the log of every decision, and prove what is in it")
	cmd.AddCommand(t.auditListCommand(), t.auditShowCommand(), t.auditWatchCommand(), t.auditProveCommand(), t.auditTilesCommand(), t.auditTrustCommand(), t.auditExportCommand(), t.auditVerifyCommand())
	return cmd
}

const auditTimes = `Times are those that entries bear, UTC unless they say otherwise: an instant such
as 2026-11-21T14:22:11Z, a day such as 2026-11-21, or how long ago, such as 90m,
2h or 7d. --since takes in what is of that moment; --until leaves it out, but
takes in all of a day.`

func (t *tree) auditListCommand() *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{
		Use: "list", Short: "Print entries of the log in plain words", Args: cobra.NoArgs,
		Long: "Print entries of the log in plain words, one a line, the oldest first. Filters are\njoined: an entry is shown that all of them are true of.\n\n" + auditTimes,
		Example: `  bailiwick audit list --last 20
  bailiwick audit list --decision deny --since 24h
  bailiwick audit list --run RUN --kind task.failed --kind task.denied
  bailiwick audit list --principal agent:claude --since 2026-11-20 --until 2026-11-21 -o jsonl`,
		RunE: func(cmd *cobra.Command, _ []string) error { return t.readLog(cmd, &f, false) },
	}
	f.add(cmd)
	cmd.Flags().IntVar(&f.first, "first", 0, "only the oldest so many")
	cmd.MarkFlagsMutuallyExclusive("first", "last")
	return cmd
}

func (t *tree) auditWatchCommand() *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{
		Use: "watch", Short: "Print entries as they are made", Args: cobra.NoArgs,
		Long: "Print entries as audit list does, and go on with those that follow until it is\ninterrupted, also when the service ends and another takes its place. It begins\nwith the oldest unless --after, --last or --since says otherwise.\n\n" + auditTimes,
		Example: `  bailiwick audit watch --last 10
  bailiwick audit watch --since 1m --decision deny`,
		RunE: func(cmd *cobra.Command, _ []string) error { return t.readLog(cmd, &f, true) },
	}
	f.add(cmd)
	return cmd
}

func (t *tree) readLog(cmd *cobra.Command, f *logFlags, follow bool) error {
	q, err := f.query(cmd, t.Now())
	if err != nil {
		return err
	}
	c := t.conn()
	defer c.Close()
	return c.Operator().Log(cmd.Context(), q, follow, t.printLogLine)
}

// logFlags are what entries are chosen by, as they were typed.
type logFlags struct {
	after, before                                                      int64
	first, last                                                        int
	run, task, dispatch, role, tool, principal, decision, since, until string
	kinds                                                              []string
}

func (f *logFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Int64Var(&f.after, "after", 0, "only entries behind this number")
	flags.Int64Var(&f.before, "before", 0, "only entries before this number")
	flags.IntVar(&f.last, "last", 0, fmt.Sprintf("only the newest so many, at most %d", api.MaxLogPage))
	flags.StringVar(&f.principal, "principal", "", "only entries of this principal, such as agent:claude")
	flags.StringVar(&f.run, "run", "", "only entries of this run, its tasks and their dispatches")
	flags.StringVar(&f.task, "task", "", "only entries of tasks of this name, and their dispatches")
	flags.StringVar(&f.dispatch, "dispatch", "", "only entries of this dispatch")
	flags.StringVar(&f.role, "role", "", "only entries of dispatches in this role")
	flags.StringVar(&f.tool, "tool", "", "only entries of calls of this tool")
	flags.StringArrayVar(&f.kinds, "kind", nil, "only entries of this kind, such as dispatch.denied; may be said several times")
	flags.StringVar(&f.decision, "decision", "", "only entries that allow, or deny")
	flags.StringVar(&f.since, "since", "", "only entries from this time on")
	flags.StringVar(&f.until, "until", "", "only entries before this time")
}

// query refuses what is none: an empty variable in the place of a value must
// not mean every entry.
func (f *logFlags) query(cmd *cobra.Command, now time.Time) (api.LogQuery, error) {
	q := api.LogQuery{First: f.first, Last: f.last, Kinds: f.kinds, Decision: f.decision}
	var p parser
	said := func(name string, read func()) {
		if cmd.Flags().Changed(name) {
			read()
		}
	}
	number := func(name string, n *int64, to **uint64) {
		said(name, func() {
			if *n < 0 {
				p.fail(fmt.Errorf("--%s %d: want the number of an entry", name, *n))
			}
			v := uint64(max(*n, 0))
			*to = &v
		})
	}
	number("after", &f.after, &q.After)
	number("before", &f.before, &q.Before)
	for name, n := range map[string]int{"first": f.first, "last": f.last} {
		said(name, func() {
			if n < 1 || name == "last" && n > api.MaxLogPage {
				p.fail(fmt.Errorf("--%s %d: want a number from 1 on, and of --last at most %d", name, n, api.MaxLogPage))
			}
		})
	}
	said("run", func() { q.Run = p.run(f.run) })
	said("task", func() {
		task, err := api.ParseTaskID(f.task)
		p.fail(err)
		q.Task = task
	})
	said("dispatch", func() { q.Dispatch = p.dispatch(f.dispatch) })
	said("principal", func() { q.Principal = p.principal(f.principal) })
	said("role", func() {
		role, err := api.ParseName(f.role)
		p.fail(err)
		q.Role = role
	})
	said("tool", func() { q.Tool = f.tool; p.fail(api.CheckTool(f.tool)) })
	said("decision", func() {
		if f.decision != "allow" && f.decision != "deny" {
			p.fail(fmt.Errorf("--decision %q: want allow or deny", f.decision))
		}
	})
	said("since", func() { q.Since = p.moment("since", f.since, now) })
	said("until", func() { q.Until = p.moment("until", f.until, now) })
	return q, p.err
}

// moment reads an instant, a day, or how long ago something was.
func (p *parser) moment(flag, text string, now time.Time) time.Time {
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		if flag == "until" {
			return day.AddDate(0, 0, 1)
		}
		return day
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago)
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.Add(-time.Duration(n) * 24 * time.Hour)
		}
	}
	p.fail(fmt.Errorf("--%s %q: want a time such as 2026-11-21T14:22:11Z, a day such as 2026-11-21, or how long ago, such as 2h or 7d", flag, text))
	return time.Time{}
}

func (t *tree) printLogLine(l api.LogLine) error {
	var err error
	switch t.output {
	case "text":
		_, err = fmt.Fprintln(t.Stdout, plainLine(l.Text))
	case "name":
		_, err = fmt.Fprintln(t.Stdout, l.Seq)
	default:
		_, err = fmt.Fprintf(t.Stdout, "{\"seq\":%d,\"entry\":%s}\n", l.Seq, l.Leaf)
	}
	return err
}
