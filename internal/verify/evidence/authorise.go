package evidence

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// ruling is what was in force at one moment of the log.
type ruling struct {
	revision, before *entry // of the catalog; before counts for record.RevisionGrace
	seen             int    // how many revisions until then
}

// resolveGrace is how long after a new revision a request may still be admitted
// whose names were resolved in an older one: a run resolves the names and sources
// of all its tasks before it is submitted.
const resolveGrace = 10 * time.Minute

// follow goes through what changes the rules. Each admitting entry names the previous entry
// that changed what is allowed, and that one its predecessor, so none of them can be left
// out.
func (v *verification) follow() {
	row := v.rows[report.RowAuthorisation]
	s := &timeline{v: v, row: row, ceilings: ceilings{}, stops: newStops(), votes: map[api.ApprovalID][]cast{}, counter: seal.SignCounter{}}
	if v.trust.Operators != nil {
		operators, err := seal.NewOperators(*v.trust.Operators)
		if err != nil {
			row.Fail("trust file: operators: %v", err)
			return
		}
		s.operators = operators
		s.assign(0)
	}
	for i := range v.entries {
		e := &v.entries[i]
		if e.ok && (e.Kind.Rules() || e.Kind.Admits()) && !v.work.over() {
			s.step(e)
		}
	}
	if s.records != len(v.b.Case.Records) {
		row.Fail("%d operator records in the bundle, but the log names %d", len(v.b.Case.Records), s.records)
	}
	v.line = s
}

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
	v.rows[report.RowAuthorisation].Right = fmt.Sprintf("%s repeated by the rules then in force, with the same result, each logged before its effect; mode same-user: the service account could have bypassed the rules",
		record.Plural(row.Checked, "decision"))
	if len(s.admitted) == 0 {
		row.Absent = "nothing was admitted"
	}
}

// timeline goes through the log and keeps what is in force.
type timeline struct {
	v        *verification
	row      *report.Finding
	now      ruling
	seen     []*entry // the catalog revisions
	ceilings ceilings
	stops    stops
	last     uint64 // one more than the number of the last entry that Rules
	chain    record.RuleChain
	records  int
	previous api.Digest // of the last operator record's payload
	admitted []admission
	votes    map[api.ApprovalID][]cast // about each approval, in the order of the log

	operators *seal.Operators  // nil: the trust file names none
	assigned  uint64           // the first set of operator keys that has principals; 0: none has
	since     uint64           // the entry that put it in force; 0 also for set 1
	counter   seal.SignCounter // of the operators' passkeys
}

// admission is an entry that admits something, with what was in force.
type admission struct {
	e    *entry
	rule ruling
}

func (s *timeline) step(e *entry) {
	if e.Prev.Rule != s.last {
		s.row.Fail("entry #%d names %s as the last change of the rules, but the bundle has %s: the rules then in force are unknown", e.seq, entryName(e.Prev.Rule), entryName(s.last))
	}
	if e.Kind.Admits() {
		s.admitted = append(s.admitted, admission{e, s.now})
		return
	}
	s.last = e.seq + 1
	if err := s.chain.Step(&e.Entry); err != nil {
		e.refused = true
		s.row.Fail("entry #%d: %v", e.seq, err)
	}
	var err error
	switch e.Kind { //nolint:exhaustive // those that are Rules
	case record.KindCatalogRevision:
		s.seen = append(s.seen, e)
		s.now = ruling{revision: e, before: s.now.revision, seen: len(s.seen)}
	case record.KindStopEngaged:
		d := detail[record.StopEngaged](e)
		s.stops.engage(e.seq, api.Stop{ID: d.Stop, Scope: api.StopScope(d.Scope), Name: d.Name})
	case record.KindOperatorRecorded:
		err = s.applyRecord(e)
	}
	if err != nil {
		s.row.Fail("entry #%d: %v", e.seq, err)
	}
}

// numberOf returns the number of a revision from its entry.
func numberOf(e *entry) uint64 {
	d := detail[record.RevisionSeen](e)
	return uint64(max(d.Number, 0)) //nolint:gosec // G115: not negative
}

