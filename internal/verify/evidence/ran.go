package evidence

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

const (
	claimedTimes    = "times: by the service's clock"
	claimedCallers  = "callers: the service authenticated them, and no caller signs a request"
	claimedPolicies = "policies: no decision was repeated"
	claimedAll      = "everything: a check fails, so nothing here is proved"
)

// ran returns what ran. r has the rows.
func (v *verification) ran(r *report.Report) *report.Ran {
	out := &report.Ran{Claimed: []string{claimedTimes, claimedCallers}, Work: []report.RanWork{}, Decided: []report.Decided{}}
	switch {
	case r.Failed():
		out.Claimed = []string{claimedAll}
	case r.Row(report.RowAuthorisation).Status != report.Pass:
		out.Claimed = append(out.Claimed, claimedPolicies)
	}
	for id := v.b.Case.Run; id != ""; {
		run := v.replayed[id]
		if run == nil || run.submitted == nil || len(out.Runs) > maxRetries {
			break
		}
		out.Runs = append(out.Runs, ranRun(run))
		id = out.Runs[len(out.Runs)-1].RetryOf
	}
	if run := v.replayed[v.b.Case.Run]; run != nil && run.plan != nil {
		for i := range run.tasks {
			out.Work = append(out.Work, ranTask(run, i))
		}
	}
	if v.b.Case.Run == "" {
		for _, h := range v.ordered {
			if w := h.work(); h.id == v.b.Case.Dispatch {
				out.Work = slices.Insert(out.Work, 0, w)
			} else {
				out.Work = append(out.Work, w)
			}
		}
	}
	v.decisions(out)
	v.docs.blobs.Range(func(_, _ any) bool { out.Content.Named++; return true })
	for i := range v.b.Content {
		if _, named := v.docs.blobs.Load(v.b.Content[i].Digest); named {
			out.Content.Here++
		}
	}
	return out
}

func ranRun(r *replay) report.RanRun {
	d := detail[record.RunRequest](r.submitted)
	out := report.RanRun{
		Run: r.id, State: "not settled", Plan: r.submitted.Refs[record.RefPlan], Tasks: len(r.tasks), Submitter: r.submitted.Principal,
		Revision: d.Revision, Rules: d.Rules, RetryOf: api.RunID(d.RetryOf), Taken: d.Taken, From: r.submitted.At,
	}
	if r.plan != nil {
		out.Queue = r.plan.Queue
	}
	if r.settled != nil {
		end := detail[record.RunEnd](r.settled)
		out.State, out.To = end.State, &r.settled.At
	}
	return out
}

// ranTask returns task i of a run.
func ranTask(r *replay, i int) report.RanWork {
	t, task := &r.tasks[i], &r.plan.Tasks[i]
	w := report.RanWork{}
	if h := r.histories[t.Dispatch]; h != nil {
		w = h.work()
	}
	w.Task, w.Subagent, w.State, w.Attempts = task.ID, task.Subagent, string(t.State), t.Attempt
	switch {
	case t.State == api.TaskDone && len(t.starts) == 0 && r.before != nil:
		w.Taken = r.before.id
	case t.State == api.TaskSkipped && t.cause >= 0 && t.cause < len(r.plan.Tasks):
		w.Because = "task " + string(r.plan.Tasks[t.cause].ID)
	}
	return w
}

// work returns a dispatch, as of its last attempt.
func (h *history) work() report.RanWork {
	w := report.RanWork{Dispatch: h.id, State: string(h.chain.State), Attempts: len(h.attempts)}
	if h.attestationValid {
		w.Statement = h.attested.Refs[record.RefStatement]
	}
	a := h.last()
	if a == nil {
		return w
	}
	if m := a.manifest; m != nil {
		w.Principal, w.Subagent, w.Target, w.Tier, w.Revision, w.Policies = m.Principal, m.Subagent, m.Target, m.Tier.String(), m.Revision, m.Policies
		if m.Endpoint != nil {
			w.Model = m.Endpoint.ID
		}
		if m.Source != nil {
			w.Source, w.Commit = m.Source.Name, m.Source.Commit
		}
	}
	w.Because = detail[record.DispatchEnd](a.final()).Reason
	w.Refused = len(a.refused)
	if w.Reused = a.reuses; w.Reused != "" && a.earlier != nil {
		a = a.earlier
	}
	if r := a.result; r != nil {
		if w.Reused == "" {
			w.Usage = r.Summary.Usage.Model
		}
		w.Signed, w.Verify = true, record.VerifyWord(r.Summary.Verify)
		if v := r.Summary.Verify; v != nil {
			w.Changed = v.Changed
		}
		if p := r.Summary.Patch; p != nil {
			w.Patch, w.Files = p.Digest, len(r.Summary.Files)
		}
	}
	return w
}

