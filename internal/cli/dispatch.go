package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

func (t *tree) dispatchCommand() *cobra.Command {
	cmd := group("dispatch", "Run, watch and end dispatches, and take their results")
	cmd.AddCommand(t.runCommand(), t.showCommand(), t.listCommand(), t.logsCommand(), t.answerCommand(), t.cancelCommand(), t.patchCommand(), t.outputsCommand(), t.attestationCommand(),
		t.pinCommand("pin", "Keep a dispatch whatever the rules of retention say", true), t.pinCommand("unpin", "Leave a dispatch to the rules of retention", false))
	return cmd
}

type runFlags struct {
	input, target, source, id string
	set, envs, capabilities   []string
	timeout, wait             time.Duration
	detach, quiet             bool
}

func (t *tree) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use: "run SUBAGENT", Short: "Dispatch a subagent, follow its log and print its record", Args: cobra.ExactArgs(1),
		Example: `  bailiwick dispatch run code-edit --source service --input '{"file":"a.go","instruction":"..."}'
  bailiwick dispatch run code-edit --source service@v1.2 --set file=a.go --detach`,
		RunE: func(cmd *cobra.Command, args []string) error { return t.run(cmd.Context(), args[0], f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.input, "input", "", "input object: JSON text, @FILE, or - for standard input")
	fl.StringArrayVar(&f.set, "set", nil, "KEY=TEXT: a member of the input; may be repeated")
	fl.StringVar(&f.source, "source", "", "NAME or NAME@COMMIT: what the workspace starts from")
	fl.StringVar(&f.target, "target", "", "where to run (default: the subagent's own target)")
	fl.StringArrayVar(&f.envs, "env", nil, "an env to give it; may be repeated")
	fl.StringArrayVar(&f.capabilities, "capability", nil, "an extra capability; may be repeated")
	fl.DurationVar(&f.timeout, "timeout", 0, "end the agent after this time (may only shorten the subagent's limit)")
	fl.DurationVar(&f.wait, "wait", 0, "stop waiting after this time with exit status 8; the dispatch goes on")
	fl.StringVar(&f.id, "id", "", "id of the dispatch; the same id and request again gives the same dispatch")
	fl.BoolVarP(&f.detach, "detach", "d", false, "print the id and return at once")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "do not show the log")
	return cmd
}

func (t *tree) request(subagent string, f runFlags) (api.DispatchRequest, error) {
	var p parser
	req := api.DispatchRequest{
		Subagent: p.name("subagent", subagent), Input: p.input(f.input, f.set, t.Stdin), Target: p.name("target", f.target),
		Source: p.source(f.source), Envs: p.names("env", f.envs), Capabilities: p.names("capability", f.capabilities),
	}
	if f.id != "" {
		req.DispatchID = p.dispatch(f.id)
	}
	if f.timeout != 0 {
		if f.timeout < time.Second || f.timeout%time.Second != 0 {
			p.fail(fmt.Errorf("--timeout %s: want whole seconds, at least one", f.timeout))
		}
		req.TimeoutSeconds = int(f.timeout / time.Second)
	}
	return req, p.err
}

func (t *tree) run(ctx context.Context, subagent string, f runFlags) error {
	req, err := t.request(subagent, f)
	if err = errors.Join(err, checkWait(f.wait)); err != nil {
		return err
	}
	if req.DispatchID == "" {
		// Chosen here, so that it can be asked for again when the service ends
		// before it has answered.
		req.DispatchID = api.NewDispatchID(t.Now())
	}
	c := t.conn()
	defer c.Close()
	d, err := c.Runtime().Dispatch(ctx, req)
	if err != nil {
		return err
	}
	return t.see(ctx, c.Runtime(), d, f)
}