// resolvedIn refuses an admission whose names were resolved in a revision that was
// not in force at that time, or shortly before.
func (s *timeline) resolvedIn(a *admission, number int64) error {
	for _, was := range slices.Backward(s.seen[:a.rule.seen]) {
		if number >= 0 && numberOf(was) == uint64(number) {
			return nil
		}
		if a.e.At.Sub(was.At).Abs() >= resolveGrace {
			return fmt.Errorf("resolved in catalog revision %d, but revision %d was in force", number, numberOf(s.seen[a.rule.seen-1]))
		}
		if err := s.v.work.spend(unitCompare); err != nil {
			return err
		}
	}
	return fmt.Errorf("resolved in catalog revision %d, which did not exist", number)
}

// applyRecord puts the next operator record in force.
func (s *timeline) applyRecord(e *entry) error {
	s.records++
	if s.records > len(s.v.b.Case.Records) {
		return fmt.Errorf("operator record %d is not in the bundle", s.records)
	}
	rec, err := openRecord(s.v.docs, s.v.b.Case.Records[s.records-1], s.records, s.operators)
	if err != nil {
		return fmt.Errorf("operator record %d: %w", s.records, err)
	}
	switch {
	case rec.digest != e.Refs[record.RefRecord] || rec.Number != uint64(s.records) || rec.Previous != s.previous: //nolint:gosec // G115: counts up from 1
		return fmt.Errorf("operator record %d is not the one that the log names", s.records)
	case seal.LogOrigin(seal.KeyID(rec.Service)) != s.v.trust.Log.Origin:
		return fmt.Errorf("operator record %d is for service %s", s.records, rec.Service)
	}
	if err := s.counter.Check(rec.counts); err != nil {
		return fmt.Errorf("operator record %d: %w", s.records, err)
	}
	s.counter.Add(rec.counts)
	s.previous, s.v.records[e.seq] = rec.digest, rec
	switch rec.Verb { //nolint:exhaustive // the others restrict no dispatch
	case api.VerbCeilingSet:
		s.ceilings.set(e.seq, rec.Principal, *rec.Ceiling)
	case api.VerbPrincipalRemove:
		s.ceilings.set(e.seq, rec.Principal, 0)
		return s.withdraw(e, func(voter api.Principal) bool { return s.operators.Withdraws(rec.Principal, voter) })
	case api.VerbStopLift:
		s.stops.lift(e.seq, rec.Stop)
	case api.VerbOperatorSet:
		return s.followKeys(e, rec)
	case api.VerbApprove, api.VerbDeny:
		s.votes[rec.Approval] = append(s.votes[rec.Approval], cast{seq: e.seq, at: e.At, record: rec})
	}
	return nil
}

// followKeys puts the set of operator keys of a record in force. The one before it signed
// the record.
func (s *timeline) followKeys(e *entry, rec *signedRecord) error {
	// The keys are read once more, and each is validated.
	if err := s.v.work.spend(len(rec.Set.Root) + unitSignature*bytes.Count(rec.Set.Root, []byte(`"public"`))); err != nil {
		return err
	}
	if err := s.operators.Follow(rec.Set); err != nil {
		return fmt.Errorf("operator record %d: %w", s.records, err)
	}
	if !rec.assigned && s.operators.Assigned() {
		s.assign(e.seq)
		return s.withdraw(e, func(api.Principal) bool { return true })
	}
	return nil
}

// assign notes since when the operator keys have principals. No later set takes them away.
func (s *timeline) assign(seq uint64) {
	if s.operators.Assigned() {
		s.assigned, s.since = s.operators.Number(), seq
	}
}

// owned returns the set of operator keys since which each key has a principal, if it was
// in force at an entry. No service writes entries of rules before 5 then: only this or a
// later version can read such a set.
func (s *timeline) owned(seq uint64) (set uint64, ok bool) {
	if s == nil || s.assigned == 0 || seq < s.since {
		return 0, false
	}
	return s.assigned, true
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
