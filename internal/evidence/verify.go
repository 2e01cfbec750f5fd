package evidence

import (
	"encoding/hex"
	"fmt"
	"github.com/bailiwick-dev/bailiwick/internal/evidence/bundle"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/note"
)

// Options are what a verifier may be given beside the trust file.
type Options struct {
	// Held are signed checkpoints that the auditor has otherwise than by the
	// bundle: what an anchor keeps, read by the auditor.
	Held [][]byte
	// Fetched are those of the places of anchors, whatever the bundle says of these
	// or leaves out. They earn nothing by themselves, and must not contradict.
	Fetched [][]byte
	// Receipts checks what anchors said. Nil: nothing of it is checked.
	Receipts Receipts
}

// Receipts checks receipts of anchors without asking anybody.
type Receipts interface {
	// Check says what a receipt earns for the checkpoint that it is of, whose
	// signature was verified. Held are the checkpoints of Options that verify. An
	// error means that the receipt is not of this checkpoint, or not genuine.
	Check(a bundle.Anchored, c note.Checkpoint, t Trust, held []note.Checkpoint) (Earned, error)
}

// Earned is what a receipt proves. The zero value with Why is a receipt that
// could not be checked.
type Earned struct {
	Checked bool       // the receipt is genuine and of this checkpoint
	Claim   Claim      // empty: none
	Time    *time.Time // by which the checkpoint was there, if an authority said so
	Why     string     // in plain words
}

// verification is one Verify.
type verification struct {
	b       *bundle.Bundle
	trust   Trust
	options Options
	log     LogTrust // with the keys that follow
	// statements are the keys for those, likewise.
	statements []LogKey
	cp         note.Checkpoint
	entries    []entry

	*world
	used sync.Map // documents that something names

	rows     map[RowName]*finding
	words    map[RowName]string
	earned   Claim
	unproved string // what is to be said of checkpoints of the auditor's that cannot be held against this
	attested *time.Time
}

// Verify recomputes everything that a bundle stands for and says what is right.
// It ends, whatever the bundle is, in time and memory that its size bounds.
func Verify(b *bundle.Bundle, t Trust, o Options) Report {
	v := &verification{b: b, trust: t, options: o, rows: map[RowName]*finding{}, words: map[RowName]string{}, earned: ClaimNone}
	for _, name := range RowNames() {
		v.rows[name] = &finding{}
	}
	if err := t.Validate(); err != nil {
		v.rows[RowSignature].fail("%v", err)
		return v.report()
	}
	v.decode()
	v.checkpoint()
	v.inclusion()
	v.world = newWorld(v)
	v.catalog()
	v.completeness()
	v.each()
	v.authorise()
	v.strays()
	return v.report()
}

// decode reads the entries.
func (v *verification) decode() {
	v.entries = make([]entry, len(v.b.Entries))
	wrong := make([]error, len(v.b.Entries))
	parallel(len(v.b.Entries), func(i int) {
		v.entries[i], wrong[i] = newEntry(&v.b.Entries[i])
	})
	for i, err := range wrong {
		if err != nil {
			v.rows[RowCompleteness].fail("entry #%d: %v", v.b.Entries[i].Seq, err)
		}
	}
}

// inclusion holds the entries against the root.
func (v *verification) inclusion() {
	seqs, leaves := make([]uint64, len(v.entries)), make([]note.Hash, len(v.entries))
	for i := range v.entries {
		seqs[i], leaves[i] = v.entries[i].seq, v.entries[i].hash
	}
	row := v.rows[RowInclusion]
	root, err := bundle.Root(seqs, leaves, v.cp.Size, v.b.Proof)
	switch {
	case err != nil:
		row.fail("the entries are not proved to be in the log of %d entries: %v", v.cp.Size, err)
	case root != v.cp.Root:
		row.fail("the entries are not those of the log of %d entries: with them its root is another", v.cp.Size)
	default:
		row.checked = len(v.entries)
		v.words[RowInclusion] = fmt.Sprintf("all %d entries are in the log of %d entries, each at its number", len(v.entries), v.cp.Size)
	}
}

