package dispatch

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/policy"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// maxQuestion bounds a question as it is stored: escaping makes it longer than
// the agent wrote it.
const maxQuestion = 6*api.MaxQuestion + 1024

// question returns what an attempt that ended with a question asks, and the
// digest of that.
func (s *Service) question(ctx context.Context, d *api.Dispatch) (api.Question, api.Digest, error) {
	var q api.Question
	if d.Outcome == nil || d.Outcome.Question == nil {
		return q, "", api.Errorf(api.CodeNotFound, "dispatch %s attempt %d has no question", d.ID, d.Attempt)
	}
	digest := d.Outcome.Question.Digest
	b, err := s.cfg.Blobs.Get(ctx, digest, maxQuestion)
	if err != nil {
		return q, digest, err
	}
	return q, digest, canon.Decode(b, &q)
}

// Answer answers the question of a dispatch and starts the attempt that goes
// on from there, with the earlier patch and the agent's state. Whether the
// dispatch may go on is decided anew: what its caller was granted may have
// changed. The same answer to the same attempt again changes nothing.
func (s *Service) Answer(ctx context.Context, caller Caller, id api.DispatchID, req api.AnswerRequest) (api.Dispatch, error) {
	principal := caller.Principal
	r, decision, err := s.access(ctx, principal, policy.ActionDispatchAnswer, id)
	if err != nil {
		return api.Dispatch{}, err
	}
	if d := &r.record; d.Run != "" {
		err := api.Errorf(api.CodeConflict, "dispatch %s is of task %s of run %s, which goes on with it when it has its locks", id, d.Task, d.Run).
			WithHint("bailiwick run answer %s --task %s …", d.Run, d.Task)
		return api.Dispatch{}, s.invalidAnswer(ctx, principal, err)
	}
	return s.reply(ctx, reply{caller: caller, by: principal, req: req, decision: decision}, r)
}

// reply is an answer that may be given.
type reply struct {
	caller   Caller // who goes on with the dispatch
	by       api.Principal
	req      api.AnswerRequest
	fence    uint64 // of the next attempt; 0 where it is no task's
	decision policy.Decision
}

// reply is the one way from an answer to the next attempt.
func (s *Service) reply(ctx context.Context, y reply, r row) (api.Dispatch, error) {
	d, done, err := s.answered(ctx, r, y.req)
	if done || err != nil {
		return d, s.invalidAnswer(ctx, y.by, err)
	}
	ctx, release := s.cfg.Blobs.Protect(ctx)
	defer release() // the row refers to what is stored by then
	next, err := s.nextAttempt(ctx, r, y)
	if err != nil {
		return api.Dispatch{}, s.invalidAnswer(ctx, y.by, err)
	}
	a, err := s.stillAllowed(ctx, &next.manifest, y.caller.Ceiling)
	if err != nil {
		return api.Dispatch{}, err
	}
	next.by = y.caller
	d, err = s.resume(ctx, r, next, y.decision)
	return d, s.decideAgain(ctx, a, err)
}

func (s *Service) invalidAnswer(ctx context.Context, principal api.Principal, err error) error {
	if code := api.CodeOf(err); code != api.CodeInvalid && code != api.CodeConflict {
		return err
	}
	return LogInvalid(ctx, s.cfg.Ledger, principal, "answer", err)
}

// answered refuses an answer to a question that does not wait, unless it is
// one that has been given already.
func (s *Service) answered(ctx context.Context, r row, req api.AnswerRequest) (api.Dispatch, bool, error) {
	d := r.record
	switch {
	case (req.Text == "") == (req.Option == 0):
		return d, false, api.Errorf(api.CodeInvalid, "answer: give a text or the number of an option")
	case len(req.Text) > api.MaxAnswer:
		return d, false, api.Errorf(api.CodeInvalid, "answer: %d bytes, more than %d", len(req.Text), api.MaxAnswer)
	case req.Attempt < 0 || req.Attempt > d.Attempt:
		return d, false, api.Errorf(api.CodeConflict, "dispatch %s has no attempt %d: it has %d", d.ID, req.Attempt, d.Attempt)
	case d.State != api.EventNeedsInput || d.CancelBy != "" || req.Attempt != 0 && req.Attempt != d.Attempt:
	case d.AnswerBy != nil && !s.cfg.Now().Before(*d.AnswerBy): // nobody has ended it yet, as where no service ran at that time
		return d, false, api.Errorf(api.CodeConflict, "dispatch %s attempt %d was to be answered by %s", d.ID, d.Attempt, d.AnswerBy.Format(time.RFC3339))
	default:
		return d, false, nil
	}
	if req.Attempt > 0 && req.Attempt < d.Attempt {
		earlier, err := s.at(ctx, d, req.Attempt)
		if err != nil {
			return d, false, err
		}
		if a := earlier.Answer; a != nil && (a.Text == req.Text || a.Option == req.Option && req.Option != 0) {
			return d, true, nil
		}
		return d, false, api.Errorf(api.CodeConflict, "dispatch %s: the question of attempt %d has been answered otherwise, by %s", d.ID, req.Attempt, earlier.Answer.By)
	}
	is := string(d.State)
	if ending(&d) {
		is = "being cancelled by " + string(d.CancelBy)
	}
	return d, false, api.Errorf(api.CodeConflict, "dispatch %s attempt %d is %s and asks nothing", d.ID, d.Attempt, is).
		WithHint("see: bailiwick dispatch show %s", d.ID)
}

