package evidence

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

var (
	mutantCount = flag.Int("mutants", 3000/shrink, "how many mutants of bundles are verified") //nolint:gochecknoglobals // a flag
	mutantSeed  = flag.Uint64("seed", 1, "of the mutants")                                     //nolint:gochecknoglobals // a flag
)

// subject is an honest bundle that is mutated, with what an attacker who has the
// service's key knows: the whole log and every document.
type subject struct {
	name    string
	s       *story
	c       bundle.Case
	trust   Trust
	held    []byte // an auditor's copy of the checkpoint, from outside the bundle
	file    []byte
	entries []entry
	claimed map[string]bool // "#seq field", where nothing else in the bundle says it
	ran     string
}

func newSubject(t testing.TB, name string, s *story, c bundle.Case) *subject {
	t.Helper()
	b := s.bundle(c)
	x := &subject{name: name, s: s, c: c, trust: s.trust(), held: b.Case.Checkpoint, file: file(t, b), claimed: map[string]bool{}}
	var v *verification
	r := verifyInto(&v, reread(t, b), x.trust, Options{}, agreements())
	if r.Failed() {
		t.Fatalf("%s %+v:\n%s", name, c, r.Text())
	}
	if r := Verify(reread(t, b), x.trust, x.anchored()); r.Failed() {
		t.Fatalf("%s %+v with an anchor:\n%s", name, c, r.Text())
	}
	x.entries, x.ran = v.entries, ranText(r)
	for i := range v.entries {
		sc := v.scene(&v.entries[i])
		says := map[string]verdict{}
		for _, a := range agreements()[sc.e.Kind] {
			switch {
			case a.check != nil:
				says[a.field] = max(says[a.field], a.check(&sc))
			case a.by != "":
				says[a.field] = agrees
			}
		}
		for _, f := range fieldsOf(sc.e.Kind) {
			x.claimed[claimKey(sc.e.seq, f)] = says[f] == silent
		}
	}
	return x
}

// anchored are the options of an auditor who has a copy of the checkpoint.
func (x *subject) anchored() Options {
	return Options{Copies: []Copy{{File: "copy", Checkpoints: [][]byte{x.held}}}}
}

func claimKey(seq uint64, field string) string { return fmt.Sprintf("#%d %s", seq, field) }

