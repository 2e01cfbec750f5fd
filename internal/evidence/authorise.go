package evidence

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/policy"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/seal"
)

// ruling is what was in force at one moment of the log.
type ruling struct {
	revision, before *entry   // of the catalog; the one before counts while the other is new
	seen             []*entry // all of the catalog's revisions until then
	ceilings         map[api.Principal]api.Tier
	stops            []api.Stop // that held
}

// pinned is how long after a revision came something may still be admitted whose
// names were looked up in one before: those of all tasks of a run are, and their
// sources, before it is submitted.
const pinned = 10 * time.Minute

// authorise decides again about everything that was admitted, by what was in
// force then. Every entry that admits something names the last one before it
// that changed what is allowed, and that the one before, so none of them can be
// kept back.
func (v *verification) authorise() {
	row := v.rows[RowAuthorisation]
	s := &sweep{v: v, row: row, now: ruling{ceilings: map[api.Principal]api.Tier{}}}
	for i := range v.entries {
		e := &v.entries[i]
		if e.ok && (e.Kind.Rules() || e.Kind.Admits()) {
			s.step(e)
		}
	}
	if s.records != len(v.b.Case.Records) {
		row.fail("%d records of operators are here, and the log names %d", len(v.b.Case.Records), s.records)
	}
	d := &decider{v: v, known: map[string]policy.Decision{}}
	wrong := make([]error, len(s.admitted))
	parallel(len(s.admitted), func(i int) { wrong[i] = d.decide(&s.admitted[i]) })
	for i, err := range wrong {
		if err != nil {
			row.fail("entry #%d: %v", s.admitted[i].e.seq, err)
		} else {
			row.checked++
		}
	}
	v.others(row)
	v.words[RowAuthorisation] = fmt.Sprintf("%d decisions, made again by the rules in force then, say the same, and each stands before what it allowed; mode same-user: the service's own account could have changed these rules' use",
		len(s.admitted))
	if len(s.admitted) == 0 {
		row.absent = "nothing was admitted"
	}
}

// sweep goes through the log and keeps what is in force.
type sweep struct {
	v        *verification
	row      *finding
	now      ruling
	last     uint64 // one more than the number of the last entry that rules
	records  int
	previous api.Digest // payload of the last record
	admitted []admission
}

// admission is an entry that admits something, with what was in force.
type admission struct {
	e    *entry
	rule ruling
}

func (s *sweep) step(e *entry) {
	if e.Prev.Rule != s.last {
		s.row.fail("entry #%d was written after %s, which %s: what was allowed then is not known", e.seq, numbered(e.Prev.Rule), missing(s.last))
	}
	if e.Kind.Admits() {
		s.admitted = append(s.admitted, admission{e, s.now})
		return
	}
	s.last = e.seq + 1
	var err error
	switch e.Kind { //nolint:exhaustive // those that rule
	case record.KindCatalogRevision:
		err = s.published(e)
	case record.KindStopEngaged:
		d, _ := e.Detail.(record.StopEngaged)
		s.now.stops = append(s.now.stops, api.Stop{ID: d.Stop, Scope: api.StopScope(d.Scope), Name: d.Name})
	case record.KindOperatorRecorded:
		err = s.decided(e)
	}
	if err != nil {
		s.row.fail("entry #%d: %v", e.seq, err)
	}
}

// published takes the next revision of the catalog. One that was replaced does
// not come back, however well it was signed.
func (s *sweep) published(e *entry) error {
	d, _ := e.Detail.(record.RevisionSeen)
	before := s.now.revision
	s.now.before, s.now.revision, s.now.seen = before, e, append(s.now.seen, e)
	if r := s.v.revisions[e.Refs[record.RefRevision]]; r != nil && numberOf(e) != r.doc.Number {
		return fmt.Errorf("it says revision %d of the catalog, and names revision %d", d.Number, r.doc.Number)
	}
	if before != nil && numberOf(e) <= numberOf(before) {
		return fmt.Errorf("revision %d of the catalog comes after revision %d: who put back an older one undid what the newer one took away", numberOf(e), numberOf(before))
	}
	return nil
}

