package evidence

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
)

// byForgery is a class whose mutants are logs that were written and signed again.
func byForgery(name string, f func(t testing.TB, r *rand.Rand, g *forgery, all []*subject) string) mutation {
	return mutation{name: name, mutate: func(t testing.TB, r *rand.Rand, x *subject, all []*subject) ([]byte, string) {
		g := x.forge()
		what := f(t, r, g, all)
		if what == "" {
			return nil, ""
		}
		return g.file(t), what
	}}
}

// mutationClasses are what an attacker does to bundles.
func mutationClasses() []mutation {
	linked := byForgery("a value everywhere", everywhere)
	linked.linked = true
	follows := byForgery("a manifest with its statement", func(t testing.TB, r *rand.Rand, g *forgery, _ []*subject) string { return g.forgeDocument(t, r, true) })
	follows.linked = true
	return []mutation{
		{name: "bytes of the file", mutate: func(_ testing.TB, r *rand.Rand, x *subject, _ []*subject) ([]byte, string) {
			return scramble(r, x.file), ""
		}},
		{name: "parts of the bundle", mutate: func(t testing.TB, r *rand.Rand, x *subject, _ []*subject) ([]byte, string) {
			return editAny(t, r, x.file)
		}},
		byForgery("a field", func(_ testing.TB, r *rand.Rand, g *forgery, _ []*subject) string { return g.changes(r, 1) }),
		byForgery("a field of a detail", detailField),
		byForgery("several fields", func(_ testing.TB, r *rand.Rand, g *forgery, _ []*subject) string { return g.changes(r, 2+r.IntN(3)) }),
		linked,
		byForgery("refs", func(_ testing.TB, r *rand.Rand, g *forgery, _ []*subject) string {
			i := pick(r, g.x.mine())
			if !g.changeRefs(r, &g.entries[i]) {
				return ""
			}
			return fmt.Sprintf("#%d %s", i, g.entries[i].Kind)
		}),
		byForgery("swapped refs", swappedRefs),
		byForgery("times", times),
		byForgery("a document", func(t testing.TB, r *rand.Rand, g *forgery, _ []*subject) string { return g.forgeDocument(t, r, false) }),
		follows,
		byForgery("other spellings", spellings),
		byForgery("an entry dropped", func(_ testing.TB, r *rand.Rand, g *forgery, _ []*subject) string { return g.drop(r, 1) }),
		byForgery("several entries dropped", func(_ testing.TB, r *rand.Rand, g *forgery, _ []*subject) string { return g.drop(r, 2+r.IntN(4)) }),
		byForgery("a chain dropped", dropChain),
		byForgery("a tail dropped", func(_ testing.TB, r *rand.Rand, g *forgery, _ []*subject) string {
			n := 1 + r.IntN(len(g.entries)-1)
			g.entries = g.entries[:n]
			return fmt.Sprintf("after #%d", n-1)
		}),
		byForgery("entries twice", twice),
		byForgery("entries in another order", reorder),
		byForgery("parts of another bundle", splice),
		byForgery("an older catalog", olderCatalog),
		byForgery("a stranger's key", stranger),
	}
}

// editAny is edit for any bundle: some edits need parts that it does not have.
func editAny(t testing.TB, r *rand.Rand, in []byte) (out []byte, what string) {
	defer func() {
		if recover() != nil {
			out = nil
		}
	}()
	return edit(t, r, in)
}

// changes changes n fields of entries.
func (g *forgery) changes(r *rand.Rand, n int) (what string) {
	for range n {
		i := pick(r, g.x.mine())
		f := pick(r, fieldsOf(g.entries[i].Kind))
		if g.change(r, i, f) {
			what += fmt.Sprintf("#%d %s %s=%s ", i, g.x.s.entries[i].Kind, f, shown(&g.entries[i], f))
		}
	}
	return what
}

func detailField(_ testing.TB, r *rand.Rand, g *forgery, _ []*subject) string {
	i := pick(r, g.x.mine())
	fields := slices.DeleteFunc(fieldsOf(g.entries[i].Kind), func(f string) bool { return len(f) < 7 || f[:7] != "detail." })
	f := pick(r, fields)
	if !g.change(r, i, f) {
		return ""
	}
	return fmt.Sprintf("#%d %s %s=%s", i, g.entries[i].Kind, f, shown(&g.entries[i], f))
}