// next is an attempt that is ready to be admitted.
type next struct {
	by       Caller
	answer   api.Answer
	question api.Digest
	manifest record.Manifest
}

// resumption returns an answer to the question of r as it is recorded, the
// digest of that question, and the document that the next attempt is given.
func (s *Service) resumption(ctx context.Context, r row, y reply) (a api.Answer, question api.Digest, doc []byte, err error) {
	q, question, err := s.question(ctx, &r.record)
	if err != nil {
		return a, question, nil, err
	}
	req := y.req
	a = api.Answer{Text: req.Text, Option: req.Option, By: y.by, At: s.cfg.Now().UTC()}
	switch i := slices.Index(q.Options, req.Text); {
	case req.Option < 0 || req.Option > len(q.Options):
		return a, question, nil, api.Errorf(api.CodeInvalid, "answer: option %d: the question has %d", req.Option, len(q.Options))
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

// nextAttempt describes the attempt that goes on from the question of r. Every
// name in it means what it meant in the attempt before.
func (s *Service) nextAttempt(ctx context.Context, r row, y reply) (n next, err error) {
	var doc []byte
	if n.answer, n.question, doc, err = s.resumption(ctx, r, y); err != nil {
		return n, err
	}
	now := n.answer.At
	stored, err := s.cfg.Blobs.Put(ctx, doc)
	if err != nil {
		return n, unstorable(err)
	}
	if n.manifest, err = s.manifest(ctx, r.record.Manifest); err != nil {
		return n, err
	}
	n.answer.Digest = stored
	m := &n.manifest
	if y.fence < m.Fence {
		return n, api.Errorf(api.CodeConflict, "dispatch %s: the fencing number %d is older than %d, that of the attempt that asked", m.ID, y.fence, m.Fence)
	}
	m.Fence = y.fence
	m.Attempt, m.Resume = m.Attempt+1, &record.Resume{Attempt: m.Attempt, Answer: stored}
	if p := r.record.Outcome.Patch; p != nil {
		m.Resume.Patch = p.Digest
	}
	m.NotBefore, m.Expires, m.Nonce = now, now.Add(startTime), nonce()
	m.Trace = r.record.Trace.Attempt(m.ID, m.Attempt)
	return n, nil
}

// stillAllowed decides by today's policy whether what m describes may run, and
// notes in m what decided. It returns what was asked.
func (s *Service) stillAllowed(ctx context.Context, m *record.Manifest, ceiling api.Tier) (*ask, error) {
	p, err := s.snapshots.Current(ctx)
	if err != nil {
		return nil, err
	}
	a := &ask{principal: m.Principal, consent: s.cfg.Registry.Consent(m.Principal), ceiling: ceiling, snapshot: p, target: m.Target, attempt: m.Attempt, run: m.Run, task: m.Task, request: m.Request(m.Capabilities)}
	a.stops = s.cfg.Registry.StopsFor(m.StopSubject())
	a.subagent.Role, a.subagent.Tier = m.Role, m.Tier
	if m.Source != nil {
		a.commit = m.Source.Commit
	}
	if p.Revision != nil {
		if now, _, err := p.Revision.Subagent(m.Subagent); err == nil {
			a.request = m.Request(now.Capabilities)
		}
	}
	d := p.Engine.Decide(a.policyRequest())
	if !d.Allowed() {
		return nil, s.deny(ctx, a, d)
	}
	m.Policies, m.Ceiling = d.Policies(), min(m.Ceiling, d.Ceiling())
	return a, nil
}

// resume makes the answer durable together with the next attempt, and starts
// that.
func (s *Service) resume(ctx context.Context, r row, n next, decision policy.Decision) (api.Dispatch, error) {
	envelope, err := s.sign(ctx, n.manifest)
	if err != nil {
		return api.Dispatch{}, err
	}
	digest, err := s.cfg.Blobs.Put(ctx, envelope)
	if err != nil {
		return api.Dispatch{}, unstorable(err)
	}
	entry := fact(record.KindDispatchAnswered, r, record.AnswerRequest{Attempt: int64(r.record.Attempt), Option: int64(n.answer.Option)})
	entry.Attempt = n.manifest.Attempt
	entry.Refs = map[string]api.Digest{record.RefManifest: digest, record.RefQuestion: n.question, record.RefAnswer: n.manifest.Resume.Answer}
	asked := r.record.Attempt
	after := r
	failpoint.Hit(failpoint.AnswerCommit, string(r.record.ID))
	admission, err := s.cfg.Ledger.Commit(ctx, decision, entry, func(tx *store.Tx) error {
		if err := n.by.CheckToken(); err != nil {
			return err
		}
		now, ok, err := load(tx, r.record.ID)
		if err == nil {
			err = s.stillBound(tx, n.manifest)
		}
		if _, stopped := errors.AsType[*overtakenError](err); stopped {
			return err
		}
		if err != nil || !ok || now.record.Attempt != asked || now.record.State != api.EventNeedsInput || now.record.CancelBy != "" {
			return errors.Join(err, errEnded)
		}
		earlier := now.record
		earlier.Answer = &n.answer
		if err := keepAttempt(tx, earlier); err != nil {
			return err
		}
		after = now.next(digest, n.answer)
		return updateWaiting(tx, after, asked)
	})
	if errors.Is(err, errEnded) {
		return s.late(ctx, r, n)
	}
	if err != nil {
		return api.Dispatch{}, err
	}
	failpoint.Hit(failpoint.AnswerCommitted, string(r.record.ID))
	s.accepted(after.record, n.answer.At)
	s.start(admission, after, s.job(after, n.manifest))
	return after.record, nil
}

// late answers who was not the first to end what waited. The same answer may
// have come twice at once, as when a caller asks again who heard no reply.
func (s *Service) late(ctx context.Context, r row, n next) (api.Dispatch, error) {
	now, ok, err := s.row(ctx, r.record.ID)
	if err != nil || !ok {
		return api.Dispatch{}, errors.Join(err, errEnded)
	}
	d, done, err := s.answered(ctx, now, api.AnswerRequest{Attempt: r.record.Attempt, Text: n.answer.Text})
	if done && err == nil {
		return d, nil
	}
	if err == nil {
		err = api.Errorf(api.CodeConflict, "dispatch %s: somebody else answered or cancelled it first", r.record.ID).WithHint("see: bailiwick dispatch show %s", r.record.ID)
	}
	return api.Dispatch{}, s.invalidAnswer(ctx, n.answer.By, err)
}

// next is the row of the attempt after r.
func (r row) next(manifest api.Digest, a api.Answer) row {
	d := r.record
	d.Attempt, d.State, d.Manifest, d.ResumedAt = d.Attempt+1, api.EventAccepted, manifest, &a.At
	d.Message, d.Result, d.Outcome, d.StartedAt, d.EndedAt, d.AnswerBy = "", "", nil, nil, nil, nil
	return row{record: d, request: r.request}
}

// at returns an attempt of a dispatch whole; 0 is the current one.
func (s *Service) at(ctx context.Context, d api.Dispatch, attempt int) (api.Dispatch, error) {
	if attempt == 0 || attempt == d.Attempt {
		return d, nil
	}
	list, err := s.earlier(ctx, d.ID)
	if err != nil {
		return d, err
	}
	for _, e := range list {
		if e.Attempt == attempt {
			return e, nil
		}
	}
	return d, api.Errorf(api.CodeNotFound, "dispatch %s has no attempt %d: it has %d", d.ID, attempt, d.Attempt)
}

func (s *Service) earlier(ctx context.Context, id api.DispatchID) (list []api.Dispatch, err error) {
	err = s.cfg.Store.Read(ctx, func(v *store.View) error {
		list, err = attempts(v, id)
		return err
	})
	return list, err
}

// told adds to a record what only its description has: the question, and the
// attempts before it.
func (s *Service) told(ctx context.Context, d api.Dispatch) (api.Dispatch, error) {
	list, err := s.earlier(ctx, d.ID)
	if err != nil {
		return d, err
	}
	for _, e := range list {
		if e.Attempt >= d.Attempt {
			break
		}
		d.Attempts = append(d.Attempts, api.Attempt{
			Attempt: e.Attempt, State: e.State, Message: e.Message, Manifest: e.Manifest, Result: e.Result, EndedAt: e.EndedAt, Answer: e.Answer,
		})
	}
	if err := s.kept(ctx, &d); err != nil || d.Outcome == nil || d.Outcome.Question == nil || removed(&d, api.ClassContent) != nil {
		return d, err
	}
	q, _, err := s.question(ctx, &d)
	d.Question = &q
	return d, err
}
