package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/tool/toolcall"
)

// run makes an admitted call, makes what came back durable, and returns it.
func (v *View) run(ctx context.Context, c *call, adm audit.Admission) (json.RawMessage, error) {
	m := v.a.Manifest
	if err := adm.Redeem(record.KindToolCalled, m.ID, ""); err != nil {
		return nil, err
	}
	began := v.g.cfg.Now()
	answer, err := v.forward(ctx, c)
	failpoint.Hit(failpoint.ToolAnswered, string(m.ID))
	took := v.g.cfg.Now().Sub(began)
	if err == nil {
		err = c.checkAnswer(answer)
	}
	d := record.ToolReturn{Number: c.number, Millis: max(0, took.Milliseconds())}
	var result json.RawMessage
	switch {
	case err != nil:
		d.Error = faultText(ctx, err)
		if result, err = errorResult("failed: "+d.Error, nil); err != nil {
			return nil, err
		}
	default:
		if result = answer.Result; answer.IsError {
			d.Error = toolFailed
		}
	}
	d.Bytes = int64(len(result))
	v.g.cfg.Observe(Observed{Manifest: m, Number: c.number, At: began, Server: c.tool.Server, Tool: c.tool.ID, Allowed: true, Failed: d.Error != "", Took: took})
	if err := v.returned(ctx, c, d, result); err != nil {
		v.g.cfg.Logger.ErrorContext(ctx, "what a tool returned was not recorded, so the agent does not get it", slog.String("tool", c.tool.ID), slog.String("dispatch", string(m.ID)), slog.Any("err", err))
		return errorResult(fmt.Sprintf("failed: call %d was made, but what it returned cannot be logged; do not repeat it before you have checked whether it took effect (audit entry %d)", c.number, c.seq), nil)
	}
	return result, nil
}

// forward calls what the tool belongs to.
func (v *View) forward(ctx context.Context, c *call) (toolcall.Answer, error) {
	if c.tool.Server == "" {
		return v.runOwn(ctx, c)
	}
	return v.g.cfg.Upstream.Call(ctx, toolcall.Call{
		Owner:     toolcall.Owner{Server: c.tool.Server, Revision: v.a.Revision, Dispatch: v.a.Manifest.ID},
		Tool:      c.tool.ToolAllow.Tool,
		Arguments: c.arguments,
		Progress:  c.stream.progress,
		Approved:  c.approved,
	})
}

// returned makes what came of a call durable, whether or not the agent waits for it.
func (v *View) returned(ctx context.Context, c *call, d record.ToolReturn, result json.RawMessage) error {
	ctx = context.WithoutCancel(ctx)
	m := v.a.Manifest
	kept, size, release, err := v.keep(ctx, result)
	defer release()
	if err != nil {
		return err
	}
	e := record.CallEntry(record.KindToolReturned, m, c.tool.ID, &c.tool.Tier, d)
	e.Refs = map[string]api.Digest{record.RefReturned: api.DigestOf(result)}
	failpoint.Hit(failpoint.ToolReturn, string(m.ID))
	_, err = v.g.cfg.Ledger.Record(ctx, e, func(tx *store.Tx) error {
		return settle(tx, m.ID, m.Attempt, c.number, stateReturned, d, kept, size)
	})
	failpoint.Hit(failpoint.ToolReturned, string(m.ID))
	return err
}

// checkAnswer refuses an answer that is too large, or is not what the definition says.
func (c *call) checkAnswer(a toolcall.Answer) error {
	if len(a.Result) > api.MaxToolAnswer {
		return &toolcall.Fault{Message: fmt.Sprintf("the tool answered with %d bytes: at most %d; ask it for less", len(a.Result), api.MaxToolAnswer)}
	}
	if c.tool.output == nil || a.IsError {
		return nil
	}
	var result struct {
		Structured any `json:"structuredContent"`
	}
	if err := json.Unmarshal(a.Result, &result); err != nil {
		return &toolcall.Fault{Message: "the tool answered with something that is not a result"}
	}
	if err := c.tool.output.Validate(result.Structured); err != nil {
		return &toolcall.Fault{Message: "the tool answered with something else than its definition says: " + cuttext.Text(canon.SchemaText(err), 500)}
	}
	return nil
}

// faultText says why a call has no answer, and whether it may have had an effect.
func faultText(ctx context.Context, err error) string {
	fault, ok := errors.AsType[*toolcall.Fault](err)
	effect := "it is not known whether the call took effect"
	if ok && fault.Unsent {
		effect = "the call had no effect"
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errStopping):
		return "the service stopped during the call; " + effect
	case errors.Is(cause, errClosed):
		return "the attempt ended during the call; " + effect
	case ctx.Err() != nil:
		return "the agent cancelled the call; " + effect
	case ok:
		return fault.Message + "; " + effect
	}
	return "the call failed; " + effect
}

// toolFailed is the error of a call whose tool says that it failed. Its words are in the
// answer, which retention removes; the log keeps only the digest.
const toolFailed = "the tool says that it failed"

// readOwn reads the arguments of ask and report, which the schemas of those have checked.
func (c *call) readOwn(v *View) error {
	switch {
	case c.tool.Server != "":
		return nil
	case c.tool.ID == api.ToolAsk:
		c.question = &api.Question{}
		return json.Unmarshal(c.arguments, c.question)
	}
	var report struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(c.arguments, &report); err != nil {
		return err
	}
	c.progress = &api.Progress{At: v.g.cfg.Now().UTC().Truncate(time.Millisecond), Text: report.Text}
	return nil
}

// runOwn does what is left to do for ask and report once they are durable.
func (v *View) runOwn(ctx context.Context, c *call) (toolcall.Answer, error) {
	text := "reported"
	if c.question != nil {
		if err := v.a.Running.Ask(ctx, *c.question); err != nil {
			return toolcall.Answer{}, &toolcall.Fault{Message: "the question is stored, but your worker does not answer"}
		}
		text = "The question was passed on. Your attempt ends now, and you resume when someone answers."
	} else {
		v.mu.Lock()
		v.words = c.progress.Text
		v.mu.Unlock()
	}
	result, err := canon.Marshal(map[string]any{"content": []any{textContent(text)}})
	return toolcall.Answer{Result: result}, err
}

// reported returns what the agent reported last.
func (v *View) reported() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.words
}
