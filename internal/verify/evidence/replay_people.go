package evidence

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/ballot"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
)

// people applies the entry of a request for the approval of a task, or of its expiry.
func (r *replay) people(e *entry) error {
	i, ok := r.plan.Index(api.TaskID(e.Task))
	if ok && r.tasks[i].People && e.Attempt == 0 && e.Role == "" && e.Tool == "" && e.Tier == nil {
		return r.askedToWrite(i, e)
	}
	if !ok || r.plan.Tasks[i].Approval == nil {
		return fmt.Errorf("%s for task %.80q, which has no approval in the plan", e.Kind, e.Task)
	}
	t := &r.tasks[i]
	switch {
	case e.Attempt != 0 || e.Role != "" || e.Tool != "" || e.Tier != nil:
		return fmt.Errorf("task %s: its approval is about a call", e.Task)
	case t.State != api.TaskWaiting:
		return fmt.Errorf("task %s: %s while it is %s", e.Task, e.Kind, t.State)
	case e.Kind == record.KindApprovalRequest && t.asked != nil:
		return fmt.Errorf("task %s: its approval is requested a second time", e.Task)
	case e.Kind == record.KindApprovalRequest:
		t.asked = e
		return nil
	case t.asked == nil || t.expired != nil:
		return fmt.Errorf("task %s: its approval expired, but it was not open", e.Task)
	}
	return t.expires(e)
}

// expires applies the expiry of a request.
func (p *poll) expires(e *entry) error {
	was, now := detail[record.ApprovalRequest](p.asked), detail[record.ApprovalRequest](e)
	if was.Approval != now.Approval || was.Needs != now.Needs || len(now.Policies) > 0 || !maps.Equal(e.Refs, p.asked.Refs) {
		return fmt.Errorf("task %s: another approval expired than was requested", e.Task)
	}
	p.expired = e
	return nil
}

// approval verifies a step of a task that people approve, from the log;
// taskApprovals verifies the votes.
func (s *taskStep) approval() error {
	t := s.task()
	switch s.e.Kind { //nolint:exhaustive // the table of transitions lets it have no others
	case record.KindTaskWaiting:
		if s.d.Until != "" || s.d.Approval {
			return errors.New("people are asked once, without a retry, and not about what it writes")
		}
		t.waits = s.e.seq
		return s.past().begins(s.i)
	case record.KindTaskDone, record.KindTaskDenied:
		if t.asked == nil {
			return fmt.Errorf("%s, but no approval was requested", t.State)
		}
		if t.expired != nil {
			return fmt.Errorf("%s, but its approval had expired", t.State)
		}
		t.decided = s.e
		return nil
	case record.KindTaskCancelled:
		return s.cancel(false)
	case record.KindTaskFailed:
		switch reason := api.Reason(s.d.Reason); {
		case reason == api.ReasonTimeout && t.expired == nil:
			return errors.New("failed for time, but its approval had not expired")
		case reason != api.ReasonTimeout && t.asked != nil:
			return fmt.Errorf("failed for reason %.40q, but people were asked", s.d.Reason)
		}
		return nil
	}
	return fmt.Errorf("%s of a task that people approve", s.e.Kind)
}

// taskApprovals verifies what people were asked about tasks, and their votes.
func (d *decider) taskApprovals() {
	for _, id := range slices.Sorted(maps.Keys(d.v.replayed)) {
		r := d.v.replayed[id]
		if r == nil || r.plan == nil || r.submitted == nil {
			continue
		}
		for i := range r.tasks {
			for _, p := range append([]*poll{&r.tasks[i].poll}, r.tasks[i].writes...) {
				if p.asked == nil {
					continue
				}
				if err := d.taskApproval(r, i, p); err != nil {
					d.line.row.Fail("run %s task %s: approval %.40q: %v", r.id, r.plan.Tasks[i].ID, detail[record.ApprovalRequest](p.asked).Approval, err)
				} else {
					d.line.row.Checked++
				}
			}
		}
	}
}

