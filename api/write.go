package api

import "slices"

// WriteRule is who approves what a task is to write, before it starts.
type WriteRule struct {
	By    []Principal `json:"by"`              // who may approve; never who submitted the task
	Count int         `json:"count,omitempty"` // how many of them have to; 0 is 1
	// Timeout is how long they have; 0 is DefaultApprovalExpiry.
	Timeout Duration `json:"timeout,omitempty"`
}

// Needs is how many different people have to approve.
func (r *WriteRule) Needs() int { return max(1, r.Count) }

// Expiry is how long a request waits for them.
func (r *WriteRule) Expiry() Duration {
	if r.Timeout == 0 {
		return DefaultApprovalExpiry
	}
	return r.Timeout
}

// And joins two rules; each may be nil: who may approve by both, as many as
// the stricter one wants, in the shorter time. Rules that no people can meet together
// let nothing start.
func (r *WriteRule) And(o *WriteRule) *WriteRule {
	if o == nil {
		return r
	}
	out := WriteRule{By: slices.Sorted(slices.Values(o.By)), Count: o.Needs(), Timeout: o.Expiry()}
	if r != nil {
		out.By = slices.DeleteFunc(out.By, func(p Principal) bool { return !slices.Contains(r.By, p) })
		out.Count, out.Timeout = max(out.Count, r.Needs()), min(out.Timeout, r.Expiry())
	}
	return &out
}