// see follows an attempt to its end, unless it is let go.
func (t *tree) see(ctx context.Context, r client.Runtime, d api.Dispatch, f runFlags) error {
	ev := t.newEvents()
	if err := t.accepted(ev, d, f.detach); err != nil || f.detach {
		return err
	}
	d, err := t.follow(ctx, r, d, f, ev)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return api.Errorf(api.CodeNotFinished, "dispatch %s goes on after %s", d.ID, f.wait).WithHint("see: bailiwick dispatch logs -f %s", d.ID)
	}
	if err != nil {
		if ctx.Err() != nil {
			fmt.Fprintf(t.Stderr, "dispatch %s goes on; end it with: bailiwick dispatch cancel %s\n", d.ID, d.ID)
		}
		return err
	}
	if err := t.ended(ev, d); err != nil {
		return err
	}
	return outcome(d)
}

// accepted prints that a dispatch is under way, and with detach all that there
// is to print.
func (t *tree) accepted(ev *events, d api.Dispatch, detach bool) error {
	switch {
	case t.typed():
		err := ev.tell(d)
		if err == nil && detach {
			err = t.printJSON(runLine{Record: &d})
		}
		return err
	case !detach:
		_, err := fmt.Fprintf(t.Stderr, "dispatch %s accepted\n", d.ID)
		return err
	case t.output == "text":
		_, err := fmt.Fprintln(t.Stdout, d.ID)
		return err
	}
	return t.printDispatch(d)
}

func (t *tree) ended(ev *events, d api.Dispatch) error {
	if !t.typed() {
		return t.printDispatch(d)
	}
	if err := ev.tell(d); err != nil {
		return err
	}
	return t.printJSON(runLine{Record: &d})
}

// follow shows the log of a dispatch until it ends and returns its record.
func (t *tree) follow(ctx context.Context, r client.Runtime, d api.Dispatch, f runFlags, ev *events) (api.Dispatch, error) {
	if f.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.wait)
		defer cancel()
	}
	p := newProgress(t.Stderr, t.Terminal, "dispatch "+string(d.ID)+" is under way", t.Now)
	defer p.Close()
	if !f.quiet {
		if err := t.followLog(ctx, r, d, p, ev); err != nil {
			return d, err
		}
	}
	return ended(ctx, r, d)
}

// ended waits until the attempt of d has ended. Its question may have been
// answered by then, and what another attempt does is not for who follows this
// one.
func ended(ctx context.Context, r client.Runtime, d api.Dispatch) (api.Dispatch, error) {
	for {
		now, err := r.Describe(ctx, d.ID, 30*time.Second)
		switch {
		case err != nil:
			return d, err
		case now.Attempt != d.Attempt:
			return r.Attempt(ctx, d.ID, d.Attempt)
		case now.State.Ended():
			return now, nil
		}
	}
}

// followLog shows the log of an attempt until it has ended: every line behind
// a marker, or as typed lines.
func (t *tree) followLog(ctx context.Context, r client.Runtime, d api.Dispatch, p *progress, ev *events) error {
	from := client.LogFrom{Attempt: d.Attempt}
	if t.typed() {
		return r.Follow(ctx, d.ID, from, func(c api.Chunk) error {
			if !ev.said[api.EventStarted] {
				// Something is written, so it has started: say so before.
				now, err := r.Describe(ctx, d.ID, 0)
				if err == nil && !now.State.Ended() && now.Attempt == d.Attempt {
					err = ev.tell(now)
				}
				if err != nil {
					return err
				}
			}
			return t.printJSON(runLine{Log: &c})
		})
	}
	width := t.Width
	if !t.Terminal {
		width = nil
	}
	l := newAgentLog(p, p, agentMarker, width, 0)
	return errors.Join(r.Follow(ctx, d.ID, from, l.chunk), l.Close())
}

// outcome turns how a dispatch ended into how the command ends. The record
// has been printed already.
func outcome(d api.Dispatch) error {
	switch {
	case d.State == api.EventFinished:
		return nil
	case d.Reason == api.ReasonDenied:
		return errSilent{api.Table()[api.CodeDenied].Exit}
	case d.State == api.EventNeedsInput:
		return errSilent{statusNeedsInput}
	}
	return errSilent{1}
}

