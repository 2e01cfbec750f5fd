package evidence

import (
	"encoding/hex"
	"fmt"
	"runtime"
	"sync"

	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// Options are what an auditor may provide beside the trust file.
type Options struct {
	Copies []Copy
	Calls  *CallRecords // read with the bundle; nil: its content is not compared
}

// Copy is an auditor's copy of checkpoints: a file with signed checkpoints.
type Copy struct {
	File        string   // what the auditor calls it
	Anchor      string   // the anchor of the trust file that it was fetched from; empty: from none
	Checkpoints [][]byte // see receipt.Checkpoints
}

// verification is the state of one Verify.
type verification struct {
	b       *bundle.Bundle
	trust   Trust
	options Options
	log     *logCheck

	work      *meter
	docs      *library
	artifacts artifacts

	*world
	builtIn sync.Map // the engines of built-in policies, by the operator: see builtInRules

	line    *timeline                // what was in force when; nil until follow
	records map[uint64]*signedRecord // the signed records of operators, by the entry that puts each in force
	slots   slots
	rows    report.Findings
	halted  bool // see stopped
}

// Verify recomputes everything that a bundle claims and reports each check. Its
// time and memory are bounded by the bundle's size.
func Verify(b *bundle.Bundle, t Trust, o Options) report.Report { return verify(b, t, o, agreements()) }

// verify is Verify with this table of agreements.
func verify(b *bundle.Bundle, trust Trust, o Options, t table) report.Report {
	return verifyWith(b, trust, o, t, newMeter(sizeOf(b, &o)))
}

// verifyWith is verify with this much work.
func verifyWith(b *bundle.Bundle, trust Trust, o Options, t table, work *meter) report.Report {
	return newVerification(b, trust, o, work).run(t)
}

func newVerification(b *bundle.Bundle, trust Trust, o Options, work *meter) *verification {
	rows, w := report.NewFindings(), &world{}
	return &verification{
		b: b, trust: trust, options: o, work: work, rows: rows,
		docs: &library{documents: b.Documents, work: work},
		log:  &logCheck{b: b, trust: trust, copied: o.Copies, work: work, rows: rows, roots: map[uint64]logproof.Hash{}, earned: report.ClaimNone},

		world: w, slots: slots{w, work, map[string]int{}}, records: map[uint64]*signedRecord{},
	}
}

// run verifies from top to bottom: what was read, what the log proves of it, what the
// entries say happened, and what the documents say of that. A stage that panics fails its
// row, and the report says so; so does a bundle that takes more work than its size allows.
func (v *verification) run(t table) (out report.Report) {
	if err := v.trust.Validate(); err != nil {
		v.rows[report.RowSignature].Fail("%v", err)
		return v.report()
	}
	now := report.RowCompleteness
	defer func() {
		switch r := recover(); r {
		case nil:
		case errWork:
			out = v.stopped(report.RowCompleteness, v.work.why())
		default:
			out = v.stopped(now, defective(r))
		}
	}()
	stage := func(row report.RowName) *report.Finding {
		if v.work.over() {
			panic(errWork)
		}
		now = row
		return v.rows[row]
	}

	row := stage(report.RowCompleteness)
	v.entries = decode(v.b, v.work, row)
	v.log.entries = v.entries

	stage(report.RowSignature)
	own, unsigned := v.log.signature()
	stage(report.RowInclusion)
	v.log.inclusion()
	stage(report.RowConsistency)
	v.log.compare(own, unsigned == nil)

	row = stage(report.RowCompleteness)
	v.group(row)
	stage(report.RowProvenance)
	v.docs.assign(v.b, v.entries)
	stage(report.RowResult)
	openResults(v.docs, v.ordered)
	stage(report.RowCatalog)
	v.catalog()
	stage(report.RowCompleteness)
	v.completeness()
	stage(report.RowAuthorisation)
	v.follow()

	stage(report.RowManifest)
	v.bind()
	row = stage(report.RowManifest)
	v.sources(row)
	v.slots.scheduled(row)
	stage(report.RowProvenance)
	v.close()
	v.countDispatches()
	stage(report.RowAuthorisation)
	v.authorise()
	stage(report.RowCompleteness)
	v.agree(t)
	stage(report.RowProvenance)
	v.refuseUnrelated()

	stage(report.RowCompleteness)
	return v.report()
}

// stopped is the report about a bundle that could not be verified to the end: nothing is
// proved. row fails, and says why.
func (v *verification) stopped(row report.RowName, why string) report.Report {
	for _, name := range report.RowNames() {
		v.rows[name] = &report.Finding{Absent: "not finished: the verifier stopped"}
	}
	v.rows[row].Fail("%s", why)
	v.halted = true
	return v.report()
}

const defect = "the verifier has a defect and could not check this"

// defective says what a panic means for an auditor. A defect of the verifier must not keep
// an auditor from a report, and never makes a row pass.
func defective(r any) string {
	return fmt.Sprintf("%s (%.200s): trust nothing of this bundle, and report it to the maintainers", defect, fmt.Sprint(r))
}

// recovered calls f and returns why it panicked; empty if it did not.
func recovered(f func()) (why string) {
	defer func() {
		if r := recover(); r != nil {
			why = defective(r)
		}
	}()
	f()
	return ""
}

// decode decodes the entries.
func decode(b *bundle.Bundle, work *meter, row *report.Finding) []entry {
	entries := make([]entry, len(b.Entries))
	wrong := make([]error, len(b.Entries))
	parallel(len(b.Entries), func(i int) {
		if wrong[i] = work.entry(b.Entries[i].Leaf); wrong[i] == nil {
			if entries[i], wrong[i] = newEntry(&b.Entries[i]); wrong[i] != nil {
				_ = work.spend(len(b.Entries[i].Leaf)) // what it takes to say why
			}
		}
	})
	for i, err := range wrong {
		if err != nil {
			row.Fail("entry #%d: %v", b.Entries[i].Seq, err)
		}
	}
	return entries
}

// bind compares every dispatch with its manifests, its results and its statement.
func (v *verification) bind() {
	list := v.ordered
	checks := make([]dispatchCheck, len(list))
	parallel(len(list), func(i int) {
		checks[i] = dispatchCheck{v: v, h: list[i]}
		checks[i].run()
	})
	for i := range checks { // in order, so that reports are reproducible
		v.rows[report.RowManifest].Add(&checks[i].manifest)
		v.rows[report.RowResult].Add(&checks[i].result)
	}
}

// close compares what every dispatch took from others, which are all read by then.
func (v *verification) close() {
	list := v.ordered
	closures := make([]closure, len(list))
	parallel(len(list), func(i int) {
		closures[i] = closure{v: v, h: list[i]}
		closures[i].run()
	})
	for i := range closures {
		v.rows[report.RowProvenance].Add(&closures[i].Finding)
	}
}

// countDispatches says what was compared of the dispatches.
func (v *verification) countDispatches() {
	list := v.ordered
	attempts, results, statements, reused := 0, 0, 0, 0
	for _, h := range list {
		if h.last().reuses != "" {
			reused++
			continue
		}
		attempts += len(h.attempts)
		for _, a := range h.attempts {
			if a.result != nil {
				results++
			}
		}
		if h.attestationValid {
			statements++
		}
	}
	v.rows[report.RowManifest].Right = fmt.Sprintf("%s of %s ran the manifest named in the log, signed by the service key in force", record.Plural(attempts, "attempt"), record.Plural(len(list)-reused, "dispatch"))
	if reused > 0 {
		v.rows[report.RowManifest].Right += fmt.Sprintf("; %s had the result of one with the same inputs", record.Plural(reused, "dispatch"))
	}
	v.rows[report.RowResult].Right = fmt.Sprintf("%s signed by the worker key that the log binds to the attempt, %s logged without a result, %s",
		record.Plural(results, "result"), record.Plural(attempts-results, "attempt"), record.Plural(statements, "statement"))
	v.rows[report.RowProvenance].Right = "every input comes from the request, the catalog or a dispatch in this bundle"
	if len(list) == 0 {
		for _, name := range []report.RowName{report.RowManifest, report.RowResult, report.RowProvenance} {
			v.rows[name].Absent = "nothing was dispatched"
		}
	}
}

func (v *verification) report() report.Report {
	r := report.Report{
		V: 1, Run: v.b.Case.Run, Dispatch: v.b.Case.Dispatch, Log: v.trust.Log.Origin, Size: v.log.cp.Size, Root: hex.EncodeToString(v.log.cp.Root[:]),
		Entries: len(v.b.Entries), Dispatches: len(v.ordered), Claim: report.ClaimNone, Time: report.TimeAsserted, Authorisation: report.AuthorisationNone,
	}
	if n := len(v.entries); n > 0 && v.entries[0].ok && v.entries[n-1].ok {
		r.From, r.To = &v.entries[0].At, &v.entries[n-1].At
	}
	for _, name := range report.RowNames() {
		r.Rows = append(r.Rows, v.rows[name].Row(name))
	}
	if r.Work = v.work.report(); v.halted || v.work.over() {
		return r
	}
	r.Ran = v.ran(&r)
	if r.Failed() {
		return r
	}
	r.Ran.Claimed = append(append(r.Ran.Claimed, v.slots.claimed()...), v.log.claimed...)
	r.Claim = v.log.earned
	if v.log.attested != nil {
		r.Time = report.TimeAttested
	}
	if r.Row(report.RowAuthorisation).Status == report.Pass {
		r.Authorisation = report.AuthorisationSameUser
	}
	return r
}

// parallel calls f for 0 to n-1, on all processors. It panics if a call panics.
func parallel(n int, f func(i int)) {
	workers := min(runtime.GOMAXPROCS(0), n)
	panics := make([]any, max(0, workers))
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			defer func() { panics[w] = recover() }()
			for i := w; i < n; i += workers {
				f(i)
			}
		})
	}
	wg.Wait()
	for _, p := range panics {
		if p != nil {
			panic(p)
		}
	}
}
