package record

import (
	"fmt"
	"slices"
)

// CallChain is what the entries of one dispatch say of its tool calls so far.
//
// The calls of an attempt are numbered from 1 without gaps, allowed and denied ones
// together. Each allowed call has exactly one tool.returned or tool.unknown, before its
// attempt ends. An approval is requested before it is used, and is used once.
type CallChain struct {
	Attempt int
	Last    int64             // number of the last call of Attempt
	Out     []OpenCall        // allowed, and neither returned nor unknown
	Asked   map[string]string // the tool of each approval that was requested, and not used or expired
	past    map[string]bool   // used and expired approvals
}

// OpenCall is a call that is out.
type OpenCall struct {
	Number int64
	Tool   string
}

// Step applies the next entry of the dispatch. After an error nothing has changed.
func (c *CallChain) Step(e *Entry) error {
	switch d := e.Detail.(type) {
	case ToolCall:
		return c.call(e, d)
	case ToolReturn:
		i := slices.Index(c.Out, OpenCall{d.Number, e.Tool})
		if i < 0 || e.Attempt != c.Attempt {
			return fmt.Errorf("%s of call %d of %s, which is not out", e.Kind, d.Number, Word(e.Tool))
		}
		c.Out = slices.Delete(slices.Clone(c.Out), i, i+1)
	case ApprovalRequest:
		return c.approval(e, d)
	case DispatchEnd:
		if len(c.Out) > 0 {
			return fmt.Errorf("%s while call %d of %s is out", e.Kind, c.Out[0].Number, Word(c.Out[0].Tool))
		}
	}
	return nil
}

func (c *CallChain) call(e *Entry, d ToolCall) error {
	last := c.Last
	if e.Attempt != c.Attempt {
		last = 0
	}
	tool, asked := c.Asked[d.Approval]
	switch {
	case d.Number != last+1:
		return fmt.Errorf("%s has number %d, but the call before it has %d", e.Kind, d.Number, last)
	case e.Kind == KindToolDenied && d.Approval != "" && (asked || c.past[d.Approval]): // it names the one that was missing
	case d.Approval != "" && (!asked || tool != e.Tool):
		return fmt.Errorf("call %d of %s uses approval %s, which is not open for it", d.Number, Word(e.Tool), Word(d.Approval))
	}
	c.Attempt, c.Last = e.Attempt, d.Number
	if e.Kind == KindToolCalled {
		c.Out = append(slices.Clone(c.Out), OpenCall{d.Number, e.Tool})
		c.close(d.Approval)
	}
	return nil
}

func (c *CallChain) approval(e *Entry, d ApprovalRequest) error {
	tool, asked := c.Asked[d.Approval]
	if e.Kind == KindApprovalExpired {
		if !asked || tool != e.Tool {
			return fmt.Errorf("approval %s expired, but it was not open for %s", Word(d.Approval), Word(e.Tool))
		}
		c.close(d.Approval)
		return nil
	}
	if asked || c.past[d.Approval] || d.Approval == "" {
		return fmt.Errorf("approval %s is requested a second time", Word(d.Approval))
	}
	if c.Asked == nil {
		c.Asked = map[string]string{}
	}
	c.Asked[d.Approval] = e.Tool
	return nil
}

// close ends an approval, if it is one.
func (c *CallChain) close(id string) {
	if id == "" {
		return
	}
	if c.past == nil {
		c.past = map[string]bool{}
	}
	delete(c.Asked, id)
	c.past[id] = true
}