func ranText(r report.Report) string {
	b, err := json.Marshal(r.Ran)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// verifyInto is verify that keeps its state.
func verifyInto(v **verification, b *bundle.Bundle, t Trust, o Options, with table) report.Report {
	*v = newVerification(b, t, o, newMeter(sizeOf(b, &o)))
	return (*v).run(with)
}

// outcome is what became of a mutant.
type outcome int

const (
	unwritable outcome = iota // no bundle at all
	refused
	same     // accepted, and it means the same
	claims   // accepted, and differs only in what docs/evidence.md lists as claimed
	accepted // accepted, and differs in what is compared: the verifier is wrong
	outcomes
)

// judgement is an outcome with the reason.
type judgement struct {
	outcome
	why string
}

// judgeFile verifies a mutant without and with an anchor.
func (x *subject) judgeFile(in []byte, class *mutation, with table) judgement {
	b, err := bundle.Read(bytes.NewReader(in), bundle.Limits{})
	if err != nil {
		return judgement{unwritable, err.Error()}
	}
	var v *verification
	r := verifyInto(&v, b, x.trust, Options{}, with)
	if why := defectIn(&r); why != "" {
		return judgement{accepted, why}
	}
	if r.Failed() {
		return judgement{refused, ""}
	}
	changed, other := x.differences(v)
	ran := ranText(r)
	if len(changed) == 0 && len(other) == 0 && ran == x.ran {
		return judgement{same, ""}
	}
	again, err := bundle.Read(bytes.NewReader(in), bundle.Limits{})
	if err != nil {
		return judgement{unwritable, err.Error()}
	}
	if r := verify(again, x.trust, x.anchored(), with); !r.Failed() {
		return judgement{accepted, fmt.Sprintf("with an anchor: %q %q", changed, other)}
	}
	var wrong []string
	for _, key := range changed {
		if key != claimedDocument && !x.claimed[key] {
			wrong = append(wrong, key)
		}
	}
	switch wrong = append(wrong, other...); {
	case len(changed)+len(other) == 0:
		return judgement{accepted, "the report says that something else ran, from the same entries"}
	case len(wrong) == 0, class.linked && len(wrong) < len(changed)+len(other):
		return judgement{claims, ""}
	}
	return judgement{accepted, fmt.Sprintf("%q", wrong)}
}

// defectIn returns what a report says of a defect of the verifier.
func defectIn(r *report.Report) string {
	for _, row := range r.Rows {
		if strings.Contains(row.Why, defect) {
			return row.Why
		}
	}
	return ""
}

// identity names what an entry is, wherever it is in the log.
func identity(e *record.Entry) string {
	return strings.Join([]string{string(e.Kind), e.Run, e.Task, string(e.Dispatch), fmt.Sprint(e.Attempt)}, "\x00")
}

// content is an entry without its time and its place.
func content(e *record.Entry) string {
	c := *e
	c.Prev, c.At = record.Prev{}, c.At.Add(0).Truncate(1<<62)
	leaf, err := c.Encode()
	if err != nil {
		panic(err)
	}
	return string(leaf)
}

// differences returns the fields in which the entries of a mutant differ from
// the entries of the subject, and other changes.
func (x *subject) differences(v *verification) (changed, other []string) {
	pairs := map[int]int{} // of a mutant's entry: that of the subject
	taken := map[int]bool{}
	match := func(key func(*record.Entry) string) {
		for m := range v.entries {
			if _, done := pairs[m]; done {
				continue
			}
			for i := range x.entries {
				if !taken[i] && key(&v.entries[m].Entry) == key(&x.entries[i].Entry) {
					pairs[m], taken[i] = i, true
					break
				}
			}
		}
	}
	match(content)
	match(identity)
	match(func(e *record.Entry) string { return string(e.Kind) + string(e.Dispatch) })
	match(func(e *record.Entry) string { return string(e.Kind) + e.Task })
	match(func(e *record.Entry) string { return reflectDetail(e) + string(e.Dispatch) })
	for i := range x.entries {
		if !taken[i] {
			changed = append(changed, claimKey(x.entries[i].seq, "entry"))
		}
	}
	moved := len(x.entries) != len(v.entries)
	before := -1
	for m := range v.entries {
		i, ok := pairs[m]
		if !ok {
			other = append(other, added(&v.entries[m].Entry)...)
			continue
		}
		moved = moved || i < before || v.entries[m].seq != x.entries[i].seq
		before = i
		changed = append(changed, x.fieldChanges(&x.entries[i], &v.entries[m], v)...)
	}
	if moved || slices.ContainsFunc(changed, func(k string) bool { return strings.HasSuffix(k, " run") || strings.HasSuffix(k, " dispatch") }) { // then prev and numbers follow
		changed = slices.DeleteFunc(changed, func(k string) bool { return strings.Contains(k, " prev.") })
		if len(changed)+len(other) == 0 {
			changed = append(changed, claimKey(x.entries[0].seq, "at")) // the order of entries is a claim of the clock
		}
	}
	return changed, other
}

func reflectDetail(e *record.Entry) string { return fmt.Sprintf("%T", e.Detail) }

// added is an entry that a mutant has and its subject has not.
func added(e *record.Entry) []string {
	for _, a := range agreements()[e.Kind] {
		if a.field == "entry" && a.claim != "" {
			return nil
		}
	}
	return []string{"added " + string(e.Kind)}
}

// claimedDocument stands for a document that differs only in what is claimed of it.
const claimedDocument = "a claimed member of a document"

// fieldChanges returns the fields in which two entries differ. A ref to another
// document that differs only in what is claimed of documents counts as claimed.
func (x *subject) fieldChanges(was, now *entry, v *verification) (list []string) {
	for _, f := range fieldsOf(was.Kind) {
		a, _ := record.FieldOf(&was.Entry, f)
		b, ok := record.FieldOf(&now.Entry, f)
		if f == "entry" || ok && fmt.Sprint(a.Interface()) == fmt.Sprint(b.Interface()) {
			continue
		}
		if f == "decision" && was.Kind != now.Kind {
			continue // it is the kind's
		}
		if f == "refs" && x.sameDocuments(was, now, v) {
			list = append(list, claimedDocument)
			continue
		}
		if f == "tier" && was.Tier != nil && now.Tier != nil && *was.Tier == *now.Tier {
			continue
		}
		list = append(list, claimKey(was.seq, f))
	}
	return list
}

// sameDocuments reports whether two entries name the same, or documents that differ only in
// what is claimed of them.
func (x *subject) sameDocuments(was, now *entry, v *verification) bool {
	if len(was.Refs) != len(now.Refs) {
		return false
	}
	for name, d := range was.Refs {
		if now.Refs[name] == d {
			continue
		}
		old, ok := x.s.documents[d]
		doc, ok2 := v.docs.documents[now.Refs[name]]
		if !ok || !ok2 {
			return false
		}
		kind, a := payloadOf(old)
		other, b := payloadOf(doc)
		if kind != other || !onlyClaimed(name, a, b, was.Kind, x.undispatched(v)) {
			return false
		}
	}
	return true
}

// onlyClaimed reports whether two documents of an entry of a kind differ only in members
// of documentClaims, and in the digests of manifests that do.
func onlyClaimed(name string, a, b []byte, kind record.Kind, undispatched map[string]bool) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	for _, path := range pathsOf("", x, y) {
		if name == record.RefPlan && undispatched[taskIn(path)] {
			continue
		}
		path = withoutIndexes(path)
		reused := strings.TrimPrefix(path, "predicate.buildDefinition.externalParameters.")
		if kind == record.KindTaskReused && slices.Contains(documentClaims()[claimsOfReuse], reused) {
			continue
		}
		if name == record.RefStatement && strings.Contains(path, "digest") {
			continue // of a manifest, which Binds compares
		}
		if !slices.ContainsFunc(documentClaims()[name], func(c string) bool {
			return path == c || strings.HasSuffix(c, ".") && (strings.HasPrefix(path, c) || path+"." == c)
		}) && !slices.ContainsFunc(documentClaims()[record.RefManifest], func(c string) bool {
			return name == record.RefStatement && strings.HasPrefix(path, "predicate.buildDefinition.internalParameters."+c)
		}) {
			return false
		}
	}
	return true
}

