package evidence

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// verdict is what the rest of a bundle says about one field of an entry.
type verdict int

const (
	silent  verdict = iota // nothing: the field is claimed
	agrees                 // the same
	differs                // something else
)

// truth is where a bundle says a field of an entry a second time.
type truth string

const (
	byKind      truth = "what entries of this kind have"
	byChain     truth = "the earlier entries"
	byPlan      truth = "the plan"
	byManifest  truth = "the manifest"
	byResult    truth = "the worker's result"
	byStatement truth = "the statement"
	byRecord    truth = "the signed operator record"
	byRevision  truth = "the signed catalog revision"
	byRules     truth = "the decision by the rules then in force"
	byNothing   truth = "nothing"
)

// row returns the row of a report that fails where a field differs from t.
func (t truth) row() report.RowName {
	switch t {
	case byManifest:
		return report.RowManifest
	case byResult, byStatement:
		return report.RowResult
	case byRecord, byRevision, byRules:
		return report.RowAuthorisation
	case byKind, byChain, byPlan, byNothing:
	}
	return report.RowCompleteness
}

// agreement says what a field of the entries of some kinds must agree with.
type agreement struct {
	kinds []record.Kind
	field string // its JSON name, or detail. and its JSON name
	truth truth
	// check compares the field of s.e. Nil: the function named by compares it, or
	// nothing does.
	check func(s *scene) verdict
	by    string
	// claim says what an entry may say here unchecked, for docs/evidence.md. It is
	// empty only if check is never silent.
	claim string
}

// table is the agreements by kind. Every field of every kind has one, or more.
type table map[record.Kind][]agreement

// agreements returns the one table.
var agreements = sync.OnceValue(func() table { //nolint:gochecknoglobals // built once, and nothing writes it
	return tableOf(allAgreements())
})

func allAgreements() []agreement {
	return slices.Concat(headAgreements(), referenceAgreements(), dispatchAgreements(), runAgreements(), ruleAgreements(), toolAgreements(), reuseAgreements(), growthAgreements())
}

func tableOf(list []agreement) table {
	t := table{}
	for _, a := range list {
		for _, k := range a.kinds {
			t[k] = append(t[k], a)
		}
	}
	return t
}

// scene is an entry with what the bundle has about the same matter. Members are nil
// where the bundle has nothing that could be read.
type scene struct {
	v    *verification
	e    *entry
	h    *history         // of its dispatch
	a    *attempt         // of h: which the entry admits, or the last one before it
	m    *record.Manifest // of a
	r    *replay          // of its run, with a plan
	task *api.PlanTask    // of r
}

func (v *verification) scene(e *entry) scene {
	s := scene{v: v, e: e}
	if e.Dispatch != "" {
		if s.h = v.dispatches[e.Dispatch]; s.h != nil {
			if s.a = e.begins; s.a == nil {
				s.a = s.h.at(e.seq)
			}
		}
		if s.a != nil {
			s.m = s.a.manifest
		}
	}
	if r := v.replayed[api.RunID(e.Run)]; e.Run != "" && r != nil && r.plan != nil && r.submitted != nil {
		s.r = r
		if i, ok := r.plan.Index(api.TaskID(e.Task)); ok {
			s.task = &r.plan.Tasks[i]
		}
	}
	return s
}

// owner returns the principal that the dispatch or the run is of, and false if the
// bundle does not say it.
func (s *scene) owner() (api.Principal, bool) {
	switch {
	case s.m != nil:
		return s.m.Principal, true
	case s.r != nil:
		return s.r.submitted.Principal, true
	}
	return "", false
}

// agree compares every field of every entry with what else the bundle says about
// it.
func (v *verification) agree(t table) {
	wrong := make([][]wrongField, len(v.entries))
	parallel(len(v.entries), func(i int) {
		if e := &v.entries[i]; e.ok && !e.refused && v.work.spend(unitCompare*len(t[e.Kind])) == nil {
			wrong[i] = v.scene(&v.entries[i]).wrong(t)
		}
	})
	for _, list := range wrong { // in order, so that reports are reproducible
		for _, w := range list {
			v.rows[w.row].Fail("%s", w.why)
		}
	}
}

type wrongField struct {
	row report.RowName
	why string
}

func (s scene) wrong(t table) (list []wrongField) {
	for _, a := range t[s.e.Kind] {
		if a.check == nil {
			continue
		}
		says := silent
		if why := recovered(func() { says = a.check(&s) }); why != "" {
			list = append(list, wrongField{a.truth.row(), fmt.Sprintf("entry #%d, %s: %s: %s", s.e.seq, s.e.Kind, a.field, why)})
		} else if says == differs {
			list = append(list, wrongField{a.truth.row(), fmt.Sprintf("entry #%d, %s: %s is %s, which differs from %s", s.e.seq, s.e.Kind, a.field, shown(&s.e.Entry, a.field), a.truth)})
		}
	}
	return list
}

// shown returns the value of a field for people.
func shown(e *record.Entry, field string) string {
	v, ok := record.FieldOf(e, field)
	if !ok {
		return "such"
	}
	b, err := json.Marshal(v.Interface())
	if err != nil {
		return "such"
	}
	return fmt.Sprintf("%.200s", b)
}

// like is rows of fields that an entry has as the entry which want returns; nil: other rows
// report what is wrong.
func like(of []record.Kind, t truth, want func(*scene) *record.Entry, fields ...string) (rows []agreement) {
	for _, f := range fields {
		rows = append(rows, agreement{kinds: of, field: f, truth: t, check: func(s *scene) verdict {
			e := want(s)
			return holds(e == nil || record.Difference(e, &s.e.Entry, f) == "")
		}})
	}
	return rows
}

// is compares two values.
func is[T comparable](got, want T) verdict {
	if got == want {
		return agrees
	}
	return differs
}

// holds is agrees if ok.
func holds(ok bool) verdict { return is(ok, true) }

// may is for a field where the bundle excludes some values only: silent if ok.
func may(ok bool) verdict {
	if ok {
		return silent
	}
	return differs
}

// sameList compares a list of an entry, which may have cut it, with the whole.
func sameList[T ~string](got []string, want []T) verdict {
	whole := make([]string, len(want))
	for i, s := range want {
		whole[i] = string(s)
	}
	return holds(slices.Equal(got, record.CutList(whole)))
}
