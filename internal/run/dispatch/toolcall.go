package dispatch

import (
	"context"
	"errors"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// ToolsRequest is the part of the calls of tools to return.
type ToolsRequest struct {
	Attempt int   // 0 is the current one
	Number  int64 // only this call, with its arguments and answer; 0: all, without
	Denied  bool  // only those that were denied
}

// The states of an api.ToolCallLine.
const (
	callRunning  = "running"
	callReturned = "returned"
	callUnknown  = "unknown"
	callDenied   = "denied"
)

// Tools calls each with the tool calls that the agent of an attempt has made so far.
func (s *reader) Tools(ctx context.Context, principal api.Principal, id api.DispatchID, req ToolsRequest, each func(*api.ToolCallLine) error) error {
	r, _, err := s.access(ctx, principal, policy.ActionDispatchRead, id)
	if err != nil {
		return err
	}
	d, err := s.attempt(ctx, r.record, req.Attempt)
	if err != nil {
		return err
	}
	list, err := s.toolCalls(ctx, id, d.Attempt)
	if err != nil {
		return err
	}
	found := false
	for i := range list {
		l := &list[i]
		if req.Number != 0 && l.Number != req.Number || req.Denied && l.State != callDenied {
			continue
		}
		if found = true; l.State == callRunning && d.State.Ended() {
			l.State = callUnknown
		}
		if req.Number != 0 {
			err = s.addContent(ctx, d, l)
		}
		if err == nil {
			err = each(l)
		}
		if err != nil {
			return err
		}
	}
	if req.Number != 0 && !found {
		return api.Errorf(api.CodeNotFound, "attempt %d of dispatch %s has no call %d", d.Attempt, id, req.Number).WithHint("see: bailiwick dispatch tools %s --attempt %d", id, d.Attempt)
	}
	return nil
}

// errFound ends a search.
var errFound = errors.New("found")

// addContent adds the arguments and the answer of a call, while they are kept.
func (s *reader) addContent(ctx context.Context, d api.Dispatch, l *api.ToolCallLine) error {
	err := s.addRetention(ctx, &d)
	if err != nil || removal(d.Removed, api.ClassContent) != nil {
		return err
	}
	find := func() error {
		var sealed *api.Artifact
		if d.Calls != nil {
			sealed = d.Calls.Record
		}
		return s.cfg.Tools.Calls(ctx, d.ID, d.Attempt, sealed, func(c *api.ToolCallLine) error {
			if c.Number != l.Number {
				return nil
			}
			l.Arguments, l.Answer = c.Arguments, c.Answer
			return errFound
		})
	}
	if err = find(); err == nil && !d.State.Ended() { // it may have ended meanwhile
		now, _, readErr := s.row(ctx, d.ID)
		if readErr == nil {
			d, readErr = s.attempt(ctx, now.record, d.Attempt)
		}
		if err = readErr; err == nil && d.State.Ended() {
			err = find()
		}
	}
	if errors.Is(err, errFound) {
		return nil
	}
	err = s.explainMissing(ctx, d.ID, "record of the tool calls", err)
	if api.CodeOf(err) == api.CodeNotFound { // retention has just removed it
		return nil
	}
	return err
}

// toolCalls returns the calls of an attempt as the log has them, in their order.
func (s *reader) toolCalls(ctx context.Context, id api.DispatchID, attempt int) (list []api.ToolCallLine, err error) {
	at := map[int64]int{} // by number, in list
	q := audit.Query{Dispatch: id, Kinds: []record.Kind{record.KindToolCalled, record.KindToolDenied, record.KindToolReturned, record.KindToolUnknown}}
	err = s.cfg.Store.Read(ctx, func(v *store.View) error {
		return audit.Each(v, q, func(c *audit.Committed) error {
			if c.Entry.Attempt != attempt {
				return nil
			}
			switch detail := c.Entry.Detail.(type) {
			case record.ToolCall:
				at[detail.Number] = len(list)
				list = append(list, callLine(c, &detail))
			case record.ToolReturn:
				i, ok := at[detail.Number]
				if !ok {
					return nil
				}
				l := &list[i]
				l.State, l.Error, l.Millis = callReturned, detail.Error, detail.Millis
				if c.Entry.Kind == record.KindToolUnknown {
					l.State = callUnknown
				}
			}
			return nil
		})
	})
	return list, err
}

func callLine(c *audit.Committed, detail *record.ToolCall) api.ToolCallLine {
	e := &c.Entry
	l := api.ToolCallLine{
		Attempt: e.Attempt, Number: detail.Number, At: e.At, Tool: e.Tool, Decision: string(e.Decision), State: callRunning,
		Reasons: detail.Reasons, Policies: e.Policies, Approval: api.ApprovalID(detail.Approval), Entry: c.Seq,
	}
	if e.Tier != nil {
		l.Tier = *e.Tier
	}
	if e.Kind == record.KindToolDenied {
		l.State = callDenied
	}
	return l
}
