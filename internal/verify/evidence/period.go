package evidence

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

const (
	// maxKnown is how many runs and dispatches a log has at most: the state of each takes
	// about 300 bytes.
	maxKnown = 10_000_000
	// maxListed is how many lines a period has at most: each takes about 1 KiB.
	maxListed = 1_000_000
)

// Period is what VerifyPeriod lists of a log.
type Period struct {
	Since, Until time.Time // by the service's clock, Until excluded; zero: without a bound
	Copies       []Copy
}

// Has reports whether an entry of this time is in the period.
func (p *Period) Has(at time.Time) bool {
	return !at.Before(p.Since) && (p.Until.IsZero() || at.Before(p.Until))
}

// VerifyPeriod verifies a copy of a whole log, which open reads by the names of "audit
// tiles", and lists what happened in a period. It reads all entries from the first,
// because the keys, catalogs and operators of the period follow from those before it, and
// keeps one bundle of entries at a time.
func VerifyPeriod(open func(name string) (io.ReadCloser, error), t Trust, p Period) (report.PeriodReport, error) {
	read := func(name string, most int64) ([]byte, error) {
		return readAll(Files{Open: open}, name, most)
	}
	checkpoint, err := read(logproof.CheckpointName, maxCheckpoint)
	if err != nil {
		return report.PeriodReport{}, fmt.Errorf("the signed checkpoint of the copy: %w", err)
	}
	c := newPeriodCheck(read, checkpoint, t, p)
	if err := c.start(); err != nil {
		c.v.rows[report.RowSignature].Fail("%v", err)
		return c.report(), nil
	}
	for _, step := range []struct {
		row report.RowName
		do  func()
	}{{report.RowInclusion, c.entries}, {report.RowSignature, c.sign}, {report.RowCompleteness, c.lacking}} {
		if why := recovered(step.do); why != "" {
			c.v.rows[step.row].Fail("%s", why)
		}
	}
	return c.report(), nil
}

const maxCheckpoint = 64 << 10

// periodCheck is the state of one VerifyPeriod.
type periodCheck struct {
	read   func(name string, most int64) ([]byte, error)
	v      *verification
	period Period
	out    report.PeriodReport

	line   *timeline
	sum    *logproof.Range
	wanted map[uint64]bool // sizes of the auditor's checkpoints

	dispatches map[api.DispatchID]*knownDispatch
	runs       map[string]*knownRun
	sets       int // of operator keys that followed the first
	listed     int
	over       bool // more than maxKnown or maxListed
}

func newPeriodCheck(read func(string, int64) ([]byte, error), checkpoint []byte, t Trust, p Period) *periodCheck {
	b := &bundle.Bundle{Case: bundle.Case{V: 1, Checkpoint: checkpoint}}
	// Each byte is read once, so the work needs no other bound than the size of the copy.
	unbounded := &meter{workLimit: math.MaxInt64, memoryLimit: math.MaxInt64}
	v := newVerification(b, t, Options{Copies: p.Copies}, unbounded)
	v.log.whole = true
	v.group(v.rows[report.RowCompleteness])
	c := &periodCheck{
		read: read, v: v, period: p, sum: logproof.NewRange(), wanted: map[uint64]bool{},
		dispatches: map[api.DispatchID]*knownDispatch{}, runs: map[string]*knownRun{},
		line: &timeline{v: v, row: v.rows[report.RowAuthorisation], ceilings: ceilings{}, stops: newStops(), votes: map[api.ApprovalID][]cast{}, counter: seal.SignCounter{}},
	}
	c.out = report.NewPeriod(t.Log.Origin, p.Since, p.Until)
	return c
}

// start reads what the entries are compared with.
func (c *periodCheck) start() (err error) {
	v := c.v
	if err := v.trust.Validate(); err != nil {
		return err
	}
	if v.log.cp, err = logproof.Peek(v.b.Case.Checkpoint); err != nil {
		return err
	}
	for _, one := range c.period.Copies {
		for _, raw := range one.Checkpoints {
			if h, err := logproof.Peek(raw); err == nil {
				c.wanted[h.Size] = true
			}
		}
	}
	if v.trust.Operators != nil {
		c.line.operators, err = seal.NewOperators(*v.trust.Operators)
	}
	return err
}

