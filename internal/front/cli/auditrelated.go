package cli

import (
	"context"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// maxRelated bounds how many entries are read to find one that belongs to another.
const maxRelated = 1000

// relatedEntry is an entry that belongs to the one that audit show prints.
type relatedEntry struct {
	What string `json:"what"` // call, return, request, vote or expiry
	Seq  uint64 `json:"seq"`
	Text string `json:"text"`
}

// relation finds entries that belong to another: those of the query that pass the test.
type relation struct {
	what  string
	query api.LogQuery
	test  func(*record.Entry) bool
}

// relations returns what to look for around an entry about a tool call or an approval.
// A call and its return follow each other closely; those of an approval may be far apart.
func relations(l api.LogLine, e *record.Entry) []relation {
	kinds := func(list ...record.Kind) (texts []string) {
		for _, k := range list {
			texts = append(texts, string(k))
		}
		return texts
	}
	called, returned := kinds(record.KindToolCalled), kinds(record.KindToolReturned, record.KindToolUnknown)
	switch d := e.Detail.(type) {
	case record.ToolCall:
		list := approvalRelations(d.Approval, e.Dispatch)
		if e.Kind != record.KindToolCalled {
			return list
		}
		return append(list, relation{"return", api.LogQuery{Dispatch: e.Dispatch, Kinds: returned, After: &l.Seq, First: maxRelated}, func(o *record.Entry) bool {
			r, ok := o.Detail.(record.ToolReturn)
			return ok && r.Number == d.Number && o.Attempt == e.Attempt
		}})
	case record.ToolReturn:
		return []relation{{"call", api.LogQuery{Dispatch: e.Dispatch, Kinds: called, Before: &l.Seq, Last: maxRelated}, func(o *record.Entry) bool {
			c, ok := o.Detail.(record.ToolCall)
			return ok && c.Number == d.Number && o.Attempt == e.Attempt
		}}}
	case record.ApprovalRequest:
		return append(approvalRelations(d.Approval, e.Dispatch), relation{"call", api.LogQuery{Dispatch: e.Dispatch, Kinds: called, After: &l.Seq, First: maxRelated}, func(o *record.Entry) bool {
			c, ok := o.Detail.(record.ToolCall)
			return ok && c.Approval == d.Approval
		}})
	case record.OperatorDecision:
		return approvalRelations(d.Approval, "")
	}
	return nil
}

// approvalRelations finds the request for an approval, its votes, and its expiry.
func approvalRelations(id string, dispatch api.DispatchID) []relation {
	if id == "" {
		return nil
	}
	asked := func(o *record.Entry) bool {
		r, ok := o.Detail.(record.ApprovalRequest)
		return ok && r.Approval == id
	}
	return []relation{
		{"request", api.LogQuery{Dispatch: dispatch, Kinds: []string{string(record.KindApprovalRequest)}, Last: maxRelated}, asked},
		{"vote", api.LogQuery{Kinds: []string{string(record.KindOperatorRecorded)}, Last: maxRelated}, func(o *record.Entry) bool {
			v, ok := o.Detail.(record.OperatorDecision)
			return ok && v.Approval == id
		}},
		{"expiry", api.LogQuery{Dispatch: dispatch, Kinds: []string{string(record.KindApprovalExpired)}, Last: maxRelated}, asked},
	}
}

// related returns the entries that belong to an entry about a tool call or an approval.
func related(ctx context.Context, o client.Operator, l api.LogLine, e *record.Entry) (list []relatedEntry, err error) {
	for _, r := range relations(l, e) {
		err := o.Log(ctx, r.query, false, func(other api.LogLine) error {
			found, err := record.DecodeEntry(other.Leaf)
			if err == nil && other.Seq != l.Seq && r.test(&found) {
				list = append(list, relatedEntry{r.what, other.Seq, found.Line(other.Seq)})
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}
