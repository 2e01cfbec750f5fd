package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
)

func (t *auditVerbs) exportCommand(v *console.Verb) {
	var out string
	var dispatch bool
	var req api.EvidenceRequest
	var checkpoints []string
	var wait coverage
	t.operatorVerb(v, func(ctx context.Context, o client.Operator, args []string) error {
		for _, name := range checkpoints {
			b, err := newestCheckpoint(name)
			if err != nil {
				return api.Errorf(api.CodeInvalid, "--checkpoint %s: %w", name, err)
			}
			req.Checkpoints = append(req.Checkpoints, b)
		}
		if out == "" {
			return api.Errorf(api.CodeInvalid, "name the file to write: --out FILE")
		}
		if err := wait.check(); err != nil {
			return err
		}
		req.Wait = wait.limit
		waits := wait.tell(t.Stderr, "the end of "+args[0])
		defer waits.Stop()
		return exportEvidence(args[0], req, !dispatch, func(req api.EvidenceRequest) error {
			return console.WriteFile(out, func(w io.Writer) error { return o.Evidence(ctx, req, beginning{w, waits}) })
		})
	})
	v.Flag(&out, "out")
	v.Flag(&req.Blobs, "with-blobs")
	v.Flag(&dispatch, "dispatch")
	v.Flag(&checkpoints, "checkpoint")
	wait.flag(v)
}

// coverage is how long a verb waits for a signed checkpoint.
type coverage struct{ limit time.Duration }

func (c *coverage) flag(v *console.Verb) {
	c.limit = 30 * time.Second
	v.Flag(&c.limit, "wait")
}

func (c *coverage) check() error {
	if c.limit <= 0 || c.limit > time.Minute {
		return api.Errorf(api.CodeInvalid, "--wait %s: want more than 0s and at most 1m", c.limit)
	}
	return nil
}

// tell says in a second what the verb waits for, unless the timer is stopped.
func (c *coverage) tell(stderr io.Writer, what string) *time.Timer {
	return time.AfterFunc(time.Second, func() {
		fmt.Fprintf(stderr, "waiting up to %s for a signed checkpoint that covers %s\n", c.limit, console.Line(what))
	})
}

// beginning stops a timer when something is written.
type beginning struct {
	io.Writer
	timer *time.Timer
}

func (b beginning) Write(p []byte) (int, error) {
	b.timer.Stop()
	return b.Writer.Write(p)
}

// exportEvidence fetches the evidence of the run with an id, if tryRun is set, or
// else of the dispatch with that id.
func exportEvidence(id string, req api.EvidenceRequest, tryRun bool, fetch func(api.EvidenceRequest) error) error {
	var run console.Args
	if tryRun {
		ofRun := req
		if ofRun.Run = console.Parse(&run, id, api.ParseRunID); run.Err == nil {
			if run.Err = fetch(ofRun); run.Err == nil || api.CodeOf(run.Err) != api.CodeNotFound {
				return run.Err
			}
		}
	}
	var dispatch console.Args
	req.Dispatch = console.Parse(&dispatch, id, api.ParseDispatchID)
	if dispatch.Err != nil {
		return errors.Join(run.Err, dispatch.Err)
	}
	err := fetch(req)
	if run.Err != nil && api.CodeOf(err) == api.CodeNotFound {
		return api.Errorf(api.CodeNotFound, "the log has no run and no dispatch %s", id).WithHint("see: bailiwick run list, bailiwick dispatch list")
	}
	return err
}

// newestCheckpoint returns the newest signed checkpoint in a file: a checkpoint, or a
// copy of an anchor in any form that bailiwick-verify reads.
func newestCheckpoint(name string) (newest []byte, err error) {
	b, err := os.ReadFile(name) //nolint:gosec // G304: the user's own file, by the user's own name
	if err != nil {
		return nil, err
	}
	list, err := receipt.Checkpoints(b)
	size := uint64(0)
	for _, signed := range list {
		if c, err := logproof.Peek(signed); err == nil && c.Size >= size {
			newest, size = signed, c.Size
		}
	}
	return newest, err
}

func (t *auditVerbs) verifyCommand(v *console.Verb) {
	var log bool
	var trust, require, html, stamps string
	var anchors []string
	v.Do(func(ctx context.Context, args []string) error {
		if log == (len(args) == 1) {
			return api.Errorf(api.CodeInvalid, "name a file, or --log")
		}
		if log {
			return t.withOperator(func(o client.Operator) error { return t.verifyLog(ctx, o) })
		}
		if trust == "" {
			return api.Errorf(api.CodeInvalid, "--trust FILE: want the keys whose signatures count").WithHint("to check your own evidence: bailiwick audit trust > trust.json")
		}
		rest := []string{args[0], "--trust", trust, "--require", require}
		if t.Format == "json" {
			rest = append(rest, "-o", "json")
		}
		if html != "" {
			rest = append(rest, "--html", html)
		}
		if stamps != "" {
			rest = append(rest, "--stamps", stamps)
		}
		for _, a := range anchors {
			rest = append(rest, "--anchor", a)
		}
		return t.execute(ctx, verifyProgram, rest, t.Stdin, t.File())
	})
	v.Flag(&log, "log")
	v.Flag(&trust, "trust")
	require = "none"
	v.Flag(&require, "require")
	v.Flag(&html, "html")
	v.Flag(&stamps, "stamps")
	v.Flag(&anchors, "anchor")
}

func (t *auditVerbs) verifyLog(ctx context.Context, o client.Operator) error {
	check, err := o.CheckLog(ctx)
	if err != nil {
		return err
	}
	if t.Format != "text" {
		if err := t.JSON(check); err != nil {
			return err
		}
	} else if check.Wrong == "" {
		fmt.Fprintf(t.Stdout, "verified against the signed root: %s; the chains of %s, including later ones, are intact\n", record.Plural(check.Entries, "entry"), record.Plural(check.Chained, "entry"))
	}
	switch {
	case strings.HasPrefix(check.Wrong, api.StateDiffers):
		return api.Errorf(api.CodeIntegrity, "%s", check.Wrong)
	case check.Wrong != "":
		return api.Errorf(api.CodeIntegrity, "the log was changed: %s", check.Wrong)
	}
	return nil
}

func (t *auditVerbs) trustCommand(v *console.Verb) {
	t.operatorVerb(v, func(ctx context.Context, o client.Operator, _ []string) error {
		if err := o.Trust(ctx, t.Stdout); err != nil {
			return err
		}
		fmt.Fprintln(t.Stderr, "send this to auditors through another channel than the evidence; a copy that came with the evidence proves nothing")
		return nil
	})
}
