package dispatch

import (
	"cmp"
	"context"
	"encoding/hex"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/audit"
	"github.com/bailiwick-dev/bailiwick/internal/policy"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// Need is what a task takes over from the dispatch of another. What it stands
// for is found in the records; a need brings no content of its own.
type Need struct {
	Name     api.Name       `json:"name"` // of the file below inputs/
	Task     api.TaskID     `json:"task"`
	Dispatch api.DispatchID `json:"dispatch"` // of Task, by which that is done
	Kind     string         `json:"kind"`     // patch, output or result
	Path     string         `json:"path,omitempty"`
}

// TaskRequest asks for the dispatch of a task. It is for who holds the records of
// runs and comes from no caller: a request has no member for any of it.
type TaskRequest struct {
	Request  api.DispatchRequest `json:"-"` // with DispatchID, and the commit of its source
	Run      api.RunID           `json:"run"`
	Task     api.TaskID          `json:"task"`
	Revision api.Digest          `json:"revision"` // of the catalog, pinned when the run was submitted
	Fence    uint64              `json:"fence"`    // of the lease on the task's locks; from 1
	Needs    []Need              `json:"needs,omitempty"`
}

// Fire is Submit for an order, of the principal whose run it is. It is decided
// anew: by the grants, consent, modes and stops of today, with the names as
// they are in the pinned revision. The same order again returns the same
// dispatch, whatever has become of it; another one under its id, or an id that
// is anybody else's, is a conflict. The codes of its errors:
//
//   - denied: policy refuses it now, and it is in the log;
//   - integrity: the revision does not verify any more;
//   - not_found: the product of a need is not there;
//   - invalid: the order is malformed;
//   - conflict: as above;
//   - any other: nothing was decided.
//
// Whether its source can be had is for the worker to find out, at the commit
// that the order names.
func (s *Service) SubmitTask(ctx context.Context, caller Caller, o TaskRequest) (api.Dispatch, error) {
	return s.submit(ctx, &ask{
		principal: caller.Principal, by: caller, ceiling: caller.Ceiling, request: o.Request, order: &o, run: o.Run, task: o.Task,
		from: s.cfg.Now(), trace: TraceOf(ctx),
	})
}

// Resume is Answer for a task's dispatch, when its task has its locks again:
// answeredBy answered, caller is the principal whose run it is, and fence is
// the number of the new lease. The attempt that is answered is named in req.
// The same answer to the same attempt again returns the current record. Where
// it is refused the dispatch waits on, for whoever knows the run to end it.
func (s *Service) ResumeTask(ctx context.Context, caller Caller, id api.DispatchID, req api.AnswerRequest, answeredBy api.Principal, fence uint64) (api.Dispatch, error) {
	r, err := s.ofRun(ctx, id)
	if err != nil {
		return api.Dispatch{}, err
	}
	if r.record.Principal != caller.Principal || req.Attempt == 0 || fence == 0 {
		return api.Dispatch{}, api.Errorf(api.CodeInvalid, "dispatch %s: it is gone on with by its own principal, from an attempt and under a lease that are named", id)
	}
	engine, err := s.Engine(ctx)
	if err != nil {
		return api.Dispatch{}, err
	}
	d := engine.Decide(policy.Request{Principal: answeredBy, Action: policy.ActionDispatchAnswer, Resource: string(id), Owner: r.record.Principal})
	if !d.Allowed() {
		return api.Dispatch{}, s.cfg.Ledger.Deny(ctx, d, audit.AccessEntry(id, string(policy.ActionDispatchAnswer)), nil)
	}
	return s.reply(ctx, reply{caller: caller, by: answeredBy, req: req, fence: fence, decision: d}, r)
}

// ValidateAnswer says whether Resume would take an answer now. It stores and logs
// nothing, and asks nobody whether the caller may answer.
func (s *Service) ValidateAnswer(ctx context.Context, id api.DispatchID, req api.AnswerRequest) error {
	r, err := s.ofRun(ctx, id)
	if err != nil {
		return err
	}
	if _, done, err := s.answered(ctx, r, req); done || err != nil {
		return err
	}
	_, _, _, err = s.resumption(ctx, r, reply{req: req})
	return err
}

// ofRun returns the row of a task's dispatch.
func (s *Service) ofRun(ctx context.Context, id api.DispatchID) (row, error) {
	r, ok, err := s.row(ctx, id)
	if err == nil && (!ok || r.record.Run == "") {
		err = api.Errorf(api.CodeNotFound, "no dispatch %s of a run", id)
	}
	return r, err
}

// Look returns the record of a dispatch, and whether there is one. It asks
// nobody whether the caller may see it.
func (s *Service) Get(ctx context.Context, id api.DispatchID) (api.Dispatch, bool, error) {
	r, ok, err := s.row(ctx, id)
	return r.record, ok, err
}

// normaliseOrder gives an order its one form, and refuses one that leaves open
// what a run has pinned.
func (a *ask) normaliseOrder() error {
	if a.order == nil {
		return nil
	}
	o, r := *a.order, &a.request
	if o.Run == "" || o.Task == "" || o.Revision == "" || o.Fence == 0 || r.DispatchID == "" {
		return api.Errorf(api.CodeInvalid, "order of task %q of run %q is incomplete", o.Task, o.Run)
	}
	if r.Source != nil && !fullCommit(r.Source.Commit) {
		return api.Errorf(api.CodeInvalid, "order of task %s: source %q: %q is not the whole name of a commit", o.Task, r.Source.Name, r.Source.Commit)
	}
	if len(o.Needs) > api.MaxTaskNeeds {
		return api.Errorf(api.CodeInvalid, "task %s has %d needs, more than %d", o.Task, len(o.Needs), api.MaxTaskNeeds)
	}
	o.Needs = slices.Clone(o.Needs)
	slices.SortFunc(o.Needs, func(x, y Need) int { return cmp.Compare(x.Name, y.Name) })
	for i, n := range o.Needs {
		want := record.Need{Name: n.Name, Task: n.Task, Dispatch: n.Dispatch, Kind: n.Kind, Path: n.Path}
		if err := want.Check(); err != nil {
			return api.Errorf(api.CodeInvalid, "task %s: %w", o.Task, err)
		}
		if i > 0 && n.Name == o.Needs[i-1].Name {
			return api.Errorf(api.CodeInvalid, "task %s: need %q is there twice", o.Task, n.Name)
		}
	}
	a.order = &o
	return nil
}

// fullCommit reports whether s is an object name, which means the same for ever.
func fullCommit(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && (len(b) == 20 || len(b) == 32)
}
