package dispatch

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Answer answers the question of a dispatch and starts the attempt that resumes
// from there, with the earlier patch and the agent's state. Whether the dispatch
// may resume is decided by today's policy. The same answer to the same attempt
// again changes nothing.
func (s *answers) Answer(ctx context.Context, caller Caller, id api.DispatchID, req api.AnswerRequest) (api.Dispatch, error) {
	principal := caller.Principal
	r, decision, err := s.access(ctx, principal, policy.ActionDispatchAnswer, id)
	if err != nil {
		return api.Dispatch{}, err
	}
	if d := &r.record; d.Run != "" {
		err := api.Errorf(api.CodeConflict, "dispatch %s belongs to task %s of run %s, which resumes it once it has its locks", id, d.Task, d.Run).
			WithHint("bailiwick run answer %s --task %s TEXT", d.Run, d.Task)
		return api.Dispatch{}, s.invalidAnswer(ctx, answering{by: principal}, err)
	}
	return s.answer(ctx, answering{caller: caller, by: principal, req: req, decision: decision}, r)
}

// answers takes the answers to questions of agents, and resumes their dispatches.
type answers struct {
	*reader
	admitter *admitter
}

// answering is an answer whose principal may give it.
type answering struct {
	caller   Caller // as whom the dispatch resumes
	by       api.Principal
	req      api.AnswerRequest
	fence    uint64 // of the next attempt; 0 outside a run
	behind   []string
	decision policy.Decision
}

func (s *answers) answer(ctx context.Context, in answering, r row) (api.Dispatch, error) {
	d, repeated, err := s.checkAnswer(ctx, r, in.req)
	if repeated || err != nil {
		return d, s.invalidAnswer(ctx, in, err)
	}
	ctx, release := s.cfg.Blobs.Protect(ctx)
	defer release() // by then the row refers to what is stored
	next, err := s.nextAttempt(ctx, r, in)
	if err != nil {
		return api.Dispatch{}, s.invalidAnswer(ctx, in, err)
	}
	x, err := s.decideResume(ctx, &next.manifest, in.caller.Ceiling)
	if err != nil {
		return api.Dispatch{}, err
	}
	d, err = s.resume(ctx, r, x, next, in)
	return d, s.admitter.denySpent(ctx, x, s.admitter.denyOvertaken(ctx, x, err))
}

// invalidAnswer logs an invalid answer of a caller. What the engine delivers was
// logged when the caller gave it.
func (s *answers) invalidAnswer(ctx context.Context, in answering, err error) error {
	if code := api.CodeOf(err); in.fence > 0 || code != api.CodeInvalid && code != api.CodeConflict {
		return err
	}
	return LogInvalid(ctx, s.cfg.Ledger, in.by, "answer", err)
}

// checkAnswer refuses an answer to a question that does not wait. It returns the
// record and true where the same answer was given before.
func (s *answers) checkAnswer(ctx context.Context, r row, req api.AnswerRequest) (api.Dispatch, bool, error) {
	d := r.record
	switch {
	case (req.Text == "") == (req.Option == 0):
		return d, false, api.Errorf(api.CodeInvalid, "answer: give either a text or the number of an option")
	case len(req.Text) > api.MaxAnswer:
		return d, false, api.Errorf(api.CodeInvalid, "answer: %d bytes, the limit is %d", len(req.Text), api.MaxAnswer)
	case req.Attempt < 0 || req.Attempt > d.Attempt:
		return d, false, api.Errorf(api.CodeConflict, "dispatch %s has no attempt %d: it has %d", d.ID, req.Attempt, d.Attempt)
	case d.State != api.EventNeedsInput || d.CancelBy != "" || req.Attempt != 0 && req.Attempt != d.Attempt:
	case d.AnswerBy != nil && s.times.left(&d) <= 0: // not expired yet, as when no service ran at that time
		return d, false, api.Errorf(api.CodeConflict, "dispatch %s attempt %d: the question expired at %s", d.ID, d.Attempt, d.AnswerBy.Format(time.RFC3339))
	default:
		return d, false, nil
	}
	if req.Attempt > 0 && req.Attempt < d.Attempt {
		earlier, err := s.attempt(ctx, d, req.Attempt)
		if err != nil {
			return d, false, err
		}
		if a := earlier.Answer; a != nil && (a.Text == req.Text || a.Option == req.Option && req.Option != 0) {
			return d, true, nil
		}
		return d, false, api.Errorf(api.CodeConflict, "dispatch %s: the question of attempt %d already has another answer, by %s", d.ID, req.Attempt, earlier.Answer.By)
	}
	state := string(d.State)
	if ending(&d) {
		state = "being cancelled by " + string(d.CancelBy)
	}
	return d, false, api.Errorf(api.CodeConflict, "dispatch %s attempt %d is %s and has no open question", d.ID, d.Attempt, state).
		WithHint("see: bailiwick dispatch show %s", d.ID)
}

