package dispatch

import (
	"context"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
)

// TaskRequest requests the dispatch of a run's task. It comes from the keeper of
// the runs and never from a caller: an API request has no member for any of it.
type TaskRequest struct {
	Request  api.DispatchRequest `json:"-"` // with DispatchID, and the commit of its source
	Run      api.RunID           `json:"run"`
	Task     api.TaskID          `json:"task"`
	Revision api.Digest          `json:"revision"` // of the catalog, pinned when the run was submitted
	Fence    uint64              `json:"fence"`    // fencing token of the lease on the task's locks; from 1
	Needs    []Need              `json:"needs,omitempty"`
	// ItemFrom is the dispatch whose products gave the item that the task is for.
	ItemFrom api.DispatchID `json:"itemFrom,omitempty"`
	// Influences are the finished dispatches whose content decided that the task runs: see
	// plan.Influences. They are no part of what makes two requests the same, since a voter
	// may finish after its quorum is known.
	Influences []api.DispatchID `json:"-"`
	// Reuse says which results of earlier dispatches it may have; nil allows all.
	Reuse  *api.ReusePolicy `json:"reuse,omitempty"`
	Budget *api.Budget      `json:"budget,omitempty"` // of the plan of the run
	// Behind are the budgets for which tasks wait that started before this one: see Reserved.
	Behind []string `json:"-"`
}

// Need is what a task takes over from the dispatch of another. Its content is
// resolved from the records; a need brings none of its own.
type Need struct {
	Name     api.Name       `json:"name"`           // of the file below inputs/
	Item     string         `json:"item,omitempty"` // of a directory NAME, in which this is the file
	Task     api.TaskID     `json:"task"`
	Dispatch api.DispatchID `json:"dispatch"` // the one that finished Task
	Kind     string         `json:"kind"`     // patch, output or result
	Path     string         `json:"path,omitempty"`
}

// String returns what the need takes over.
func (n Need) String() string {
	switch n.Kind {
	case record.NeedOutput:
		return "output " + n.Path
	case record.NeedResult:
		return "structured result"
	}
	return "patch"
}

// SubmitTask is Submit for a task of the caller's run. It is decided by the
// grants, consent, modes and stops of today, with the names of the pinned
// revision. The same request again returns the same dispatch, whatever its
// state. The codes of its errors:
//
//   - denied: policy refuses it now; logged;
//   - integrity: the revision no longer verifies;
//   - not_found: the product of a need does not exist;
//   - invalid: the request is malformed;
//   - conflict: the id belongs to another request, or to another principal;
//   - any other: nothing was decided. Unapproved: people have to approve it first.
//
// The worker finds out whether the pinned commit can be fetched. A dispatch of a pure
// subagent that has the result of an earlier one returns as finished, and never runs.
func (s *Service) SubmitTask(ctx context.Context, caller Caller, t TaskRequest) (api.Dispatch, error) {
	return s.submit(ctx, caller, t.Request, &t)
}

// ResumeTask is Answer for a task's dispatch, once its task has its locks again:
// answeredBy gave the answer, caller is the principal of the run, and fence is
// the token of the new lease, and behind is that of TaskRequest. req names the attempt. The same answer to the same
// attempt again returns the current record. After a refusal the dispatch keeps
// waiting, for the caller to cancel it.
func (s *answers) ResumeTask(ctx context.Context, caller Caller, id api.DispatchID, req api.AnswerRequest, answeredBy api.Principal, fence uint64, behind []string) (api.Dispatch, error) {
	r, err := s.taskRow(ctx, id)
	if err != nil {
		return api.Dispatch{}, err
	}
	if r.record.Principal != caller.Principal || req.Attempt == 0 || fence == 0 {
		return api.Dispatch{}, api.Errorf(api.CodeInvalid, "dispatch %s: resume needs its owner, its attempt number and its fencing token", id)
	}
	engine, err := s.Engine(ctx)
	if err != nil {
		return api.Dispatch{}, err
	}
	d := engine.Decide(policy.Request{Principal: answeredBy, Action: policy.ActionDispatchAnswer, Resource: string(id), Owner: r.record.Principal})
	if !d.Allowed() {
		return api.Dispatch{}, s.cfg.Ledger.Deny(ctx, d, audit.AccessEntry(id, string(policy.ActionDispatchAnswer)), nil)
	}
	return s.answer(ctx, answering{caller: caller, by: answeredBy, req: req, fence: fence, behind: behind, decision: d}, r)
}

// ValidateAnswer reports why ResumeTask would refuse an answer now, or the number of
// the option that it chooses, by number or in its words; 0 for none. It stores and
// logs nothing, and checks no permissions.
func (s *answers) ValidateAnswer(ctx context.Context, id api.DispatchID, req api.AnswerRequest) (option int, err error) {
	r, err := s.taskRow(ctx, id)
	if err != nil {
		return 0, err
	}
	if _, repeated, err := s.checkAnswer(ctx, r, req); repeated || err != nil {
		return 0, err
	}
	a, _, _, err := s.resumeInput(ctx, r, answering{req: req})
	return a.Option, err
}

// taskRow returns the row of a task's dispatch.
func (s *records) taskRow(ctx context.Context, id api.DispatchID) (row, error) {
	r, ok, err := s.row(ctx, id)
	if err == nil && (!ok || r.record.Run == "") {
		err = api.Errorf(api.CodeNotFound, "no dispatch %s of a run", id)
	}
	return r, err
}
