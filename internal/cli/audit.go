package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
)

func (t *tree) auditCommand() *cobra.Command {
	cmd := group("audit", "Read the log of every decision")
	cmd.AddCommand(
		t.auditReader("list", "Print entries of the log in plain words", false),
		t.auditReader("watch", "Print entries as they are made", true),
	)
	return cmd
}

func (t *tree) auditReader(use, short string, follow bool) *cobra.Command {
	var q api.LogQuery
	var after int64
	var run, dispatch, principal string
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var p parser
			if run != "" {
				q.Run = p.run(run)
			}
			if dispatch != "" {
				q.Dispatch = p.dispatch(dispatch)
			}
			if principal != "" {
				q.Principal = p.principal(principal)
			}
			if after >= 0 {
				seq := uint64(after)
				q.After = &seq
			}
			if p.err != nil {
				return p.err
			}
			c := t.conn()
			defer c.Close()
			return c.Operator().Log(cmd.Context(), q, follow, t.printLogLine)
		},
	}
	f := cmd.Flags()
	f.Int64Var(&after, "after", -1, "only entries behind this number")
	f.IntVar(&q.Last, "last", 0, "only the newest so many entries")
	f.StringVar(&run, "run", "", "only entries of this run, its tasks and their dispatches")
	f.StringVar(&dispatch, "dispatch", "", "only entries of this dispatch")
	f.StringVar(&principal, "principal", "", "only entries of this principal")
	f.StringVar(&q.Kind, "kind", "", "only entries of this kind, such as dispatch.denied")
	return cmd
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
