package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
)

// stopFlags say what a stop holds.
type stopFlags struct {
	all                              bool
	principal, target, run, dispatch string
	reason                           string
}

func (t *tree) stopCommand() *cobra.Command {
	var f stopFlags
	cmd := &cobra.Command{
		Use: "stop", Short: "Emergency stop: cancel what runs and let nothing begin, until it is lifted", Args: cobra.NoArgs,
		Long: `Engage an emergency stop. From then on nothing that it holds is dispatched or answered, and
what runs or waits of it is cancelled; what it has done so far is kept. It lasts over
restarts of the service. Engaging one needs no key; lifting one is signed by the operator's.`,
		Example: "  bailiwick stop --all --reason 'strange patches'\n  bailiwick stop --principal agent:claude\n  bailiwick stop --run nightly-7\n  bailiwick stop list\n  bailiwick stop lift s-1",
		RunE: func(cmd *cobra.Command, _ []string) error {
			req, err := f.request()
			if err != nil {
				return err
			}
			return t.engage(cmd.Context(), req)
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.all, "all", false, "hold everything")
	fl.StringVar(&f.principal, "principal", "", "hold what this principal asks for, and has asked for")
	fl.StringVar(&f.target, "target", "", "hold what runs on this target")
	fl.StringVar(&f.run, "run", "", "hold this run: what runs of it is cancelled, and nothing more of it begins")
	fl.StringVar(&f.dispatch, "dispatch", "", "hold this dispatch: it is cancelled, and cannot be answered")
	fl.StringVar(&f.reason, "reason", "", "why, for the log")
	cmd.AddCommand(t.stopListCommand(), t.stopLiftCommand())
	return cmd
}

func (f stopFlags) request() (api.StopRequest, error) {
	var all []api.StopRequest
	if f.all {
		all = append(all, api.StopRequest{Scope: api.StopAll})
	}
	for _, one := range []api.StopRequest{
		{Scope: api.StopPrincipal, Name: f.principal}, {Scope: api.StopTarget, Name: f.target}, {Scope: api.StopRun, Name: f.run}, {Scope: api.StopDispatch, Name: f.dispatch},
	} {
		if one.Name != "" {
			all = append(all, one)
		}
	}
	if len(all) != 1 {
		return api.StopRequest{}, api.Errorf(api.CodeInvalid, "stop: say what to hold, one thing: --all, --principal PRINCIPAL, --target TARGET, --run RUN or --dispatch ID").
			WithHint("the service itself is ended with: bailiwick down; one dispatch for good with: bailiwick dispatch cancel ID")
	}
	req := all[0]
	req.Reason = f.reason
	if err := req.Check(); err != nil {
		return req, api.Errorf(api.CodeInvalid, "%w", err)
	}
	return req, nil
}

func (t *tree) engage(ctx context.Context, req api.StopRequest) error {
	c := t.conn()
	defer c.Close()
	s, err := c.Operator().Engage(ctx, req)
	if err != nil {
		return err
	}
	switch t.output {
	case "text":
		fmt.Fprintf(t.Stdout, "stop %s holds %s; %s\n", s.ID, holds(s), flight(s.Cancelled))
		fmt.Fprintf(t.Stderr, "it holds until: bailiwick stop lift %s\n", s.ID)
		if s.Scope == api.StopPrincipal && s.Cancelled == 0 {
			if info, err := c.Operator().Principal(ctx, api.Principal(s.Name)); err == nil {
				t.noteStranger(info)
			}
		}
		return nil
	case "name":
		fmt.Fprintln(t.Stdout, s.ID)
		return nil
	}
	return t.printJSON(s)
}

func flight(n int) string {
	switch n {
	case 0:
		return "nothing of it was in flight"
	case 1:
		return "1 dispatch was in flight and is cancelled"
	}
	return fmt.Sprintf("%d dispatches were in flight and are cancelled", n)
}

// holds says in words what a stop holds.
func holds(s api.Stop) string {
	if s.Scope == api.StopAll {
		return "everything"
	}
	return string(s.Scope) + " " + plainLine(s.Name)
}

func (t *tree) stopListCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the emergency stops that hold", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := t.stops(cmd.Context())
			if err != nil {
				return err
			}
			shown := []api.Stop{}
			for _, s := range list {
				if all || s.LiftedAt == nil {
					shown = append(shown, s)
				}
			}
			return printList(t, shown, func(s api.Stop) string { return s.ID }, "ID\tHOLDS\tSINCE\tBY\tLIFTED\tREASON", func(s api.Stop) string {
				lifted := "-"
				if s.LiftedAt != nil {
					lifted = s.LiftedAt.Format(timeFormat)
				}
				return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s", s.ID, holds(s), s.At.Format(timeFormat), s.By, lifted, oneCell(s.Reason))
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also those that were lifted")
	return cmd
}

// oneCell keeps a text from outside from looking like a further column.
func oneCell(s string) string {
	if s == "" {
		return "-"
	}
	return fmt.Sprintf("%+q", s)
}

func (t *tree) stops(ctx context.Context) ([]api.Stop, error) {
	c := t.conn()
	defer c.Close()
	return c.Operator().Stops(ctx)
}

func (t *tree) stopLiftCommand() *cobra.Command {
	var f decideFlags
	cmd := &cobra.Command{
		Use: "lift ID", Short: "Lift an emergency stop; the operator's key signs it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := api.ParseStopID(args[0])
			if err != nil {
				return api.Errorf(api.CodeInvalid, "%w", err).WithHint("see: bailiwick stop list")
			}
			list, err := t.stops(cmd.Context())
			if err != nil {
				return err
			}
			for _, s := range list {
				if s.ID == id && s.LiftedAt == nil {
					return t.lift(cmd.Context(), f, s)
				}
			}
			return api.Errorf(api.CodeNotFound, "no stop %s holds", id).WithHint("see: bailiwick stop list --all")
		},
	}
	f.add(cmd)
	return cmd
}

func (t *tree) lift(ctx context.Context, f decideFlags, s api.Stop) error {
	fmt.Fprintf(t.Stderr, "stop %s holds %s since %s, by %s: %s\n", s.ID, holds(s), s.At.Format(timeFormat), s.By, oneCell(s.Reason))
	d, err := t.decide(ctx, f, api.OperatorRecord{Verb: api.VerbStopLift, Stop: s.ID})
	if err != nil {
		return err
	}
	return t.printDecided(d, fmt.Sprintf("stop %s is lifted; %s may run again.", s.ID, holds(s)))
}
