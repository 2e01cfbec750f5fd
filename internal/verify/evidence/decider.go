package evidence

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// authorise repeats every decision that admitted something, by the rules in force then.
func (v *verification) authorise() {
	row, s := v.rows[report.RowAuthorisation], v.line
	if s == nil {
		return // follow reports it
	}
	d := &decider{v: v, line: s, known: map[string]*decided{}}
	wrong := make([]error, len(s.admitted))
	parallel(len(s.admitted), func(i int) { wrong[i] = d.decide(&s.admitted[i]) })
	for i, err := range wrong {
		of := row
		if s.admitted[i].e.Kind == record.KindToolCalled {
			of = v.rows[report.RowTools]
		}
		if err != nil {
			of.Fail("entry #%d: %v", s.admitted[i].e.seq, err)
		} else {
			of.Checked++
		}
	}
	d.taskApprovals()
	checkPolicies(v.entries, row)
	accounts(v.world, row)
	countCalls(v.ordered, v.options.Calls, v.rows[report.RowTools])
	v.rows[report.RowAuthorisation].Right = fmt.Sprintf("%s repeated by the rules then in force, with the same result, each logged before its effect; the service account could have bypassed the rules",
		record.Plural(row.Checked, "decision"))
	if len(s.admitted) == 0 {
		row.Absent = "nothing was admitted"
	}
}

// current refuses that a run claims rules older than principals of keys, when they have
// them: what it claims would let votes count under any key.
func (d *decider) current(e *entry) error {
	set, ok := d.line.owned(e.seq)
	if rules := detail[record.RunRequest](e).Rules; ok && rules < plan.RulesOfOwners {
		return fmt.Errorf("run %s claims rules %d, which are older than principals of keys, but the keys have principals since set %d of the operator keys", record.Word(e.Run), rules, set)
	}
	return nil
}

// decider repeats decisions. Equal requests are decided once.
type decider struct {
	v     *verification
	line  *timeline
	mu    sync.Mutex
	known map[string]*decided
}

type decided struct {
	once     sync.Once
	decision policy.Decision
	err      error
}

func (d *decider) decide(a *admission) error {
	e := a.e
	if e.Kind == record.KindToolCalled {
		return d.call(a)
	}
	if err := d.resolved(a); err != nil {
		return err
	}
	if e.Kind == record.KindRunSubmitted {
		if err := d.current(e); err != nil {
			return err
		}
		return d.repeat(a, e.Policies, func(*revision) policy.Request {
			return policy.Request{Principal: e.Principal, Action: policy.ActionRunSubmit, Resource: e.Resource, Token: e.Token != ""}
		}, nil)
	}
	if e.Kind == record.KindRunAppended {
		return d.appended(a)
	}
	if e.begins == nil || e.begins.manifest == nil {
		return nil // the manifest or the completeness row reports it
	}
	m := e.begins.manifest
	if err := d.repeat(a, m.Policies, func(r *revision) policy.Request { return d.requestOf(r, e, m) }, m); err != nil {
		return err
	}
	if e.begins.reuses != "" {
		return d.shared(a, e.begins)
	}
	return d.writes(a, m)
}

// resolved verifies the catalog revision in which names were resolved. A task's
// dispatch uses that of its run.
func (d *decider) resolved(a *admission) error {
	switch x := a.e.Detail.(type) {
	case record.RunRequest:
		return d.line.resolvedIn(a, x.Revision)
	case record.DispatchRequest:
		if a.e.Run == "" {
			return d.line.resolvedIn(a, x.Revision)
		}
	}
	return nil
}