// nextAttempt is an attempt that is ready to be admitted.
type nextAttempt struct {
	answer   api.Answer
	question api.Digest
	manifest record.Manifest
}

// resumeInput returns an answer to the question of r as it is recorded, the
// digest of that question, and the document that the next attempt is given.
func (s *answers) resumeInput(ctx context.Context, r row, in answering) (a api.Answer, question api.Digest, doc []byte, err error) {
	q, question, err := s.question(ctx, &r.record)
	if err != nil {
		return a, question, nil, err
	}
	req := in.req
	a = api.Answer{Text: req.Text, Option: req.Option, By: in.by, At: s.cfg.Now().UTC()}
	switch i := slices.Index(q.Options, req.Text); {
	case req.Option < 0 || req.Option > len(q.Options):
		return a, question, nil, api.Errorf(api.CodeInvalid, "answer: no option %d: the question has %d", req.Option, len(q.Options))
	case req.Option > 0:
		a.Text = q.Options[req.Option-1]
	case i >= 0:
		a.Option = i + 1
	}
	doc, err = canon.Marshal(record.ResumeInput{
		Attempt: r.record.Attempt, Question: q.Question, Options: q.Options, Context: q.Context, State: q.State,
		Answer: a.Text, Option: a.Option,
	})
	if err != nil {
		err = api.Errorf(api.CodeInvalid, "answer: %w", err)
	}
	return a, question, doc, err
}

// nextAttempt describes the attempt that resumes from the question of r. Every
// name in its manifest means what it meant in the attempt before.
func (s *answers) nextAttempt(ctx context.Context, r row, in answering) (n nextAttempt, err error) {
	var doc []byte
	if n.answer, n.question, doc, err = s.resumeInput(ctx, r, in); err != nil {
		return n, err
	}
	now := n.answer.At
	if n.answer.Digest, err = s.cfg.Blobs.Put(ctx, doc); err != nil {
		return n, storeError(err)
	}
	if n.manifest, err = s.manifest(ctx, r.record.Manifest); err != nil {
		return n, err
	}
	m := &n.manifest
	if in.fence < m.Fence {
		return n, api.Errorf(api.CodeConflict, "dispatch %s: fencing token %d is older than %d of the attempt that asked", m.ID, in.fence, m.Fence)
	}
	m.Fence = in.fence
	m.Attempt, m.Resume = m.Attempt+1, &record.Resume{Attempt: m.Attempt, Answer: n.answer.Digest}
	if p := r.record.Outcome.Patch; p != nil {
		m.Resume.Patch = p.Digest
	}
	if p := r.record.Outcome.Session; p != nil {
		m.Resume.Session = p.Digest
	}
	m.Taint = r.record.Taint // nothing removes it
	m.NotBefore, m.Expires, m.Nonce = now, now.Add(startTime), nonce()
	m.Trace = r.record.Trace.Attempt(m.ID, m.Attempt)
	return n, nil
}

