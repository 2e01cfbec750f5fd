package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/console"
)

// auditVerbs are the verbs about the log and the evidence.
type auditVerbs struct{ *tree }

func (t *auditVerbs) noun() *cobra.Command {
	return console.Noun("audit", "Read the log of all decisions, and export and verify evidence",
		console.Group{Title: "Read:", Commands: []*cobra.Command{t.listCommand(), t.showCommand(), t.watchCommand()}},
		console.Group{Title: "Prove:", Commands: []*cobra.Command{t.exportCommand(), t.verifyCommand(), t.trustCommand(), t.proveCommand(), t.tilesCommand()}})
}

const timesHelp = `A time is an instant such as 2026-11-21T14:22:11Z, a day such as 2026-11-21 in UTC, or an
age such as 90m, 2h or 7d. --since includes its time; --until excludes it, but includes the
whole of a day.`

func (t *auditVerbs) listCommand() *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{
		Use: "list", Short: "List log entries in plain words, oldest first", Args: cobra.NoArgs,
		Long: "List log entries in plain words, one per line, oldest first. An entry is shown if all\nfilters match it.\n\n" + timesHelp,
		Example: console.Examples("bailiwick audit list --last 20", "bailiwick audit list --decision deny --since 24h", "bailiwick audit list --run RUN --kind task.failed --kind task.denied",
			"bailiwick audit list --principal agent:claude --since 2026-11-20 --until 2026-11-21 -o jsonl"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.Page(func() error { return t.readLog(cmd, &f, false) })
		},
	}
	f.add(cmd)
	cmd.Flags().IntVar(&f.first, "first", 0, "only this many of the oldest")
	cmd.MarkFlagsMutuallyExclusive("first", "last")
	return cmd
}

func (t *auditVerbs) watchCommand() *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{
		Use: "watch", Short: "Print log entries as they are written", Args: cobra.NoArgs,
		Long:    "Print log entries as audit list does, and continue with new ones until it is interrupted,\neven if the service restarts. It starts with the oldest entry unless --after, --last or\n--since is given.\n\n" + timesHelp,
		Example: console.Examples("bailiwick audit watch --last 10", "bailiwick audit watch --since 1m --decision deny"),
		RunE:    func(cmd *cobra.Command, _ []string) error { return t.readLog(cmd, &f, true) },
	}
	f.add(cmd)
	return cmd
}

func (t *auditVerbs) readLog(cmd *cobra.Command, f *logFlags, follow bool) error {
	q, err := f.query(cmd, t.Now())
	if err != nil {
		return err
	}
	return t.withOperator(func(o client.Operator) error { return o.Log(cmd.Context(), q, follow, t.printLogLine) })
}

// logFlags are the filters of log entries.
type logFlags struct {
	after, before                                                      int64
	first, last                                                        int
	run, task, dispatch, role, tool, principal, decision, since, until string
	kinds                                                              []string
}

func (f *logFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Int64Var(&f.after, "after", 0, "only entries after this number")
	flags.Int64Var(&f.before, "before", 0, "only entries before this number")
	flags.IntVar(&f.last, "last", 0, fmt.Sprintf("only this many of the newest, at most %d", api.MaxLogPage))
	flags.StringVar(&f.principal, "principal", "", "only entries of this principal, such as agent:claude")
	flags.StringVar(&f.run, "run", "", "only entries of this run, its tasks and their dispatches")
	flags.StringVar(&f.task, "task", "", "only entries of tasks of this name, and their dispatches")
	flags.StringVar(&f.dispatch, "dispatch", "", "only entries of this dispatch")
	flags.StringVar(&f.role, "role", "", "only entries of dispatches in this role")
	flags.StringVar(&f.tool, "tool", "", "only entries of calls of this tool")
	flags.StringArrayVar(&f.kinds, "kind", nil, "only entries of this kind, such as dispatch.denied; may be repeated")
	flags.StringVar(&f.decision, "decision", "", "only decisions that are allow, or deny")
	flags.StringVar(&f.since, "since", "", "only entries since this time")
	flags.StringVar(&f.until, "until", "", "only entries before this time")
}

// query turns the flags that are given into a query. An empty value, as from an
// unset variable, is refused: it must not mean every entry.
func (f *logFlags) query(cmd *cobra.Command, now time.Time) (api.LogQuery, error) {
	q := api.LogQuery{First: f.first, Last: f.last, Kinds: f.kinds, Decision: f.decision}
	var p console.Args
	given := func(name string, read func()) {
		if cmd.Flags().Changed(name) {
			read()
		}
	}
	number := func(name string, n *int64, to **uint64) {
		given(name, func() {
			if *n < 0 {
				p.Fail(fmt.Errorf("--%s %d: want the number of an entry", name, *n))
			}
			v := uint64(max(*n, 0))
			*to = &v
		})
	}
	number("after", &f.after, &q.After)
	number("before", &f.before, &q.Before)
	for name, n := range map[string]int{"first": f.first, "last": f.last} {
		given(name, func() {
			if n < 1 || name == "last" && n > api.MaxLogPage {
				p.Fail(fmt.Errorf("--%s %d: want at least 1, and for --last at most %d", name, n, api.MaxLogPage))
			}
		})
	}
	given("run", func() { q.Run = console.Parse(&p, f.run, api.ParseRunID) })
	given("task", func() { q.Task = console.Parse(&p, f.task, api.ParseTaskID) })
	given("dispatch", func() { q.Dispatch = console.Parse(&p, f.dispatch, api.ParseDispatchID) })
	given("principal", func() { q.Principal = console.Parse(&p, f.principal, api.ParsePrincipal) })
	given("role", func() { q.Role = console.Parse(&p, f.role, api.ParseName) })
	given("tool", func() { q.Tool = f.tool; p.Fail(api.CheckTool(f.tool)) })
	given("decision", func() {
		if f.decision != "allow" && f.decision != "deny" {
			p.Fail(fmt.Errorf("--decision %q: want allow or deny", f.decision))
		}
	})
	given("since", func() { q.Since = parseTime(&p, "since", f.since, now) })
	given("until", func() { q.Until = parseTime(&p, "until", f.until, now) })
	return q, p.Err
}

// parseTime parses an instant, a day, or an age.
func parseTime(p *console.Args, flag, text string, now time.Time) time.Time {
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
	p.Fail(fmt.Errorf("--%s %q: want a time such as 2026-11-21T14:22:11Z, a day such as 2026-11-21, or an age such as 2h or 7d", flag, text))
	return time.Time{}
}

func (t *auditVerbs) printLogLine(l api.LogLine) error {
	var err error
	switch t.Format {
	case "text":
		_, err = fmt.Fprintln(t.Stdout, console.Line(l.Text))
	case "name":
		_, err = fmt.Fprintln(t.Stdout, l.Seq)
	default:
		_, err = fmt.Fprintf(t.Stdout, "{\"seq\":%d,\"entry\":%s}\n", l.Seq, l.Leaf)
	}
	return err
}