// requestOf is the request that the service asked policy to decide.
func (d *decider) requestOf(r *revision, e *entry, m *record.Manifest) policy.Request {
	var own []api.Name
	if sub, err := r.subagent(m.Subagent); err == nil {
		own = sub.Capabilities
	}
	request := m.Request(own)
	if logged, ok := e.Detail.(record.DispatchRequest); ok && len(logged.Capabilities) < uncut {
		request.Capabilities = nil
		for _, n := range logged.Capabilities {
			request.Capabilities = append(request.Capabilities, api.Name(n))
		}
	}
	q := policy.DispatchRequest(m.Principal, request, m.Tier)
	q.Consent, q.Session = d.line.ceilings.at(e.seq, m.Principal), api.Irreversible
	if id, stopped := d.line.stops.covering(e.seq, m.StopSubject()); stopped {
		q.Stops = []string{id}
	}
	return q
}

// repeat decides by the revision in force, or by the one before it within
// record.RevisionGrace, and fails if neither gives the logged decision.
func (d *decider) repeat(a *admission, policies []string, request func(*revision) policy.Request, m *record.Manifest) error {
	return d.inForce(a, func(r *revision, engine *policy.Engine) error {
		err := d.by(r, engine, policies, request(r), m)
		if err != nil || m == nil || a.e.begins.reuses != "" {
			return err
		}
		return d.budgeted(a.e, engine, m)
	})
}

// inForce decides by the revision in force at an entry, or by the one before it within
// record.RevisionGrace.
func (d *decider) inForce(a *admission, decide func(*revision, *policy.Engine) error) error {
	if a.rule.revision == nil {
		return errors.New("admitted before the first catalog revision")
	}
	by := func(rule *entry) error {
		digest := rule.Refs[record.RefRevision]
		r := d.v.revisions[digest]
		if r == nil {
			return fmt.Errorf("catalog revision %s, then in force, is not in the bundle", digest.Short())
		}
		engine, err := r.rules()
		if err != nil {
			return fmt.Errorf("catalog revision %d: %w", r.doc.Number, err)
		}
		return decide(r, engine)
	}
	err := by(a.rule.revision)
	// Abs: a revision dated in the future does not extend the grace.
	if err != nil && a.rule.before != nil && a.e.At.Sub(a.rule.revision.At).Abs() < record.RevisionGrace {
		if by(a.rule.before) == nil {
			return nil
		}
	}
	return err
}

func (d *decider) by(r *revision, engine *policy.Engine, policies []string, q policy.Request, m *record.Manifest) error {
	decision, err := d.once(r, engine, q)
	switch {
	case err != nil:
		return err
	case !decision.Allowed():
		return fmt.Errorf("denied by catalog revision %d and the ceilings and stops then in force: %s %s %s: %s", r.doc.Number, q.Principal, q.Action, q.Resource, some(decision.Reasons()))
	case len(policies) < uncut && !decision.AllowedBy(policies):
		return fmt.Errorf("allowed by %s, but the log names %s", some(decision.Policies()), some(policies))
	case m != nil && m.Ceiling > decision.Ceiling():
		return fmt.Errorf("the manifest has the ceiling %s, but only %s was allowed", m.Ceiling, decision.Ceiling())
	}
	return nil
}

// some are the first of a list, which may be long.
func some(list []string) string { return strings.Join(list[:min(len(list), uncut)], "; ") }

func (d *decider) once(r *revision, engine *policy.Engine, q policy.Request) (policy.Decision, error) {
	key := string(r.digest) + requestKey(q)
	d.mu.Lock()
	one := d.known[key]
	if one == nil {
		one = &decided{}
		d.known[key] = one
	}
	d.mu.Unlock()
	one.once.Do(func() {
		if one.err = d.v.work.spend(unitDecision + unitPolicy*engine.Cost(q)); one.err == nil {
			one.decision = engine.Decide(q)
		}
	})
	return one.decision, one.err
}

// checkPolicies verifies that every allowing entry names the policies that
// allowed it.
func checkPolicies(entries []entry, row *report.Finding) {
	for i := range entries {
		e := &entries[i]
		if e.ok && e.Decision == record.Allow && len(e.Policies) == 0 {
			row.Fail("entry #%d was allowed by no policy", e.seq)
		}
	}
}
