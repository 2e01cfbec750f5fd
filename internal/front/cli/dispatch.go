package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/front/runverbs"
)

// dispatchVerbs are the verbs about single dispatches.
type dispatchVerbs struct{ *tree }

func (t *dispatchVerbs) noun() *cobra.Command {
	return console.Noun("dispatch", "Start, watch and cancel dispatches, and take their results",
		console.Group{Title: "Start:", Commands: []*cobra.Command{t.runCommand(), t.answerCommand(), t.cancelCommand()}},
		console.Group{Title: "Watch:", Commands: []*cobra.Command{t.listCommand(), t.showCommand(), t.logsCommand(), t.networkCommand(), t.toolsCommand(), t.transcriptCommand()}},
		console.Group{Title: "Results:", Commands: []*cobra.Command{t.patchCommand(), runverbs.DispatchApply(t.runConfig()), t.outputsCommand(), t.attestationCommand()}},
		console.Group{Title: "Retention:", Commands: []*cobra.Command{
			t.pinCommand("pin", "Keep a dispatch, whatever the retention rules say", true), t.pinCommand("unpin", "Apply the retention rules to a dispatch again", false),
		}})
}

// verb is a verb about the dispatch that its first argument names.
func (t *dispatchVerbs) verb(cmd *cobra.Command, do func(ctx context.Context, r client.Runtime, id api.DispatchID, args []string) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := api.ParseDispatchID(args[0])
		if err != nil {
			return api.Errorf(api.CodeInvalid, "%w", err)
		}
		return t.withConn(func(c *client.Conn) error { return do(cmd.Context(), c.Runtime(), id, args) })
	}
	return cmd
}

// attemptFlag selects an earlier attempt.
func attemptFlag(cmd *cobra.Command, attempt *int) {
	cmd.Flags().IntVar(attempt, "attempt", 0, "this attempt (default: the current one)")
}

// followFlags are those of the verbs that follow a dispatch.
type followFlags struct {
	wait                time.Duration
	detach, quiet, full bool
	again               string // the command that starts the same work once more
}

func (f *followFlags) add(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.wait, "wait", 0, "stop waiting after this time with exit status 8; the dispatch continues")
	cmd.Flags().BoolVarP(&f.detach, "detach", "d", false, "print the id and return at once")
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "do not show the log")
	cmd.Flags().BoolVar(&f.full, "full", false, "print the whole record, as dispatch show does")
}

type runFlags struct {
	followFlags
	input, target, source, id string
	set, envs, capabilities   []string
	timeout                   time.Duration
}

func (t *dispatchVerbs) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use: "run SUBAGENT", Short: "Dispatch a subagent, follow its log and print its record", Args: cobra.ExactArgs(1),
		Example: console.Examples(`bailiwick dispatch run code-edit --source service --input '{"file":"a.go","instruction":"..."}'`,
			"bailiwick dispatch run code-edit --source service@v1.2 --set file=a.go --set lines:=20 --set instruction@task.md --detach"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, in, err := f.request(args[0], t.tree)
			if err != nil {
				return err
			}
			return t.withConn(func(c *client.Conn) error { return t.run(cmd.Context(), c.Runtime(), req, in, f.followFlags) })
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.input, "input", "", "input object: JSON text, @FILE, or - for standard input")
	fl.StringArrayVar(&f.set, "set", nil, "KEY=TEXT, KEY:=JSON or KEY@FILE: a member of the input; may be repeated")
	fl.StringVar(&f.source, "source", "", "NAME or NAME@COMMIT: what the workspace starts from")
	fl.StringVar(&f.target, "target", "", "where to run (default: the subagent's own target)")
	fl.StringArrayVar(&f.envs, "env", nil, "an env for it; may be repeated")
	fl.StringArrayVar(&f.capabilities, "capability", nil, "an extra capability; may be repeated")
	fl.DurationVar(&f.timeout, "timeout", 0, "stop the agent after this time (may only shorten the subagent's limit)")
	fl.StringVar(&f.id, "id", "", "id of the dispatch; repeating the request with it returns the same dispatch")
	f.add(cmd)
	return cmd
}