// decisions adds what principals, operators and rules decided about what ran.
func (v *verification) decisions(out *report.Ran) {
	who := map[api.Principal]bool{}
	first, last := uint64(0), uint64(0)
	revisions := map[uint64]bool{}
	for i := range v.entries {
		e := &v.entries[i]
		if !e.ok || !e.Kind.Admits() {
			continue
		}
		who[e.Principal], last = true, e.seq
		if first == 0 {
			first = e.seq
		}
		switch d := e.Detail.(type) {
		case record.RunRequest:
			revisions[uint64(max(d.Revision, 0))] = true //nolint:gosec // G115: not negative
		case record.DispatchRequest:
			revisions[uint64(max(d.Revision, 0))] = true //nolint:gosec // G115: not negative
		}
	}
	stopping, asked := v.stopping(), v.asked()
	counted := last // the last entry for which the operator keys count
	for seq, rec := range v.records {
		if rec.Vote() && asked[rec.Approval] != nil {
			counted = max(counted, seq)
		}
	}
	for i := range v.entries {
		e := &v.entries[i]
		if !e.ok {
			continue
		}
		by, what := e.Principal, v.decision(e)
		var signed []report.SignedBy
		if rec := v.records[e.seq]; rec != nil {
			signed = rec.by
		}
		switch rec := v.records[e.seq]; {
		case e.Kind == record.KindCatalogRevision && revisions[numberOf(e)]:
			by, what, signed = "", fmt.Sprintf("catalog revision %d in force", numberOf(e)), publishers(v.revisions[e.Refs[record.RefRevision]], v.trust.Deploy)
		case rec != nil && rec.Verb == api.VerbCeilingSet && who[rec.Principal] && e.seq < last:
			by, what = "", fmt.Sprintf("an operator set the ceiling of %s to %s", rec.Principal, rec.Ceiling)
		case rec != nil && rec.Vote() && asked[rec.Approval] != nil:
			by, what = rec.Principal, voted(rec, asked[rec.Approval])
		case rec != nil && rec.Verb == api.VerbOperatorSet && e.seq < counted:
			set := record.DecisionOf(&rec.OperatorRecord, nil)
			root, err := seal.ParseTrustRoot(rec.Set.Root)
			by, what = "", fmt.Sprintf("operators put set %d of their keys in force: %s must sign", set.Set, record.Signers(set.Threshold, int64(len(set.Operators)), "key", err == nil && root.Assigned()))
		case rec != nil && rec.Verb == api.VerbStopLift && e.seq > first && e.seq < last:
			by, what = "", "an operator lifted stop "+rec.Stop
		case e.Kind == record.KindStopEngaged && e.seq > first && (e.seq < last || stopping[e]):
			d := detail[record.StopEngaged](e)
			what = "engaged stop " + record.Word(d.Stop) + " on " + record.Word(d.Scope)
			if d.Name != "" {
				what += " " + record.Word(d.Name)
			}
		}
		if what != "" {
			out.Decided = append(out.Decided, report.Decided{Entry: e.seq, At: e.At, By: by, What: what, Signed: signed})
		}
	}
	v.rotations(out)
}

// stopping returns the entries that engage the stops which cancelled what ran.
func (w *world) stopping() map[*entry]bool {
	out := map[*entry]bool{}
	for _, h := range w.dispatches {
		a := h.last()
		if a == nil || a.manifest == nil {
			continue
		}
		if end := a.final(); end != nil && end.Kind == record.KindDispatchCancelled {
			if e := w.stops.after(h.attempts[0].admitted.seq, a.manifest.StopSubject()); e != nil && e.seq < end.seq {
				out[e] = true
			}
		}
	}
	return out
}

// decision says what a principal decided in an entry, or nothing. A task's own
// dispatches follow from its run.
func (v *verification) decision(e *entry) string {
	task := ""
	if e.Task != "" {
		task = "task " + record.Word(e.Task) + " of "
	}
	what := ""
	switch e.Kind { //nolint:exhaustive // the others decide nothing about what ran, or repeat it
	case record.KindRunSubmitted:
		d := detail[record.RunRequest](e)
		what = "submitted run " + record.Word(e.Run)
		if d.RetryOf != "" {
			what += fmt.Sprintf(", retrying run %s with %s taken over", record.Word(d.RetryOf), record.Plural(d.Taken, "task"))
		}
	case record.KindRunCancelled:
		what = "cancelled " + task + "run " + record.Word(e.Run)
	case record.KindRunPaused:
		what = "paused run " + record.Word(e.Run)
	case record.KindRunResumed:
		what = "resumed run " + record.Word(e.Run)
	case record.KindTaskAnswered:
		what = "answered " + task + "run " + record.Word(e.Run)
		if d := detail[record.RunAction](e); d.Option > 0 {
			what += fmt.Sprintf(" with option %d", d.Option)
		}
	case record.KindCancelRequested:
		what = "cancelled dispatch " + record.Word(e.Dispatch)
	case record.KindDispatchAccepted, record.KindDispatchAnswered:
		if e.Run != "" && v.replayed[api.RunID(e.Run)] != nil {
			return ""
		}
		what = "requested dispatch " + record.Word(e.Dispatch)
		if e.Kind == record.KindDispatchAnswered {
			what = "answered dispatch " + record.Word(e.Dispatch)
		}
	case record.KindToolCalled:
		d := detail[record.ToolCall](e)
		if what = fmt.Sprintf("called %s in dispatch %s attempt %d", record.Word(e.Tool), record.Word(e.Dispatch), e.Attempt); d.Approval != "" {
			return what + " with approval " + record.Word(d.Approval)
		}
		return what + " without an approval: allowed by " + some(e.Policies)
	case record.KindRunDenied, record.KindDispatchDenied, record.KindCancelDenied, record.KindAnswerDenied:
		return "was denied: " + string(e.Kind)
	default:
		return ""
	}
	if (e.Kind == record.KindRunSubmitted || e.Kind == record.KindDispatchAccepted) && len(e.Policies) > 0 { // the authorisation row repeats these
		what += ": allowed by " + strings.Join(e.Policies, ", ")
	}
	return what
}