// decideResume decides by today's policy whether m may run, and records the
// decision in m.
func (s *answers) decideResume(ctx context.Context, m *record.Manifest, ceiling api.Tier) (subject, error) {
	p, err := s.cfg.InForce.Current(ctx)
	if err != nil {
		return subject{}, err
	}
	x := subject{
		principal: m.Principal, consent: s.cfg.Registry.Consent(m.Principal), ceiling: ceiling, stops: s.cfg.Registry.StopsFor(m.StopSubject()),
		snapshot: p, target: m.Target, attempt: m.Attempt, run: m.Run, task: m.Task, request: m.Request(m.Capabilities),
	}
	x.subagent.Role, x.subagent.Tier = m.Role, m.Tier
	if m.Source != nil {
		x.commit = m.Source.Commit
	}
	if p.Revision != nil {
		if now, _, err := p.Revision.Subagent(m.Subagent); err == nil {
			x.request = m.Request(now.Capabilities)
		}
	}
	d := x.decide()
	if !d.Allowed() {
		return x, s.admitter.deny(ctx, x, d)
	}
	m.Policies, m.Ceiling = d.Policies(), min(m.Ceiling, d.Ceiling())
	return x, nil
}

// resume makes the answer durable together with the next attempt, and starts
// that.
func (s *answers) resume(ctx context.Context, r row, x subject, n nextAttempt, in answering) (api.Dispatch, error) {
	digest, err := s.admitter.storeManifest(ctx, n.manifest)
	if err != nil {
		return api.Dispatch{}, err
	}
	entry := record.Answered(&n.manifest, digest, n.question, n.answer.Option)
	spending, err := s.admitter.spending(ctx, &x, nil, &n.manifest, n.answer.At)
	if err != nil {
		return api.Dispatch{}, err
	}
	asked := r.record.Attempt
	after := r
	failpoint.Hit(failpoint.AnswerCommit, string(r.record.ID))
	spending.behind = in.behind
	admission, err := s.admitter.commit(ctx, in.decision, entry, spending, func(tx *store.Tx) error {
		if err := in.caller.CheckToken(); err != nil {
			return err
		}
		now, ok, err := load(tx, r.record.ID)
		if err == nil {
			err = s.admitter.checkOvertaken(tx, n.manifest)
		}
		if _, overtaken := errors.AsType[*overtakenError](err); overtaken {
			return err
		}
		if err != nil || !ok || now.record.Attempt != asked || now.record.State != api.EventNeedsInput || now.record.CancelBy != "" {
			return errors.Join(err, errEnded)
		}
		earlier := now.record
		earlier.Answer = &n.answer
		if err := insertAttempt(tx, earlier); err != nil {
			return err
		}
		after = now.next(digest, n.answer)
		return updateWaiting(tx, after, asked)
	})
	if errors.Is(err, errEnded) {
		return s.answeredMeanwhile(ctx, r, n, in)
	}
	if err != nil {
		return api.Dispatch{}, err
	}
	failpoint.Hit(failpoint.AnswerCommitted, string(r.record.ID))
	s.observeAccepted(s.life, after.record, n.answer.At)
	s.launch(admission, after, n.manifest)
	return after.record, nil
}

// answeredMeanwhile is the response to an answer that came too late. The same
// answer may have come twice at once, as when a caller retries without having
// seen the response.
func (s *answers) answeredMeanwhile(ctx context.Context, r row, n nextAttempt, in answering) (api.Dispatch, error) {
	now, ok, err := s.row(ctx, r.record.ID)
	if err != nil || !ok {
		return api.Dispatch{}, errors.Join(err, errEnded)
	}
	d, repeated, err := s.checkAnswer(ctx, now, api.AnswerRequest{Attempt: r.record.Attempt, Text: n.answer.Text})
	if repeated && err == nil {
		return d, nil
	}
	if err == nil {
		err = api.Errorf(api.CodeConflict, "dispatch %s was answered or cancelled meanwhile", r.record.ID).WithHint("see: bailiwick dispatch show %s", r.record.ID)
	}
	return api.Dispatch{}, s.invalidAnswer(ctx, in, err)
}

// next returns the row of the attempt after r.
func (r row) next(manifest api.Digest, a api.Answer) row {
	d := r.record
	d.Attempt, d.State, d.Manifest, d.ResumedAt = d.Attempt+1, api.EventAccepted, manifest, &a.At
	d.Message, d.Result, d.Outcome, d.StartedAt, d.EndedAt, d.AnswerBy, d.Calls = "", "", nil, nil, nil, nil, nil
	return row{record: d, request: r.request}
}
