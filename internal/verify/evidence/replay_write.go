package evidence

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
)

// askedToWrite applies the entry of a request about what a task is to write, or of its
// expiry. A later request about the same dispatch takes the place of an earlier one.
func (r *replay) askedToWrite(i int, e *entry) error {
	t := &r.tasks[i]
	if t.State != api.TaskWaiting {
		return fmt.Errorf("task %s: %s while it is %s", e.Task, e.Kind, t.State)
	}
	if e.Kind == record.KindApprovalRequest {
		t.writes = append(t.writes, &poll{asked: e, starts: t.Dispatch})
		return nil
	}
	p := t.lastWrite(t.Dispatch, e.seq)
	if p == nil || p.expired != nil {
		return fmt.Errorf("task %s: its approval expired, but it was not open", e.Task)
	}
	return p.expires(e)
}

// lastWrite returns the newest request before entry n about what a dispatch is to write;
// nil without one.
func (t *taskReplay) lastWrite(id api.DispatchID, n uint64) *poll {
	for _, p := range slices.Backward(t.writes) {
		if p.asked.seq < n && p.starts == id {
			return p
		}
	}
	return nil
}

// writing verifies a step of a task that waits for people to approve what it is to write,
// from the log; taskApprovals verifies the votes.
func (s *taskStep) writing() error {
	p := s.task().lastWrite(s.was.Dispatch, s.e.seq)
	switch s.e.Kind { //nolint:exhaustive // the table of transitions lets it have no others
	case record.KindTaskWaiting:
		if s.d.Until != "" || s.d.Reason != "" || s.was.State != api.TaskRunning {
			return errors.New("waiting for people to approve what it writes, but no attempt of it began")
		}
		return nil
	case record.KindTaskCancelled:
		return s.cancel(false)
	case record.KindTaskDenied:
		if p == nil || p.expired != nil {
			return errors.New("denied, but no approval of what it writes was requested, or the request had ended")
		}
		p.decided = s.e
		return nil
	case record.KindTaskFailed:
		switch reason := api.Reason(s.d.Reason); {
		case reason == api.ReasonTimeout && (p == nil || p.expired == nil):
			return errors.New("failed for time, but its approval had not expired")
		case reason != api.ReasonTimeout && p != nil:
			return fmt.Errorf("failed for reason %.40q, but people were asked", s.d.Reason)
		}
		return nil
	}
	return fmt.Errorf("%s of a task that waits for people to approve what it writes", s.e.Kind)
}

// writeAction compares what people were asked about what a task writes: with the manifest
// of its dispatch once that is admitted, and before with the plan.
func (d *decider) writeAction(r *replay, i int, t *poll, got *api.TaskAction) error {
	w, p := got.Write, &r.plan.Tasks[i]
	switch {
	case w == nil:
		return errors.New("people were asked about no task that writes")
	case w.Dispatch != t.starts:
		return fmt.Errorf("people were asked about dispatch %.80q, but the task waits to start %s", w.Dispatch, t.starts)
	}
	asked := detail[record.ApprovalRequest](t.asked)
	want := record.TaskAction(r.id, p.ID, r.submitted.Principal, r.submitted.Refs[record.RefPlan], got.By, got.Needs)
	want.ID, want.Expires, want.Write = api.ApprovalID(asked.Approval), got.Expires, w
	if err := d.v.work.spend(unitCompare * (len(w.Input) + len(w.Needs)*len(w.Needs))); err != nil {
		return err
	}
	input, err := canon.Canonicalize(w.Input)
	if err != nil {
		return err
	}
	if h := r.histories[w.Dispatch]; h != nil && len(h.attempts) > 0 && h.attempts[0].manifest != nil {
		m := h.attempts[0].manifest
		is := record.WriteAction(m, w.Input)
		if want.Write = &is; api.DigestOf(input) != m.Input {
			return errors.New("people were shown another input than its dispatch has")
		}
	} else if err := writePlanned(r, i, w, api.DigestOf(input)); err != nil {
		return err
	}
	for n := range w.Needs {
		need := &w.Needs[n]
		if slices.ContainsFunc(w.Needs[:n], func(o api.WriteNeed) bool { return o.Dispatch == need.Dispatch }) {
			continue
		}
		from, ok := r.plan.Index(need.Task)
		if !ok || r.tasks[from].Dispatch != need.Dispatch {
			return fmt.Errorf("people were shown need %q of dispatch %s, which does not belong to task %.80q", need.Name, need.Dispatch, need.Task)
		}
		s, ok, err := d.shown(r, from, t.asked.seq)
		switch {
		case err != nil:
			return err
		case !ok:
			return fmt.Errorf("people were shown need %q of task %s, which is not done", need.Name, need.Task)
		}
		want.Shown = append(want.Shown, s)
	}
	switch {
	case !sameJSON(want, got):
		return errors.New("people were shown other content than its dispatch and the products of its needs give: " + differing(&want, got))
	case asked.Needs != int64(got.Needs) || got.Needs < 1 || len(asked.Policies) > 0:
		return fmt.Errorf("the entry says that it needs %s, but the action says %d", record.Plural(asked.Needs, "human"), got.Needs)
	}
	return nil
}