// request returns the request that the flags make, without its input.
func (f *runFlags) request(subagent string, t *tree) (api.DispatchRequest, input, error) {
	var a console.Args
	req := api.DispatchRequest{
		Subagent: a.Name("subagent", subagent), Target: a.Name("target", f.target),
		Source: parseSource(&a, f.source), Envs: names(&a, "env", f.envs), Capabilities: names(&a, "capability", f.capabilities),
		DispatchID: console.Optional(&a, f.id, api.ParseDispatchID),
	}
	in := readInput(&a, f.input, f.set, t.Stdin)
	if req.DispatchID == "" {
		// Chosen here, so that the request can be repeated if its answer is lost.
		req.DispatchID = api.NewDispatchID(t.Now())
	}
	if f.timeout != 0 {
		if f.timeout < time.Second || f.timeout%time.Second != 0 {
			a.Fail(fmt.Errorf("--timeout %s: want whole seconds, at least one", f.timeout))
		}
		req.TimeoutSeconds = int(f.timeout / time.Second)
	}
	a.Wait("--wait", f.wait)
	return req, in, a.Err
}

// run dispatches a subagent and follows it.
func (t *dispatchVerbs) run(ctx context.Context, r client.Runtime, req api.DispatchRequest, in input, f followFlags) error {
	sub := visible(ctx, r, req.Subagent)
	var err error
	if req.Input, err = in.document(sub); err != nil {
		return err
	}
	if err := checkTimeout(req, sub); err != nil {
		return err
	}
	d, err := r.Dispatch(ctx, req)
	if err != nil {
		return err
	}
	t.noteRequest(ctx, r, req, sub)
	f.again = t.again()
	return t.follow(ctx, r, d, f)
}

// lookupTimeout bounds what a check before the request may cost; the service
// checks everything again.
const lookupTimeout = 5 * time.Second

// visible returns a subagent, or nil if the caller cannot see it.
func visible(ctx context.Context, r client.Runtime, name api.Name) *api.ArtifactInfo {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	page, err := r.Artifacts(ctx, api.KindSubagent, name, "")
	if err != nil || len(page.Items) != 1 {
		return nil
	}
	return &page.Items[0]
}

// checkTimeout refuses a time that the limit of the subagent would shorten.
func checkTimeout(req api.DispatchRequest, sub *api.ArtifactInfo) error {
	if sub == nil || sub.Limits == nil || api.Span(int64(req.TimeoutSeconds), time.Second) <= time.Duration(sub.Limits.Timeout) {
		return nil
	}
	return api.Errorf(api.CodeInvalid, "--timeout %s: subagent %q has the limit %s", api.Span(int64(req.TimeoutSeconds), time.Second), sub.Name, time.Duration(sub.Limits.Timeout)).
		WithHint("a request may only shorten it; see: bailiwick subagent show %s", sub.Name)
}

// noteRequest points out what the worker starts without.
func (t *dispatchVerbs) noteRequest(ctx context.Context, r client.Runtime, req api.DispatchRequest, sub *api.ArtifactInfo) {
	runverbs.NoteSource(ctx, &t.Output, r, req.Source)
	if sub == nil || req.Source != nil {
		return
	}
	switch {
	case sub.NeedsSource && len(sub.Sources) == 0:
		fmt.Fprintf(t.Stderr, "note: subagent %s needs a source, and no grant of yours lists one\n", sub.Name)
	case len(sub.Sources) > 0 && (sub.NeedsSource || *sub.Tier > api.Observe):
		fmt.Fprintf(t.Stderr, "note: without --source the workspace of %s starts empty; it may start from: %s\n", sub.Name, joined(sub.Sources))
	}
}

// again returns the command line of this process without the id, which would name
// the same dispatch.
func (t *dispatchVerbs) again() string {
	words := []string{"bailiwick"}
	for i := 0; i < len(t.Args); i++ {
		switch word := t.Args[i]; {
		case word == "--id":
			i++
		case !strings.HasPrefix(word, "--id="):
			words = append(words, word)
		}
	}
	return console.ShellText(words...)
}