func (t *tree) showCommand() *cobra.Command {
	var attempt int
	cmd := &cobra.Command{
		Use: "show ID", Short: "Print the record of a dispatch, with its question", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.withDispatch(args[0], func(r client.Runtime, id api.DispatchID) error {
				d, err := r.Attempt(cmd.Context(), id, attempt)
				if err != nil {
					return err
				}
				return t.printDispatch(d)
			})
		},
	}
	attemptFlag(cmd, &attempt)
	return cmd
}

// attemptFlag lets a verb speak of an earlier attempt.
func attemptFlag(cmd *cobra.Command, attempt *int) {
	cmd.Flags().IntVar(attempt, "attempt", 0, "of this attempt (default: the current one)")
}

func (t *tree) withDispatch(arg string, do func(client.Runtime, api.DispatchID) error) error {
	var p parser
	id := p.dispatch(arg)
	if p.err != nil {
		return p.err
	}
	c := t.conn()
	defer c.Close()
	return do(c.Runtime(), id)
}

func (t *tree) listCommand() *cobra.Command {
	var last int
	cmd := &cobra.Command{
		Use: "list", Short: "List dispatches, newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := t.conn()
			defer c.Close()
			list, err := c.Runtime().List(cmd.Context(), last)
			if err != nil {
				return err
			}
			return t.printDispatches(list)
		},
	}
	cmd.Flags().IntVar(&last, "last", 50, "how many")
	return cmd
}

func (t *tree) logsCommand() *cobra.Command {
	var follow bool
	var from client.LogFrom
	cmd := &cobra.Command{
		Use: "logs ID", Short: "Print what a dispatch wrote, made harmless for a terminal", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if from.Offset < 0 || from.Attempt < 0 {
				return api.Errorf(api.CodeInvalid, "--offset %d, --attempt %d: want no negative number", from.Offset, from.Attempt)
			}
			return t.withDispatch(args[0], func(r client.Runtime, id api.DispatchID) error {
				read := r.Log
				if follow {
					read = r.Follow
				}
				if t.output != "text" {
					return read(cmd.Context(), id, from, func(c api.Chunk) error { return t.printJSON(c) })
				}
				l := newAgentLog(t.Stdout, t.Stderr, "", nil, from.Offset)
				return errors.Join(read(cmd.Context(), id, from, l.chunk), l.Close())
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the dispatch has ended, also when the service ends meanwhile")
	cmd.Flags().Int64Var(&from.Offset, "offset", 0, "begin at this byte")
	attemptFlag(cmd, &from.Attempt)
	return cmd
}

func (t *tree) cancelCommand() *cobra.Command {
	var reason string
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "cancel ID", Short: "End a dispatch; what it has done so far is kept", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkWait(wait); err != nil {
				return err
			}
			return t.withDispatch(args[0], func(r client.Runtime, id api.DispatchID) error {
				d, err := r.Cancel(cmd.Context(), id, reason)
				if err == nil && !d.State.Ended() && wait > 0 {
					d, err = t.awaitEnd(cmd.Context(), r, d, wait)
				}
				if err != nil {
					return err
				}
				return t.printDispatch(d)
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; goes into the log")
	cmd.Flags().DurationVar(&wait, "wait", 30*time.Second, "wait for its end so long; 0 to return at once")
	return cmd
}

// awaitEnd waits for the end of a dispatch that has been asked to end, longer
// than one request may.
func (t *tree) awaitEnd(ctx context.Context, r client.Runtime, d api.Dispatch, wait time.Duration) (api.Dispatch, error) {
	short, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	now, err := ended(short, r, d)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return d, api.Errorf(api.CodeNotFinished, "dispatch %s has been asked to end and has not within %s", d.ID, wait).WithHint("see: bailiwick dispatch show %s", d.ID)
	}
	return now, err
}

// checkWait refuses a time that is none: it would mean to wait for ever here
// and not at all there.
func checkWait(wait time.Duration) error {
	if wait < 0 {
		return api.Errorf(api.CodeInvalid, "--wait %s: want no negative time", wait)
	}
	return nil
}