// entries reads all entries that the checkpoint covers, in order.
func (c *periodCheck) entries() {
	v, row := c.v, c.v.rows[report.RowInclusion]
	for c.sum.Size() < v.log.cp.Size && !c.over {
		index, n := c.sum.Size()/logproof.TileWidth, min(logproof.TileWidth, v.log.cp.Size-c.sum.Size())
		leaves, err := c.bundle(index, n)
		if err != nil {
			row.Fail("entries #%d to #%d: %v: the folder is not a whole copy of the log; \"bailiwick audit tiles --to DIR\" makes one", c.sum.Size(), c.sum.Size()+n-1, err)
			return
		}
		for _, leaf := range leaves {
			seq := c.sum.Size()
			if err := c.sum.Add(logproof.LeafHash(leaf)); err != nil {
				row.Fail("entry #%d: %v", seq, err)
				return
			}
			if c.wanted[seq+1] {
				if v.log.roots[seq+1], err = c.sum.Root(); err != nil {
					row.Fail("entry #%d: %v", seq, err)
				}
			}
			c.entry(seq, leaf)
		}
	}
	root, err := c.sum.Root()
	switch {
	case c.over: // the row of the chains says so
		row.Absent = "not finished: the verifier stopped"
	case err != nil:
		row.Fail("%v", err)
	case root != v.log.cp.Root:
		row.Fail("the entries differ from the checkpoint of %s: the root differs, so at least one entry was changed", record.Plural(v.log.cp.Size, "entry"))
	default:
		row.Checked, v.rows[report.RowInclusion].Right = 1, fmt.Sprintf("all %s of the log are here, each under its number", record.Plural(v.log.cp.Size, "entry"))
	}
}

// bundle reads n entries. A complete bundle may have superseded a partial one.
func (c *periodCheck) bundle(index, n uint64) ([][]byte, error) {
	name := logproof.TileName("entries", index, n)
	content, err := c.read(name, logproof.MaxBundle)
	if errors.Is(err, fs.ErrNotExist) && n < logproof.TileWidth {
		if whole, e := c.read(logproof.TileName("entries", index, logproof.TileWidth), logproof.MaxBundle); e == nil {
			content, err = logproof.CutBundle(whole, n), nil
		}
	}
	if err != nil {
		return nil, err
	}
	leaves, err := logproof.SplitBundle(content, n)
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return leaves, err
}

// entry verifies the next entry, and lists it if it is of the period.
func (c *periodCheck) entry(seq uint64, leaf []byte) {
	v, row := c.v, c.v.rows[report.RowCompleteness]
	e, err := newEntry(&bundle.Entry{Seq: seq, Leaf: leaf})
	if err != nil {
		row.Fail("entry #%d: %v", seq, err)
		return
	}
	if c.period.Until.IsZero() || e.At.Before(c.period.Until) {
		v.b.Entries = []bundle.Entry{{Seq: seq}} // see covers: copies have to cover the period
	}
	var by []report.SignedBy
	switch {
	case e.Kind == record.KindKeyRotated:
		by = c.rotation(&e)
	case e.Kind.Rules() || e.Kind.Admits():
		by = c.rule(&e)
	}
	c.chains(&e)
	if c.period.Has(e.At) {
		c.list(&e, by)
	}
	c.gaps(&e)
	if len(c.dispatches)+len(c.runs) > maxKnown || c.listed > maxListed {
		c.over = true
		row.Fail("stopped at entry #%d: more than %d runs and dispatches in the log, or %d lines in the period: name a shorter period", seq, maxKnown, maxListed)
	}
}

// sign verifies the signature of the checkpoint, by the keys that rotations put in force,
// and compares the auditor's copies.
func (c *periodCheck) sign() {
	v := c.v
	own, err := v.log.signature()
	v.log.compare(own, err == nil)
}

// documents returns the signed documents that an entry names.
func (c *periodCheck) documents(e *entry) ([][]byte, error) {
	b, err := c.read(logproof.SignedName(e.seq), bundle.MaxSigned)
	if err != nil {
		return nil, fmt.Errorf("its signed document is not in the copy: %w; \"bailiwick audit tiles --to DIR\" adds it", err)
	}
	doc, err := bundle.ParseSigned(b)
	return doc.Envelopes, err
}

// rotation takes a change of the service's key, which signature follows.
func (c *periodCheck) rotation(e *entry) []report.SignedBy {
	d := detail[record.KeyRotation](e)
	if e.SignedRef() == "" {
		return nil // a key for statements, or the first
	}
	docs, err := c.documents(e)
	if err == nil && (len(docs) != 1 || api.DigestOf(docs[0]) != e.Refs[record.RefRotation]) {
		err = errors.New("the signed document is not the one that it names")
	}
	if err == nil {
		var r seal.KeyRotation
		if r, err = seal.PeekRotation(docs[0]); err == nil && (r.Entry != e.seq || string(r.Old) != d.Old || string(r.New.ID) != d.New) {
			err = errors.New("the signed document is of another rotation")
		}
	}
	if err != nil {
		if _, known := FindKey(c.v.trust.Log.Keys, seal.KeyID(d.New)); !known {
			c.v.rows[report.RowSignature].Fail("entry #%d, %s: %v", e.seq, e.Kind, err)
		}
		return nil
	}
	c.v.b.Case.Rotations = append(c.v.b.Case.Rotations, docs[0])
	return []report.SignedBy{c.v.serviceKey(seal.KeyID(d.Old))}
}