// everywhere changes a text in all entries that have it.
func everywhere(_ testing.TB, r *rand.Rand, g *forgery, _ []*subject) string {
	i := pick(r, g.x.mine())
	var fields []string
	for _, f := range fieldsOf(g.entries[i].Kind) {
		if v, ok := record.FieldOf(&g.entries[i], f); ok && v.Kind() == reflect.String && v.String() != "" && f != "kind" && f != "decision" {
			fields = append(fields, f)
		}
	}
	if len(fields) == 0 {
		return ""
	}
	f := pick(r, fields)
	v, _ := record.FieldOf(&g.entries[i], f)
	old := v.String()
	to := g.otherText(r, old, f)
	for k := range g.entries {
		e := &g.entries[k]
		for _, name := range fieldsOf(e.Kind) {
			if x, ok := record.FieldOf(e, name); ok && x.Kind() == reflect.String && x.String() == old && name != "kind" && name != "decision" {
				setText(e, name, to)
			}
		}
	}
	return fmt.Sprintf("%q is %q", old, to)
}

func setText(e *record.Entry, field, to string) {
	v, _ := record.FieldOf(e, field)
	if v.CanSet() {
		v.SetString(to)
		return
	}
	d := reflect.New(reflect.TypeOf(e.Detail)).Elem()
	d.Set(reflect.ValueOf(e.Detail))
	for f := range d.Type().Fields() {
		if "detail."+tagOf(f) == field {
			d.FieldByIndex(f.Index).SetString(to)
		}
	}
	e.Detail = d.Interface().(record.Detail) //nolint:forcetypeassert // it was one
}

func tagOf(f reflect.StructField) string {
	tag, _, _ := bytes.Cut([]byte(f.Tag.Get("json")), []byte(","))
	return string(tag)
}

// swappedRefs swaps a ref of two entries.
func swappedRefs(_ testing.TB, r *rand.Rand, g *forgery, _ []*subject) string {
	i := pick(r, g.x.mine())
	for _, name := range refNames() {
		var others []int
		for _, k := range g.x.mine() {
			if d := g.entries[k].Refs[name]; d != "" && g.entries[i].Refs[name] != "" && d != g.entries[i].Refs[name] {
				others = append(others, k)
			}
		}
		if len(others) == 0 || r.IntN(3) == 0 {
			continue
		}
		k := pick(r, others)
		g.entries[i].Refs[name], g.entries[k].Refs[name] = g.entries[k].Refs[name], g.entries[i].Refs[name]
		return fmt.Sprintf("%s of #%d and #%d", name, i, k)
	}
	return ""
}

func times(_ testing.TB, r *rand.Rand, g *forgery, _ []*subject) string {
	by := pick(r, []time.Duration{-time.Hour, time.Second, time.Hour, 400 * 24 * time.Hour})
	from := r.IntN(len(g.entries))
	for i := from; i < len(g.entries); i++ {
		g.entries[i].At = g.entries[i].At.Add(by)
	}
	return fmt.Sprintf("from #%d on by %s", from, by)
}

func spellings(_ testing.TB, r *rand.Rand, g *forgery, _ []*subject) string {
	if r.IntN(3) == 0 {
		all := g.x.documents()
		for d, doc := range all {
			g.replace(d, respell(r, doc))
			break
		}
		return "of a document"
	}
	i := pick(r, g.x.mine())
	g.leaves[i] = respell(r, g.x.s.leaves[i])
	return fmt.Sprintf("of #%d", i)
}

// drop leaves out entries.
func (g *forgery) drop(r *rand.Rand, n int) (what string) {
	gone := map[int]bool{}
	for range n {
		i := pick(r, g.x.mine())
		gone[i] = true
		what += fmt.Sprintf("#%d %s ", i, g.x.s.entries[i].Kind)
	}
	g.keep(func(i int, _ *record.Entry) bool { return !gone[i] })
	return what
}

// keep leaves out all other entries, and the records of operators that no entry puts
// in force then.
func (g *forgery) keep(which func(i int, e *record.Entry) bool) {
	var kept []record.Entry
	var records []api.Digest
	n := 0
	for i := range g.entries {
		yes := which(i, &g.entries[i])
		if yes {
			kept = append(kept, g.entries[i])
		}
		if g.entries[i].Kind == record.KindOperatorRecorded {
			if yes && n < len(g.records) {
				records = append(records, g.records[n])
			}
			n++
		}
	}
	g.entries, g.records = kept, records
}

func dropChain(_ testing.TB, r *rand.Rand, g *forgery, _ []*subject) string {
	e := g.entries[pick(r, g.x.mine())]
	switch {
	case e.Task != "" && r.IntN(2) == 0:
		g.keep(func(_ int, x *record.Entry) bool { return x.Run != e.Run || x.Task != e.Task })
		return "task " + e.Task
	case e.Dispatch != "":
		g.keep(func(_ int, x *record.Entry) bool { return x.Dispatch != e.Dispatch })
		return "dispatch " + string(e.Dispatch)
	}
	g.keep(func(_ int, x *record.Entry) bool { return x.Kind != e.Kind })
	return "all of " + string(e.Kind)
}