func (t *dispatchVerbs) showCommand() *cobra.Command {
	var attempt int
	cmd := t.verb(&cobra.Command{
		Use: "show ID", Short: "Show the record of a dispatch, with its question", Args: cobra.ExactArgs(1),
		Example: console.Examples("bailiwick dispatch show ID", "bailiwick dispatch show ID --attempt 1 -o json"),
	}, func(ctx context.Context, r client.Runtime, id api.DispatchID, _ []string) error {
		d, err := r.Attempt(ctx, id, attempt)
		if err := t.printed(d, err); err != nil || d.State.Ended() || t.Format != "text" {
			return err
		}
		return t.printApprovals(ctx, r, d.ID)
	})
	attemptFlag(cmd, &attempt)
	return cmd
}

func (t *dispatchVerbs) logsCommand() *cobra.Command {
	var follow bool
	var from client.LogFrom
	cmd := t.verb(&cobra.Command{
		Use: "logs ID", Short: "Print the log of a dispatch, escaped for a terminal", Args: cobra.ExactArgs(1),
		Example: console.Examples("bailiwick dispatch logs ID -f", "bailiwick dispatch logs ID --attempt 1 --offset 4096"),
	}, func(ctx context.Context, r client.Runtime, id api.DispatchID, _ []string) error {
		if from.Offset < 0 || from.Attempt < 0 {
			return api.Errorf(api.CodeInvalid, "--offset %d, --attempt %d: want no negative number", from.Offset, from.Attempt)
		}
		if follow {
			return t.printLog(ctx, id, from, r.Follow)
		}
		return t.Page(func() error { return t.printLog(ctx, id, from, r.Log) })
	})
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "continue until the dispatch has ended, and reconnect if the service restarts")
	cmd.Flags().Int64Var(&from.Offset, "offset", 0, "start at this byte")
	attemptFlag(cmd, &from.Attempt)
	return cmd
}

func (t *dispatchVerbs) printLog(ctx context.Context, id api.DispatchID, from client.LogFrom, read func(context.Context, api.DispatchID, client.LogFrom, func(api.Chunk) error) error) error {
	if t.Format != "text" {
		return read(ctx, id, from, func(c api.Chunk) error { return t.JSON(c) })
	}
	l := console.NewAgentLog(t.Stdout, t.Stderr, "", nil, from.Offset)
	return errors.Join(read(ctx, id, from, l.Chunk), l.Close())
}

func (t *dispatchVerbs) cancelCommand() *cobra.Command {
	var reason string
	var wait time.Duration
	cmd := t.verb(&cobra.Command{
		Use: "cancel ID", Short: "Cancel a dispatch; work done so far is kept", Args: cobra.ExactArgs(1),
		Example: console.Examples("bailiwick dispatch cancel ID --reason 'wrong branch'", "bailiwick dispatch cancel ID --wait 0"),
	}, func(ctx context.Context, r client.Runtime, id api.DispatchID, _ []string) error {
		var a console.Args
		if a.Wait("--wait", wait); a.Err != nil {
			return a.Err
		}
		d, err := r.Cancel(ctx, id, reason)
		if err == nil && !d.State.Ended() && wait > 0 {
			d, err = awaitCancelled(ctx, r, d, wait)
		}
		if err != nil {
			return err
		}
		return t.printEnd(d, followFlags{})
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the log")
	cmd.Flags().DurationVar(&wait, "wait", 30*time.Second, "wait at most this long for the end; 0 returns at once")
	return cmd
}

// awaitCancelled waits until a cancelled dispatch has ended, for longer than one
// request may wait.
func awaitCancelled(ctx context.Context, r client.Runtime, d api.Dispatch, wait time.Duration) (api.Dispatch, error) {
	short, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	now, err := awaitEnd(short, r, d)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return d, api.Errorf(api.CodeNotFinished, "dispatch %s was cancelled but has not ended within %s", d.ID, wait).WithHint("see: bailiwick dispatch show %s", d.ID)
	}
	return now, err
}

func (t *dispatchVerbs) pinCommand(verb, short string, on bool) *cobra.Command {
	return t.verb(&cobra.Command{
		Use: verb + " ID", Short: short, Args: cobra.ExactArgs(1),
		Example: console.Examples("bailiwick dispatch "+verb+" ID", "bailiwick dispatch "+verb+" ID -o json"),
	}, func(ctx context.Context, r client.Runtime, id api.DispatchID, _ []string) error {
		return t.printed(r.Pin(ctx, id, on))
	})
}
