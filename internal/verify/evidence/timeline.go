package evidence

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
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