// each looks at every dispatch by itself.
func (v *verification) each() {
	list := v.ordered
	checks := make([]dispatchCheck, len(list))
	parallel(len(list), func(i int) {
		checks[i] = dispatchCheck{v: v, h: list[i]}
		checks[i].run()
	})
	for i := range checks { // in their order, so that a report is the same each time
		v.rows[RowManifest].add(&checks[i].manifest)
		v.rows[RowResult].add(&checks[i].result)
	}
	v.sources()
	// What one takes over from another can be looked at when all are read.
	closures := make([]closure, len(list))
	parallel(len(list), func(i int) {
		closures[i] = closure{v: v, h: list[i]}
		closures[i].run()
	})
	for i := range closures {
		v.rows[RowProvenance].add(&closures[i].finding)
	}
	attempts, results, statements := 0, 0, 0
	for _, h := range list {
		attempts += len(h.attempts)
		for _, a := range h.attempts {
			if a.result != nil {
				results++
			}
		}
		if h.stated {
			statements++
		}
	}
	v.words[RowManifest] = fmt.Sprintf("%d attempts of %d dispatches ran by the manifest that their entries name, signed by the service's key of that time", attempts, len(list))
	v.words[RowResult] = fmt.Sprintf("%d results are signed with the key that the log binds to their attempt, %d attempts left none and say so, %d statements", results, attempts-results, statements)
	v.words[RowProvenance] = "everything that was consumed is of the request, of the catalog, or the product of a dispatch that is here"
	if len(list) == 0 {
		for _, name := range []RowName{RowManifest, RowResult, RowProvenance} {
			v.rows[name].absent = "nothing was dispatched"
		}
	}
}

// document returns a document that something names.
func (v *verification) document(d api.Digest, what string) ([]byte, error) {
	doc, ok := v.b.Documents[d]
	if !ok {
		return nil, fmt.Errorf("%s %s is not in the bundle", what, d.Short())
	}
	v.used.Store(d, nil)
	return doc, nil
}

// strays refuses what nothing names: whoever looks into a bundle must not take
// it for a part of what happened.
func (v *verification) strays() {
	named := func(d api.Digest) bool {
		_, ok := v.used.Load(d)
		return ok
	}
	for _, d := range slices.Sorted(maps.Keys(v.b.Documents)) {
		if !named(d) {
			v.rows[RowProvenance].fail("document %s is named by nothing", d.Short())
		}
	}
	for _, c := range v.b.Content {
		if !named(c.Digest) {
			v.rows[RowProvenance].fail("content %s is named by nothing", c.Digest.Short())
		}
	}
}

func (v *verification) report() Report {
	r := Report{
		V: 1, Run: v.b.Case.Run, Dispatch: v.b.Case.Dispatch, Log: v.trust.Log.Origin, Size: v.cp.Size, Root: hex.EncodeToString(v.cp.Root[:]),
		Entries: len(v.b.Entries), Claim: ClaimNone, Time: TimeAsserted, Authorisation: AuthorisationNone,
	}
	if v.world != nil {
		r.Dispatches = len(v.ordered)
	}
	if n := len(v.entries); n > 0 && v.entries[0].ok && v.entries[n-1].ok {
		r.From, r.To = &v.entries[0].At, &v.entries[n-1].At
	}
	for _, name := range RowNames() {
		r.Rows = append(r.Rows, v.rows[name].row(name, v.words[name]))
	}
	if r.Failed() {
		return r
	}
	r.Claim = v.earned
	if v.attested != nil {
		r.Time = TimeAttested
	}
	if r.Row(RowAuthorisation).Status == Pass {
		r.Authorisation = AuthorisationSameUser
	}
	return r
}

// parallel calls f for each of n, on all processors.
func parallel(n int, f func(i int)) {
	workers := min(runtime.GOMAXPROCS(0), n)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				f(i)
			}
		})
	}
	wg.Wait()
}