// numberOf is the number of a revision by its entry.
func numberOf(e *entry) uint64 {
	d, _ := e.Detail.(record.RevisionSeen)
	return uint64(max(d.Number, 0)) //nolint:gosec // G115: as it says
}

// byRevision says why something cannot have been admitted by a revision of the
// catalog at a moment: it was none of that time.
func (r *ruling) byRevision(e *entry, number int64) error {
	for _, was := range slices.Backward(r.seen) {
		if number >= 0 && numberOf(was) == uint64(number) {
			return nil
		}
		if e.At.Sub(was.At).Abs() >= pinned {
			return fmt.Errorf("its names are of revision %d of the catalog, and revision %d was in force", number, numberOf(r.seen[len(r.seen)-1]))
		}
	}
	return fmt.Errorf("its names are of revision %d of the catalog, which was not there", number)
}

// decided takes the next record of an operator.
func (s *sweep) decided(e *entry) error {
	s.records++
	if s.records > len(s.v.b.Case.Records) {
		return fmt.Errorf("operator record %d is not here", s.records)
	}
	rec, digest, err := s.v.operatorRecord(s.v.b.Case.Records[s.records-1], s.v.trust.Operators)
	if err != nil {
		return fmt.Errorf("operator record %d: %w", s.records, err)
	}
	switch {
	case digest != e.Refs[record.RefRecord] || rec.Number != uint64(s.records) || rec.Previous != s.previous: //nolint:gosec // G115: counts up from 1
		return fmt.Errorf("operator record %d is not the one that was recorded", s.records)
	case seal.LogOrigin(seal.KeyID(rec.Service)) != s.v.trust.Log.Origin:
		return fmt.Errorf("operator record %d is for service %s", s.records, rec.Service)
	}
	s.previous = digest
	s.now.ceilings = maps.Clone(s.now.ceilings)
	switch rec.Verb { //nolint:exhaustive // the others bound no dispatch
	case api.VerbCeilingSet:
		s.now.ceilings[rec.Principal] = *rec.Ceiling
	case api.VerbPrincipalRemove:
		delete(s.now.ceilings, rec.Principal)
	case api.VerbStopLift:
		s.now.stops = slices.DeleteFunc(slices.Clone(s.now.stops), func(x api.Stop) bool { return x.ID == rec.Stop })
	}
	return nil
}

// decider decides again. Requests that policy cannot tell apart are decided
// once.
type decider struct {
	v     *verification
	mu    sync.Mutex
	known map[string]policy.Decision
}

func (d *decider) decide(a *admission) error {
	e := a.e
	if err := a.names(); err != nil {
		return err
	}
	if e.Kind == record.KindRunSubmitted {
		return d.same(a, e.Policies, func(*revision) policy.Request {
			return policy.Request{Principal: e.Principal, Action: policy.ActionRunSubmit, Resource: e.Resource, Token: e.Token != ""}
		}, nil)
	}
	if e.begins == nil || e.begins.manifest == nil {
		return nil // and the row of the manifest says so, or that of completeness
	}
	m := e.begins.manifest
	if e.Kind == record.KindDispatchAnswered {
		if err := d.mayAnswer(a, m); err != nil {
			return err
		}
	}
	return d.same(a, m.Policies, func(r *revision) policy.Request { return requestOf(r, e, m, &a.rule) }, m)
}

// names holds the revision of the catalog that something was pinned to against
// those of its time. A dispatch of a run goes by that of the run.
func (a *admission) names() error {
	switch d := a.e.Detail.(type) {
	case record.RunRequest:
		return a.rule.byRevision(a.e, d.Revision)
	case record.DispatchRequest:
		if a.e.Run == "" {
			return a.rule.byRevision(a.e, d.Revision)
		}
	}
	return nil
}