// taskApproval verifies the request about a task, and what people decided.
func (d *decider) taskApproval(r *replay, i int, t *poll) error {
	a, err := d.actionOf(r, i, t)
	if err != nil {
		return err
	}
	if t.expired != nil && t.expired.At.Before(a.Expires.Add(-clockSlack)) {
		return fmt.Errorf("it expired at %s, but the entry is of %s", a.Expires, t.expired.At)
	}
	var end *entry
	switch {
	case t.decided != nil:
		end = t.decided
	case t.expired != nil:
		end = t.expired
	default:
		return nil
	}
	verb, err := d.tally(a, t.asked, end)
	switch {
	case err != nil:
		return err
	case verb == api.VerbDeny && end.Kind != record.KindTaskDenied:
		return fmt.Errorf("people denied it, but then: %s", end.Kind)
	case verb == api.VerbApprove && end.Kind != record.KindTaskDone:
		return fmt.Errorf("people approved it, but then: %s", end.Kind)
	case verb == "" && end.Kind == record.KindTaskDenied:
		return errors.New("no person who may deny it did")
	case verb == "" && end.Kind == record.KindTaskDone:
		return fmt.Errorf("not approved by %s who may do so, before the task was done", record.Plural(int64(a.Needs), "human"))
	}
	return nil
}

// tally returns what people decided between a request and an end, as the service counted
// with each vote; empty: nothing.
func (d *decider) tally(a *api.TaskAction, asked, end *entry) (api.OperatorVerb, error) {
	of := d.line.votes[a.ID]
	if err := d.v.work.spend((unitCompare + unitTool) * len(of) * len(of)); err != nil {
		return "", err
	}
	own, action := d.v.ownKeys(a.Run), a.Action()
	engine := &policy.Engine{} // a vote about a task needs no grant
	var votes []api.Vote
	for n := range of {
		c := &of[n]
		if c.seq >= end.seq || c.seq < asked.seq || c.record.Content != asked.Refs[record.RefAction] || own && !c.record.assigned {
			continue
		}
		if at := later(c.at, c.record.At); !at.Before(a.Expires.Add(clockSlack)) {
			return "", fmt.Errorf("the vote of %s is of %s, after it expired at %s", c.record.Principal, at, a.Expires)
		}
		votes = votes[:0]
		for k := range of[:n+1] {
			if b := &of[k]; b.seq >= asked.seq && b.record.Content == c.record.Content && (!own || b.record.assigned) && (b.withdrawn == 0 || b.withdrawn > c.seq) {
				votes = append(votes, b.vote())
			}
		}
		switch {
		case c.record.Verb == api.VerbDeny && engine.DecideVote(policy.VoteRequest{Voter: c.record.Principal, Action: action}).Allowed():
			return api.VerbDeny, nil
		case engine.Approved(&action, votes):
			return api.VerbApprove, nil
		}
	}
	return "", nil
}