// writePlanned compares what people were asked about a dispatch that was never admitted
// with its task in the plan.
func writePlanned(r *replay, i int, w *api.WriteAction, input api.Digest) error {
	t := &r.plan.Tasks[i]
	source, wanted := api.Name(""), api.Name("")
	if w.Source != nil {
		source = w.Source.Name
	}
	if t.Source != nil {
		wanted = t.Source.Name
	}
	if w.Subagent != t.Subagent || t.Target != "" && w.Target != t.Target || source != wanted || !slices.Equal(w.Envs, t.Envs) || !all(t.Capabilities, w.Capabilities) || input != r.inputs[i] {
		return fmt.Errorf("people were shown another subagent, target, source, envs, capabilities or input than task %s of the plan has", t.ID)
	}
	return nil
}

// writes verifies that people approved what a dispatch writes before it was admitted, if
// the grants of its principal had such a rule then.
func (d *decider) writes(a *admission, m *record.Manifest) error {
	if a.e.Kind != record.KindDispatchAccepted {
		return nil // it resumes with an answer
	}
	rev := d.v.revisions[m.RevisionDigest]
	if rev == nil {
		return nil // the provenance row reports it
	}
	sub, err := rev.subagent(m.Subagent)
	if err != nil || sub.Effect != api.EffectWrite {
		return nil //nolint:nilerr // likewise
	}
	return d.inForce(a, func(in *revision, engine *policy.Engine) error {
		if err := d.v.work.spend(unitDecision); err != nil {
			return err
		}
		rule := engine.Writes(m.Principal, sub.Effect)
		if rule == nil {
			return nil
		}
		if err := d.approvedToWrite(a, m, rule); err != nil {
			return fmt.Errorf("dispatch %s of subagent %q, which writes where catalog revision %d requires people to approve it: %w", m.ID, m.Subagent, in.doc.Number, err)
		}
		return nil
	})
}

// approvedToWrite verifies the approval of what a dispatch writes by a rule.
func (d *decider) approvedToWrite(a *admission, m *record.Manifest, rule *api.WriteRule) error {
	if m.Run == "" {
		return errors.New("it belongs to no run, so no approval was requested")
	}
	r := d.v.replayed[m.Run]
	if r == nil || r.plan == nil || r.submitted == nil {
		return nil // the bundle is about the dispatch alone
	}
	i, ok := r.plan.Index(m.Task)
	if !ok {
		return nil // planned reports it
	}
	p := r.tasks[i].lastWrite(m.ID, a.e.seq)
	if p == nil {
		return errors.New("no approval was requested before it was admitted")
	}
	action, err := d.actionOf(r, i, p)
	switch {
	case err != nil:
		return err
	case !slices.Equal(action.By, rule.By) || action.Needs != rule.Needs():
		return fmt.Errorf("%d of %q were asked, but %d of %q have to approve it", action.Needs, action.By, rule.Needs(), rule.By)
	case action.Expires.After(p.asked.At.Add(time.Duration(rule.Expiry()) + clockSlack)):
		return fmt.Errorf("it expires at %s, more than %s after it was requested", action.Expires, time.Duration(rule.Expiry()))
	case p.expired != nil && p.expired.seq < a.e.seq:
		return errors.New("its approval had expired")
	}
	verb, err := d.tally(action, p.asked, a.e)
	if err == nil && verb != api.VerbApprove {
		err = fmt.Errorf("not approved by %s who may do so, before it was admitted", record.Plural(int64(action.Needs), "human"))
	}
	return err
}