// mayAnswer decides again whether who answered might.
func (d *decider) mayAnswer(a *admission, m *record.Manifest) error {
	if slices.Contains(a.e.Policies, "operator") {
		return nil // who runs the service may; nobody outside can tell who that is
	}
	return d.same(a, a.e.Policies, func(*revision) policy.Request {
		return policy.Request{Principal: a.e.Principal, Action: policy.ActionDispatchAnswer, Resource: string(m.ID), Owner: m.Principal}
	}, nil)
}

// requestOf is what was asked for, as the service put it to policy.
func requestOf(r *revision, e *entry, m *record.Manifest, rule *ruling) policy.Request {
	var own []api.Name
	if sub, err := r.subagent(m.Subagent); err == nil {
		own = sub.Capabilities
	}
	request := m.Request(own)
	if ask, ok := e.Detail.(record.DispatchRequest); ok && len(ask.Capabilities) < listed {
		request.Capabilities = nil
		for _, n := range ask.Capabilities {
			request.Capabilities = append(request.Capabilities, api.Name(n))
		}
	}
	q := policy.DispatchRequest(m.Principal, request, m.Tier)
	q.Consent, q.Session = rule.ceilings[m.Principal], api.Irreversible
	for _, s := range rule.stops {
		if s.Covers(m.StopSubject()) {
			q.Stops = append(q.Stops, s.ID)
		}
	}
	return q
}

// same decides by the revision in force, and by the one before it while that
// one is new, and says why neither decides as it was decided.
func (d *decider) same(a *admission, policies []string, request func(*revision) policy.Request, m *record.Manifest) error {
	if a.rule.revision == nil {
		return fmt.Errorf("admitted before there was a catalog")
	}
	err := d.by(a.rule.revision, policies, request, m)
	// A revision that says it is of later is not new for ever.
	if err != nil && a.rule.before != nil && a.e.At.Sub(a.rule.revision.At).Abs() < record.RevisionGrace {
		if d.by(a.rule.before, policies, request, m) == nil {
			return nil
		}
	}
	return err
}

func (d *decider) by(rule *entry, policies []string, request func(*revision) policy.Request, m *record.Manifest) error {
	digest := rule.Refs[record.RefRevision]
	r := d.v.revisions[digest]
	if r == nil {
		return fmt.Errorf("catalog revision %s, which was in force, is not here", digest.Short())
	}
	engine, err := r.rules()
	if err != nil {
		return fmt.Errorf("catalog revision %d: %w", r.doc.Number, err)
	}
	q := request(r)
	decision := d.ask(r, engine, q)
	switch {
	case !decision.Allowed():
		return fmt.Errorf("revision %d of the catalog, what operators decided and the stops of that time do not let %s %s %s: %v", r.doc.Number, q.Principal, q.Action, q.Resource, decision.Reasons())
	case len(policies) < listed && !slices.Equal(decision.Policies(), policies):
		return fmt.Errorf("allowed by %v, and the log says by %v", decision.Policies(), policies)
	case m != nil && m.Ceiling > decision.Ceiling():
		return fmt.Errorf("the manifest goes up to %s, and no more than %s was allowed", m.Ceiling, decision.Ceiling())
	}
	return nil
}

func (d *decider) ask(r *revision, engine *policy.Engine, q policy.Request) policy.Decision {
	key := string(r.digest) + requestKey(q)
	if q.Action != policy.ActionDispatch {
		return engine.Decide(q)
	}
	d.mu.Lock()
	decision, ok := d.known[key]
	d.mu.Unlock()
	if !ok {
		decision = engine.Decide(q)
		d.mu.Lock()
		d.known[key] = decision
		d.mu.Unlock()
	}
	return decision
}

// others looks at what people did to what was there: each is a decision, with
// the policies that made it.
func (v *verification) others(row *finding) {
	for i := range v.entries {
		e := &v.entries[i]
		if e.ok && e.Decision == record.Allow && len(e.Policies) == 0 {
			row.fail("entry #%d was allowed by no policy", e.seq)
		}
	}
}
