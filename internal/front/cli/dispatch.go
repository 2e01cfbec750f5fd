package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/front/runverbs"
)

// dispatchVerbs are the verbs about single dispatches.
type dispatchVerbs struct{ *tree }

// verb is a verb about the dispatch that its first argument names.
func (t *dispatchVerbs) verb(v *console.Verb, do func(ctx context.Context, r client.Runtime, id api.DispatchID, args []string) error) {
	v.Do(func(ctx context.Context, args []string) error {
		id, err := api.ParseDispatchID(args[0])
		if err != nil {
			return api.Errorf(api.CodeInvalid, "%w", err)
		}
		return t.withConn(func(c *client.Conn) error { return do(ctx, c.Runtime(), id, args) })
	})
}

// followFlags are those of the verbs that follow a dispatch.
type followFlags struct {
	wait                time.Duration
	detach, quiet, full bool
	again               string // the command that starts the same work once more
}

func (f *followFlags) add(v *console.Verb) {
	v.Flag(&f.wait, "wait")
	v.Flag(&f.detach, "detach")
	v.Flag(&f.quiet, "quiet")
	v.Flag(&f.full, "full")
}

type runFlags struct {
	followFlags
	input, target, source, id string
	set, envs, capabilities   []string
	timeout                   time.Duration
}

func (t *followVerbs) runCommand(v *console.Verb) {
	var f runFlags
	v.Do(func(ctx context.Context, args []string) error {
		req, in, err := f.request(args[0], t.tree)
		if err != nil {
			return err
		}
		return t.withConn(func(c *client.Conn) error { return t.run(ctx, c.Runtime(), req, in, f.followFlags) })
	})
	v.Flag(&f.input, "input")
	v.Flag(&f.set, "set")
	v.Flag(&f.source, "source")
	v.Flag(&f.target, "target")
	v.Flag(&f.envs, "env")
	v.Flag(&f.capabilities, "capability")
	v.Flag(&f.timeout, "timeout")
	v.Flag(&f.id, "id")
	f.add(v)
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
func (t *followVerbs) run(ctx context.Context, r client.Runtime, req api.DispatchRequest, in input, f followFlags) error {
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
func (t *followVerbs) noteRequest(ctx context.Context, r client.Runtime, req api.DispatchRequest, sub *api.ArtifactInfo) {
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
func (t *followVerbs) again() string {
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

func (t *dispatchVerbs) showCommand(v *console.Verb) {
	var attempt int
	t.verb(v, func(ctx context.Context, r client.Runtime, id api.DispatchID, _ []string) error {
		d, err := r.Attempt(ctx, id, attempt)
		if err := t.printed(d, err); err != nil || d.State.Ended() || t.Format != "text" {
			return err
		}
		return t.printApprovals(ctx, r, d.ID)
	})
	v.Flag(&attempt, "attempt")
}

func (t *dispatchVerbs) logsCommand(v *console.Verb) {
	var follow bool
	var from client.LogFrom
	t.verb(v, func(ctx context.Context, r client.Runtime, id api.DispatchID, _ []string) error {
		if from.Offset < 0 || from.Attempt < 0 {
			return api.Errorf(api.CodeInvalid, "--offset %d, --attempt %d: want no negative number", from.Offset, from.Attempt)
		}
		if follow {
			return t.printLog(ctx, id, from, r.Follow)
		}
		return t.Page(func() error { return t.printLog(ctx, id, from, r.Log) })
	})
	v.Flag(&follow, "follow")
	v.Flag(&from.Offset, "offset")
	v.Flag(&from.Attempt, "attempt")
}

func (t *dispatchVerbs) printLog(ctx context.Context, id api.DispatchID, from client.LogFrom, read func(context.Context, api.DispatchID, client.LogFrom, func(api.Chunk) error) error) error {
	if t.Format != "text" {
		return read(ctx, id, from, func(c api.Chunk) error { return t.JSON(c) })
	}
	l := console.NewAgentLog(t.Stdout, t.Stderr, "", nil, from.Offset)
	return errors.Join(read(ctx, id, from, l.Chunk), l.Close())
}

func (t *dispatchVerbs) cancelCommand(v *console.Verb) {
	var reason string
	var wait time.Duration
	t.verb(v, func(ctx context.Context, r client.Runtime, id api.DispatchID, _ []string) error {
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
	v.Flag(&reason, "reason")
	wait = 30 * time.Second
	v.Flag(&wait, "wait")
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

// pinCommand makes the verb that pins a dispatch, or unpins it.
func (t *dispatchVerbs) pinCommand(on bool) func(*console.Verb) {
	return func(v *console.Verb) {
		t.verb(v, func(ctx context.Context, r client.Runtime, id api.DispatchID, _ []string) error {
			return t.printed(r.Pin(ctx, id, on))
		})
	}
}