// taskIn returns the index of a task in a path of a plan: tasks.#2.env is of #2.
func taskIn(path string) string {
	rest, _ := strings.CutPrefix(path, "tasks.")
	index, _, _ := strings.Cut(rest, ".")
	return index
}

func withoutIndexes(path string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(path, "."), func(s string) bool { return strings.HasPrefix(s, "#") }), ".")
}

// undispatched returns the tasks of the runs that no entry dispatches.
func (x *subject) undispatched(v *verification) map[string]bool {
	out := map[string]bool{}
	for _, r := range v.replayed {
		for i := range r.tasks {
			if h := r.histories[r.tasks[i].Dispatch]; h == nil || len(h.attempts) == 0 {
				out[fmt.Sprintf("#%d", i)] = true
			}
		}
	}
	return out
}

// pathsOf returns where two JSON values differ.
func pathsOf(at string, x, y any) (list []string) {
	a, isA := x.(map[string]any)
	b, isB := y.(map[string]any)
	if isA && isB {
		keys := maps.Clone(a)
		maps.Copy(keys, b)
		for k := range keys {
			list = append(list, pathsOf(strings.TrimPrefix(at+"."+k, "."), a[k], b[k])...)
		}
		return list
	}
	p, isP := x.([]any)
	q, isQ := y.([]any)
	if isP && isQ && len(p) == len(q) {
		for i := range p {
			list = append(list, pathsOf(fmt.Sprintf("%s.#%d", at, i), p[i], q[i])...)
		}
		return list
	}
	if fmt.Sprint(x) != fmt.Sprint(y) {
		return []string{at}
	}
	return nil
}

