package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// stopVerbs are the verbs about emergency stops.
type stopVerbs struct{ *operatorVerbs }

// stopFlags are the scope of a stop.
type stopFlags struct {
	all                                        bool
	principal, target, run, dispatch, schedule string
	reason                                     string
}

func (t *stopVerbs) stopCommand(v *console.Verb) {
	var f stopFlags
	v.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 && args[0] == "all" {
			return api.Errorf(api.CodeInvalid, "stop: unknown argument \"all\"").WithHint("run: bailiwick stop --all")
		}
		return cobra.NoArgs(cmd, args)
	}
	v.Do(func(ctx context.Context, _ []string) error {
		req, err := f.request()
		if err != nil {
			return err
		}
		return t.engage(ctx, req)
	})
	v.Flag(&f.all, "all")
	v.Flag(&f.principal, "principal")
	v.Flag(&f.target, "target")
	v.Flag(&f.run, "run")
	v.Flag(&f.dispatch, "dispatch")
	v.Flag(&f.schedule, "schedule")
	v.Flag(&f.reason, "reason")
}

func (f stopFlags) request() (api.StopRequest, error) {
	var all []api.StopRequest
	if f.all {
		all = append(all, api.StopRequest{Scope: api.StopAll})
	}
	for _, one := range []api.StopRequest{
		{Scope: api.StopPrincipal, Name: f.principal}, {Scope: api.StopTarget, Name: f.target}, {Scope: api.StopRun, Name: f.run}, {Scope: api.StopDispatch, Name: f.dispatch}, {Scope: api.StopSchedule, Name: f.schedule},
	} {
		if one.Name != "" {
			all = append(all, one)
		}
	}
	if len(all) != 1 {
		return api.StopRequest{}, api.Errorf(api.CodeInvalid, "stop: want one scope: --all, --principal PRINCIPAL, --target TARGET, --run RUN, --dispatch ID or --schedule NAME").
			WithHint("to shut the service down: bailiwick down; to cancel one dispatch: bailiwick dispatch cancel ID")
	}
	req := all[0]
	req.Reason = f.reason
	if err := req.Check(); err != nil {
		return req, api.Errorf(api.CodeInvalid, "%w", err)
	}
	return req, nil
}

func (t *stopVerbs) engage(ctx context.Context, req api.StopRequest) error {
	return t.withOperator(func(o client.Operator) error {
		s, err := o.Engage(ctx, req)
		if err != nil {
			return err
		}
		return t.Emit(s, s.ID, func() {
			fmt.Fprintf(t.Stdout, "stop %s covers %s; %s\n", s.ID, scopeText(s), cancelledText(s.Cancelled))
			fmt.Fprintf(t.Stderr, "lift it with: bailiwick stop lift %s\n", s.ID)
			if s.Scope == api.StopPrincipal && s.Cancelled == 0 {
				if info, err := o.Principal(ctx, api.Principal(s.Name)); err == nil {
					t.noteNoGrant(info)
				}
			}
		})
	})
}

func cancelledText(n int) string {
	switch n {
	case 0:
		return "no dispatch was in flight"
	case 1:
		return "1 dispatch was in flight and is cancelled"
	}
	return fmt.Sprintf("%d dispatches were in flight and are cancelled", n)
}

// scopeText says what a stop covers.
func scopeText(s api.Stop) string {
	if s.Scope == api.StopAll {
		return "everything"
	}
	return string(s.Scope) + " " + console.Line(s.Name)
}

func (t *stopVerbs) listCommand(v *console.Verb) {
	var all bool
	listVerb(t.tree, v, func(ctx context.Context, c *client.Conn) ([]api.Stop, error) {
		list, err := c.Operator().Stops(ctx)
		return slices.DeleteFunc(list, func(s api.Stop) bool { return !all && s.LiftedAt != nil }), err
	}, func(s api.Stop) string { return s.ID }, "ID\tCOVERS\tSINCE\tBY\tLIFTED\tREASON", func(s api.Stop) string { return stopRow(&t.Output, s) })
	v.Flag(&all, "all")
}

func stopRow(o *console.Output, s api.Stop) string {
	lifted := "-"
	if s.LiftedAt != nil {
		lifted = o.Ago(*s.LiftedAt)
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s", s.ID, scopeText(s), o.Ago(s.At), s.By, lifted, console.Cell(s.Reason))
}

func (t *stopVerbs) liftCommand(v *console.Verb) {
	var f decideFlags
	v.Do(func(ctx context.Context, args []string) error {
		id, err := api.ParseStopID(args[0])
		if err != nil {
			return api.Errorf(api.CodeInvalid, "%w", err).WithHint("see: bailiwick stop list")
		}
		var list []api.Stop
		err = t.withOperator(func(o client.Operator) error {
			list, err = o.Stops(ctx)
			return err
		})
		if err != nil {
			return err
		}
		i := slices.IndexFunc(list, func(s api.Stop) bool { return s.ID == id && s.LiftedAt == nil })
		if i < 0 {
			return api.Errorf(api.CodeNotFound, "no stop %s is in force", id).WithHint("see: bailiwick stop list --all")
		}
		s := list[i]
		fmt.Fprintf(t.Stderr, "stop %s covers %s since %s, by %s: %s\n", s.ID, scopeText(s), t.Time(s.At), s.By, console.Cell(s.Reason))
		receipt, err := t.decide(ctx, f, api.OperatorRecord{Verb: api.VerbStopLift, Stop: s.ID})
		if err != nil {
			return err
		}
		return t.printReceipt(receipt, t.liftedText(ctx, s.ID))
	})
	f.add(v)
}

// liftedText says that a stop was lifted and which stops are still in force.
func (t *stopVerbs) liftedText(ctx context.Context, id string) string {
	var list []api.Stop
	err := t.withOperator(func(o client.Operator) (err error) {
		list, err = o.Stops(ctx)
		return err
	})
	if err != nil {
		return fmt.Sprintf("stop %s lifted; for those still in force see: bailiwick stop list", id)
	}
	var inForce []string
	for _, s := range list {
		if s.LiftedAt == nil {
			inForce = append(inForce, fmt.Sprintf("%s (%s)", s.ID, scopeText(s)))
		}
	}
	if len(inForce) == 0 {
		return fmt.Sprintf("stop %s lifted; no stop is in force", id)
	}
	return fmt.Sprintf("stop %s lifted; still in force: %s", id, strings.Join(inForce, ", "))
}