func twice(_ testing.TB, r *rand.Rand, g *forgery, _ []*subject) string {
	i := pick(r, g.x.mine())
	at := i + 1 + r.IntN(len(g.entries)-i)
	e := g.entries[i]
	g.entries = slices.Insert(g.entries, at, e)
	if e.Kind == record.KindOperatorRecorded {
		g.records = append(g.records, g.records[len(g.records)-1])
	}
	return fmt.Sprintf("#%d %s at #%d", i, e.Kind, at)
}

func reorder(_ testing.TB, r *rand.Rand, g *forgery, _ []*subject) string {
	i, k := pick(r, g.x.mine()), pick(r, g.x.mine())
	if i == k {
		return ""
	}
	if r.IntN(2) == 0 {
		g.entries[i], g.entries[k] = g.entries[k], g.entries[i]
		return fmt.Sprintf("#%d and #%d swapped", i, k)
	}
	e := g.entries[i]
	g.entries = slices.Insert(slices.Delete(g.entries, i, i+1), min(k, len(g.entries)-1), e)
	return fmt.Sprintf("#%d to #%d", i, k)
}

// splice puts an entry or a document of another subject in place of one.
func splice(_ testing.TB, r *rand.Rand, g *forgery, all []*subject) string {
	o := pick(r, all)
	i, k := pick(r, g.x.mine()), pick(r, o.mine())
	other := o.s.entries[k]
	for _, d := range other.Refs {
		if doc := o.s.documents[d]; doc != nil {
			g.documents[d] = doc
		}
	}
	switch r.IntN(4) {
	case 0: // instead of one of the same kind
		for _, i := range g.x.mine() {
			if g.entries[i].Kind == other.Kind && !reflect.DeepEqual(g.entries[i].Refs, other.Refs) {
				g.entries[i] = other
				return fmt.Sprintf("#%d is %s of %s", i, other.Kind, o.name)
			}
		}
		return ""
	case 1:
		g.entries = slices.Insert(g.entries, i, other)
		return fmt.Sprintf("%s of %s before #%d", other.Kind, o.name, i)
	case 2: // its documents only
		for name, d := range other.Refs {
			if g.entries[i].Refs[name] != "" && g.entries[i].Refs[name] != d {
				g.entries[i].Refs[name] = d
				return fmt.Sprintf("%s of #%d from %s", name, i, o.name)
			}
		}
		return ""
	}
	theirs := o.s.bundle(o.c)
	g.after = func(b *bundle.Bundle) {
		switch r.IntN(4) {
		case 0:
			b.Case.Checkpoint = theirs.Case.Checkpoint
		case 1:
			b.Case.Revisions = theirs.Case.Revisions
		case 2:
			b.Case.Records = theirs.Case.Records
		case 3:
			b.Proof = theirs.Proof
		}
		for d, doc := range theirs.Documents {
			if r.IntN(2) == 0 {
				b.Documents[d] = doc
			}
		}
	}
	return "case of " + o.name
}

// olderCatalog puts an earlier revision in the place of a later one, or back in
// force.
func olderCatalog(_ testing.TB, r *rand.Rand, g *forgery, _ []*subject) string {
	var at []int
	for i := range g.entries {
		if g.entries[i].Kind == record.KindCatalogRevision {
			at = append(at, i)
		}
	}
	if len(at) < 2 {
		e := g.entries[at[0]]
		g.entries = slices.Insert(g.entries, at[0]+1+r.IntN(len(g.entries)-at[0]), e)
		return "once more"
	}
	i, k := pick(r, at), pick(r, at)
	switch r.IntN(3) {
	case 0:
		g.entries[i].Refs, g.entries[i].Detail = g.entries[k].Refs, g.entries[k].Detail
	case 1:
		e := g.entries[k]
		g.entries = slices.Insert(g.entries, i+1, e)
	case 2:
		g.keep(func(n int, _ *record.Entry) bool { return n != i })
	}
	if i == k {
		return ""
	}
	return fmt.Sprintf("#%d like #%d", i, k)
}

// stranger signs with a key that the trust file does not have.
func stranger(t testing.TB, r *rand.Rand, g *forgery, _ []*subject) string {
	g.signer = seededSigner(uint64(1000 + r.IntN(9))) //nolint:gosec // G115: small
	return g.forgeDocument(t, r, false)
}