// ownKeys reports whether votes about the work of a run count only under keys that have a
// principal. Before plan.Rules 5 keys had none, and a bundle about a dispatch alone does not
// have the rules of its run.
func (w *world) ownKeys(id api.RunID) bool {
	return w.rulesOf(id) >= plan.RulesOfOwners
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// vote returns the vote as policy counts it.
func (c *cast) vote() api.Vote { return ballot.VoteOf(&c.record.OperatorRecord, c.record.verified) }

// actionOf reads what people were asked, which has to be exactly what the plan and the
// products of the dispatches give.
func (d *decider) actionOf(r *replay, i int, t *poll) (*api.TaskAction, error) {
	doc, err := d.v.docs.load(t.asked.Refs[record.RefAction], "action", t.asked.reader())
	if err != nil {
		return nil, err
	}
	got := &api.TaskAction{}
	if err := d.v.docs.exact(doc, got); err != nil {
		return nil, fmt.Errorf("action: %w", err)
	}
	if r.plan.Tasks[i].Approval == nil {
		return got, d.writeAction(r, i, t, got)
	}
	return got, d.taskAction(r, i, t, got)
}

// taskAction compares what people were asked about a task that is an approval.
func (d *decider) taskAction(r *replay, i int, t *poll, got *api.TaskAction) error {
	p := &r.plan.Tasks[i]
	asked, timeout := detail[record.ApprovalRequest](t.asked), time.Duration(p.Approval.Timeout)
	if timeout == 0 {
		timeout = time.Duration(api.DefaultApprovalExpiry)
	}
	want := record.TaskAction(r.id, p.ID, r.submitted.Principal, r.submitted.Refs[record.RefPlan], p.Approval.By, max(1, p.Approval.Count))
	want.ID, want.Expires = api.ApprovalID(asked.Approval), got.Expires
	if err := d.showing(r, i, t, got, &want); err != nil {
		return err
	}
	switch {
	case !sameJSON(want, got):
		return errors.New("people were shown other content than the plan and the products of its tasks give: " + differing(&want, got))
	case asked.Needs != int64(want.Needs) || len(asked.Policies) > 0:
		return fmt.Errorf("the entry says that it needs %s, but the plan says %d", record.Plural(asked.Needs, "human"), want.Needs)
	case got.Expires.After(t.asked.At.Add(timeout + clockSlack)):
		return fmt.Errorf("it expires at %s, more than %s after it was requested", got.Expires, timeout)
	}
	return nil
}

// showing appends to want what people are shown of each task that was done when the
// request was made: after the task began to wait, and before the entry of the request.
// A voter may end in between, so of that time got tells how much had happened.
func (d *decider) showing(r *replay, i int, t *poll, got, want *api.TaskAction) error {
	list := r.plan.Shown(i)
	if err := d.v.work.spend(unitCompare * (len(list) + len(got.Shown))); err != nil {
		return err
	}
	until := t.waits
	for _, s := range got.Shown {
		if n, ok := r.plan.Index(s.Task); ok && r.tasks[n].State == api.TaskDone && r.tasks[n].settledAt < t.asked.seq {
			until = max(until, r.tasks[n].settledAt)
		}
	}
	for _, n := range list {
		if r.tasks[n].settledAt > until {
			continue
		}
		s, ok, err := d.shown(r, int(n), t.asked.seq)
		if err != nil {
			return err
		}
		if ok {
			want.Shown = append(want.Shown, s)
		}
	}
	return nil
}

// differing names the members of two actions that differ.
func differing(a, b *api.TaskAction) string {
	var list []string
	for name, differs := range map[string]bool{
		"approval": a.ID != b.ID, "run": a.Run != b.Run, "task": a.Task != b.Task, "principal": a.Principal != b.Principal, "plan": a.Plan != b.Plan,
		"by": !slices.Equal(a.By, b.By), "needs": a.Needs != b.Needs, "shown": !sameJSON(a.Shown, b.Shown), "v": a.V != b.V, "write": !sameJSON(a.Write, b.Write),
	} {
		if differs {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// shown returns what people are shown of task n as of an entry; false if it has no
// products then.
func (d *decider) shown(r *replay, n int, before uint64) (s api.ShownTask, ok bool, err error) {
	t, id := &r.tasks[n], r.plan.Tasks[n].ID
	if t.Dispatch == "" || t.State != api.TaskDone {
		return s, false, nil
	}
	h := d.v.dispatches[t.Dispatch]
	if h == nil {
		return s, false, fmt.Errorf("it shows task %s, whose dispatch %s is not in the bundle", id, t.Dispatch)
	}
	a := h.finished(before)
	if a == nil {
		return s, false, fmt.Errorf("it shows task %s, whose dispatch %s had not finished", id, t.Dispatch)
	}
	made := a.made()
	if made == nil || made.result == nil || made.end == nil {
		return s, false, fmt.Errorf("it shows task %s, whose result is not in the bundle", id)
	}
	s, err = record.ShownTask(id, t.Dispatch, made.end.Refs[record.RefResult], &made.result.Summary)
	return s, err == nil, err
}