// rule follows an entry that changes what is allowed, or that names the last one that did.
// It keeps nothing of it but the operators' keys and the ends of the chains.
func (c *periodCheck) rule(e *entry) (by []report.SignedBy) {
	v, s := c.v, c.line
	if e.Kind == record.KindStopEngaged {
		v.stops.add(e)
	}
	if e.SignedRef() != "" {
		docs, err := c.documents(e)
		if err != nil {
			row := v.rows[report.RowAuthorisation]
			if e.Kind == record.KindCatalogRevision {
				row = v.rows[report.RowCatalog]
			}
			row.Fail("entry #%d, %s: %v", e.seq, e.Kind, err)
		}
		c.hold(e, docs)
	}
	set := uint64(0)
	if s.operators != nil {
		set = s.operators.Number()
	}
	s.step(e)
	if s.operators != nil && s.operators.Number() != set {
		c.sets++
	}
	if e.Kind.Rules() {
		for _, w := range v.scene(e).wrong(agreements()) {
			v.rows[w.row].Fail("%s", w.why)
		}
	}
	if rec := v.records[e.seq]; rec != nil {
		by = rec.by
		v.rows[report.RowAuthorisation].Checked++
	}
	if e.Kind == record.KindCatalogRevision {
		by = publishers(v.revisions[e.Refs[record.RefRevision]], v.trust.Deploy)
	}
	clear(v.records)
	clear(v.revisions)
	clear(v.docs.documents)
	clear(v.stops.lines)
	v.docs.used.Clear()
	s.admitted, s.seen, s.now, s.ceilings, s.stops = nil, nil, ruling{}, ceilings{}, newStops()
	clear(s.votes)
	return by
}

// hold makes the signed documents of an entry those that the verification reads.
func (c *periodCheck) hold(e *entry, docs [][]byte) {
	v := c.v
	v.docs.documents, v.docs.readers = map[api.Digest][]byte{}, map[api.Digest]reader{}
	digests := make([]api.Digest, len(docs))
	for i, doc := range docs {
		digests[i] = api.DigestOf(doc)
		v.docs.documents[digests[i]] = doc
	}
	if e.Kind == record.KindOperatorRecorded {
		n := uint64(c.line.records + 1)     //nolint:gosec // G115: counts up from 0
		digests = append(digests, "")[:1:1] // none: it is reported, and the next is compared
		v.docs.readers[digests[0]] = reader{report.RowAuthorisation, "", n}
		v.b.Case.Records = append(v.b.Case.Records, digests[0])
		return
	}
	if len(docs) == 0 {
		return
	}
	row, d := v.rows[report.RowCatalog], e.Refs[record.RefRevision]
	for _, one := range digests {
		v.docs.readers[one] = reader{report.RowCatalog, d, 0}
	}
	doc, signers, err := readRevision(v.docs, v.trust.Deploy, bundle.Revision{Digest: d, Envelopes: digests})
	if err != nil {
		row.Fail("entry #%d: catalog revision %s: %v", e.seq, d.Short(), err)
	} else {
		row.Checked++
	}
	if doc != nil {
		v.revisions[d] = &revision{doc: *doc, digest: d, signers: signers, docs: v.docs, shared: &v.artifacts}
	}
}

// report returns the report, with nothing claimed if a row fails.
func (c *periodCheck) report() report.PeriodReport {
	v, r := c.v, &c.out
	r.Size, r.Root = v.log.cp.Size, hex.EncodeToString(v.log.cp.Root[:])
	chains, catalog, records := v.rows[report.RowCompleteness], v.rows[report.RowCatalog], v.rows[report.RowAuthorisation]
	chains.Checked = int(min(c.sum.Size(), math.MaxInt)) //nolint:gosec // G115: bounded
	v.rows[report.RowCompleteness].Right = fmt.Sprintf("each entry names the one before it of its dispatch, its run and the rules, and can follow it; %s, %s", record.Plural(len(c.dispatches), "dispatch"), record.Plural(len(c.runs), "run"))
	v.rows[report.RowCatalog].Right = fmt.Sprintf("%s, each signed by at least %s", record.Plural(catalog.Checked, "catalog revision"), record.Plural(v.trust.Deploy.Root.Threshold, "deploy key"))
	v.rows[report.RowAuthorisation].Right = fmt.Sprintf("%s of operators, each signed by the keys then in force", record.Plural(records.Checked, "record"))
	if c.sets > 0 {
		v.rows[report.RowAuthorisation].Right += fmt.Sprintf(", which changed %s", record.Plural(c.sets, "time"))
	}
	for _, name := range []struct{ of, shown report.RowName }{
		{report.RowInclusion, report.RowInclusion},
		{report.RowSignature, report.RowSignature},
		{report.RowConsistency, report.RowConsistency},
		{report.RowAnchor, report.RowAnchor},
		{report.RowCatalog, report.RowCatalog},
		{report.RowAuthorisation, report.RowRecords},
		{report.RowCompleteness, report.RowChains},
	} {
		r.Rows = append(r.Rows, v.rows[name.of].Row(name.shown))
	}
	r.Claim = report.ClaimNone
	if !r.Failed() {
		r.Claim = v.log.earned
	}
	return *r
}