// tally counts outcomes by class.
type tally map[string]*[outcomes]int

func (t tally) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%-36s %8s %10s %8s %6s %8s %8s\n", "mutation", "mutants", "no bundle", "refused", "same", "claimed", "accepted")
	var sum [outcomes]int
	line := func(name string, n *[outcomes]int) {
		all := 0
		for _, k := range n {
			all += k
		}
		fmt.Fprintf(&out, "%-36s %8d %10d %8d %6d %8d %8d\n", name, all, n[unwritable], n[refused], n[same], n[claims], n[accepted])
	}
	for _, name := range slices.Sorted(maps.Keys(t)) {
		for o, k := range t[name] {
			sum[o] += k
		}
		line(name, t[name])
	}
	line("all", &sum)
	return out.String()
}

// campaign verifies n mutants on all processors, the same for the same seed, and
// returns the wrong ones.
func campaign(t testing.TB, subjects []*subject, n int, seed uint64, with table) (tally, []string) {
	t.Helper()
	list := mutationClasses()
	counts, wrong := tally{}, []string{}
	for i := range list {
		counts[list[i].name] = &[outcomes]int{}
	}
	var mu sync.Mutex
	workers := runtime.GOMAXPROCS(0)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				r := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // G404, G115: reproducible on purpose
				class, x := &list[i%len(list)], subjects[r.IntN(len(subjects))]
				in, what := class.mutate(t, r, x, subjects)
				j := judgement{unwritable, ""}
				if in != nil && !bytes.Equal(in, x.file) {
					j = x.judgeFile(in, class, with)
				}
				mu.Lock()
				counts[class.name][j.outcome]++
				if j.outcome == accepted {
					wrong = append(wrong, fmt.Sprintf("mutant %d of seed %d: %s %+v: %s %s: %s", i, seed, x.name, []any{x.c.Run, x.c.Dispatch}, class.name, what, j.why))
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(wrong)
	return counts, wrong
}

// A bundle that somebody changed who has the service's key is refused where the
// auditor has an anchor. Where not, it differs from the honest one only in what
// docs/evidence.md lists as claimed.
//
// takeover both modes, backup; root; service account: until forge evidence
// takeover same-user, MCP program; a person's account; page; worker: until forge evidence
//
// proves R-A7
func TestNoMutantIsAcceptedWithAnotherMeaning(t *testing.T) {
	subjects := mutantSubjects(t)
	counts, wrong := campaign(t, subjects, *mutantCount, *mutantSeed, agreements())
	t.Logf("%d bundles, %d mutants of seed %d\n%s", len(subjects), *mutantCount, *mutantSeed, counts)
	for _, w := range wrong[:min(len(wrong), 30)] {
		t.Error(w)
	}
	if len(wrong) > 0 {
		t.Errorf("%d mutants are accepted with another meaning", len(wrong))
	}
}

// contradictions changes fields of entries of all subjects, one at a time, as who can
// sign again does, and returns those that are accepted and not claimed.
func contradictions(t testing.TB, subjects []*subject, with table, most int, wanted func(k record.Kind, field string) bool) (wrong []string, tried map[string]int) {
	t.Helper()
	tried = map[string]int{}
	r := rand.New(rand.NewPCG(*mutantSeed, 0)) //nolint:gosec // G404: reproducible on purpose
	for _, x := range subjects {
		for _, i := range x.mine() {
			kind := x.s.entries[i].Kind
			for _, f := range fieldsOf(kind) {
				key := string(kind) + " " + f
				if !wanted(kind, f) || tried[key] >= most {
					continue
				}
				tried[key]++
				g := x.forge()
				if !g.change(r, i, f) {
					continue
				}
				in := g.file(t)
				if in == nil {
					continue
				}
				if j := x.judgeFile(in, &mutation{}, with); j.outcome == accepted {
					wrong = append(wrong, fmt.Sprintf("%s %s%s: entry #%d, %s: %s is %s: %s", x.name, x.c.Run, x.c.Dispatch, i, kind, f, shown(&g.entries[i], f), j.why))
				}
			}
		}
	}
	return wrong, tried
}

// Every field of every kind of entry is changed, one at a time, by who can sign
// again: it is refused, or it is claimed.
//
// takeover both modes, backup; root; service account: until forge evidence
// takeover same-user, MCP program; a person's account; page; worker: until forge evidence
//
// proves R-A7
func TestEachContradictingFieldIsRefused(t *testing.T) {
	// The race detector sees a part of the fields: the others run the same code.
	wanted := func(k record.Kind, f string) bool {
		return f == "at" || crc32.ChecksumIEEE([]byte(string(k)+f))%shrink == 0
	}
	wrong, tried := contradictions(t, mutantSubjects(t), agreements(), max(1, *mutantCount/1500), wanted)
	for _, w := range wrong {
		t.Error(w)
	}
	for _, k := range except(inBundles(), record.KindCancelDenied, record.KindAnswerDenied, record.KindAccessAllowed) {
		if tried[string(k)+" at"] == 0 {
			t.Errorf("no subject has a %s", k)
		}
	}
}

// The positive control: where one comparison is missing, the mutants find it.
func TestMutantsFindAMissingComparison(t *testing.T) {
	subjects := mutantSubjects(t)
	for _, field := range []string{"principal", "role", "tier", "detail.by", "detail.ceiling", "detail.files", "detail.message", "detail.exitCode", "detail.partial", "detail.subjects", "detail.capabilities", "detail.reasons"} {
		without := tableOf(slices.DeleteFunc(allAgreements(), func(a agreement) bool { return a.field == field && a.check != nil }))
		found := false
		for most := 1; most <= 64 && !found; most *= 4 {
			wrong, _ := contradictions(t, subjects, without, most, func(_ record.Kind, f string) bool { return f == field })
			found = len(wrong) > 0
		}
		if !found {
			t.Errorf("no mutant finds that %s is not compared", field)
		}
	}
	without := tableOf(slices.DeleteFunc(allAgreements(), func(a agreement) bool { return a.field == "role" }))
	for n := 100; ; n *= 5 {
		if _, wrong := campaign(t, subjects, n, *mutantSeed, without); len(wrong) > 0 {
			return
		}
		if n > 3000 {
			t.Fatal("no mutant of a campaign finds that the role is not compared")
		}
	}
}

// Two dispatches under one id are an attempt after the attestation, which attests none
// that ended. The verifier refuses that and has no defect.
func TestAnAttestationOfARunningAttemptIsRefused(t *testing.T) {
	tried := 0
	for _, x := range mutantSubjects(t) {
		if x.name != "reuse" || x.c.Run == "" {
			continue
		}
		g := x.forge()
		for i := range g.entries {
			if g.entries[i].Dispatch == "t-a1" {
				g.entries[i].Dispatch, tried = "t-b1", tried+1
			}
		}
		if j := x.judgeFile(g.file(t), &mutation{linked: true}, agreements()); j.outcome != refused {
			t.Errorf("%+v", j)
		}
	}
	if tried == 0 {
		t.Error("no subject has the dispatch")
	}
}
