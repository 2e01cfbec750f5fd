// Package export builds the evidence about a run or a dispatch from the log and
// its tree, the blobs, the catalog and the operators' records. It does not judge
// what it finds: verifiers do, and so does the service itself, with the same
// code, for each run and dispatch that ends (Checker).
//
// The package only reads. Its callers decide who may have evidence.
//
// Carries the service's half of R-A7.
package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
)

// Tree is the Merkle tree of the log. An audit.Tree is one.
type Tree interface {
	Latest() (signed []byte, c logproof.Checkpoint)
	Wait(ctx context.Context, size uint64) error
	InclusionProof(ctx context.Context, index, size uint64) ([]logproof.Hash, error)
	ConsistencyProof(ctx context.Context, from, to uint64) ([]logproof.Hash, error)
}

// Catalog reads revisions.
type Catalog interface {
	Signed(ctx context.Context, d api.Digest) (api.Revision, [][]byte, error)
	Artifact(ctx context.Context, d api.Digest) ([]byte, error)
}

// Config is what New needs.
type Config struct {
	Ledger  *audit.Ledger
	Tree    Tree
	Blobs   *blob.Store
	Catalog func(ctx context.Context) (Catalog, func(), error) // opens it for one export; the function closes it
	Records func(ctx context.Context, n int) ([][]byte, error) // the first n records of operators
	Record  func(ctx context.Context, n int64) ([]byte, error) // record n, from 1
	Plan    func(ctx context.Context, id api.RunID) (json.RawMessage, error)
	// Growths returns the canonical growths of a run.
	Growths func(ctx context.Context, id api.RunID) ([]json.RawMessage, error)
	// Action returns what a request for an approval is about, in canonical form.
	Action func(ctx context.Context, id api.ApprovalID) ([]byte, error)
	// Rotations of the service's key, oldest first.
	Rotations [][]byte
	// Anchored, if set, returns the anchors' checkpoints for the first size
	// entries, with receipts and without proofs.
	Anchored func(ctx context.Context, size uint64) ([]bundle.Anchored, error)
	// Sizes, if set, returns the sizes up to most at which anchors got checkpoints, as
	// bundle.Select chooses them.
	Sizes func(ctx context.Context, first, last, most uint64) ([]uint64, error)
	// Attest is how long to wait for the attestation of a dispatch that has just
	// ended.
	Attest time.Duration
}

// Exporter builds evidence. It is safe for concurrent use.
type Exporter struct{ cfg Config }

// New returns an Exporter.
func New(cfg Config) *Exporter { return &Exporter{cfg} }

// Request selects evidence.
type Request struct {
	Run      api.RunID // exactly one of Run and Dispatch
	Dispatch api.DispatchID
	Blobs    bool // include inputs and products
	// From are the auditor's signed checkpoints. The evidence proves that its log
	// extends each of them.
	From [][]byte
	// Wait bounds how long to wait for the checkpoint that covers the evidence.
	// 0: no bound.
	Wait time.Duration
}

// Bundle returns the evidence about a run or a dispatch that has ended. It waits
// until a checkpoint covers the last entry.
func (x *Exporter) Bundle(ctx context.Context, req Request) (*bundle.Bundle, error) {
	g := &builder{
		x: x, req: req, entries: map[uint64]audit.Committed{}, runs: map[api.RunID]bool{}, dispatches: map[api.DispatchID]bool{},
		b: &bundle.Bundle{
			Case: bundle.Case{
				V: 1, Run: req.Run, Dispatch: req.Dispatch, Anchored: []bundle.Anchored{}, Rotations: append([][]byte{}, x.cfg.Rotations...),
				Revisions: []bundle.Revision{}, Records: []api.Digest{}, Content: []bundle.Content{},
			},
			Documents: map[api.Digest][]byte{},
		},
		content: map[api.Digest]bool{},
	}
	for _, step := range []func(context.Context) error{g.gather, g.rules, g.documents, g.catalog, g.records, g.prove, g.anchored, g.blobs} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return g.b, nil
}

// builder is a bundle under construction.
type builder struct {
	x          *Exporter
	req        Request
	b          *bundle.Bundle
	entries    map[uint64]audit.Committed
	seqs       []uint64 // of entries, sorted; set by rules
	runs       map[api.RunID]bool
	dispatches map[api.DispatchID]bool
	manifests  []record.Manifest
	content    map[api.Digest]bool // digests that the documents name
	size       uint64
}

// page is the number of entries per query.
const page = 1000

func (g *builder) each(ctx context.Context, q audit.Query, fn func(audit.Committed)) error {
	q.Limit = page
	for {
		list, err := g.x.cfg.Ledger.List(ctx, q)
		if err != nil {
			return err
		}
		for _, c := range list {
			fn(c)
		}
		if len(list) < page {
			return nil
		}
		q.From = list[len(list)-1].Seq + 1
	}
}

// gather collects the entries of the run or the dispatch.
func (g *builder) gather(ctx context.Context) error {
	if g.req.Run != "" {
		if err := g.runEntries(ctx, g.req.Run); err != nil {
			return err
		}
		for _, id := range slices.Sorted(maps.Keys(g.dispatches)) {
			list, err := g.dispatchEntries(ctx, id)
			if err == nil {
				err = g.reused(ctx, list)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	return g.dispatchAndNeeds(ctx, g.req.Dispatch)
}

// runEntries collects the entries of a run up to its end, and of the runs that it
// retries.
func (g *builder) runEntries(ctx context.Context, id api.RunID) error {
	for id != "" && !g.runs[id] {
		g.runs[id] = true
		var before api.RunID
		submitted, settled := false, false
		if err := g.each(ctx, audit.Query{Run: id}, func(c audit.Committed) {
			if settled {
				return
			}
			g.entries[c.Seq] = c
			if c.Entry.Dispatch != "" {
				g.dispatches[c.Entry.Dispatch] = true
			}
			if ask, ok := c.Entry.Detail.(record.RunRequest); ok && c.Entry.Kind == record.KindRunSubmitted {
				submitted, before = true, api.RunID(ask.RetryOf)
			}
			settled = c.Entry.Kind == record.KindRunSettled
		}); err != nil {
			return err
		}
		switch {
		case !submitted:
			return api.Errorf(api.CodeNotFound, "the log has no run %s", id)
		case !settled:
			return api.Errorf(api.CodeConflict, "run %s has not ended, so there is no final evidence yet", id).WithHint("wait for it: bailiwick run wait %s", id)
		}
		id = before
	}
	return nil
}

// dispatchEntries collects and returns the entries of a dispatch. If it has ended,
// it waits for its attestation: there is no evidence without its statement.
func (g *builder) dispatchEntries(ctx context.Context, id api.DispatchID) (list []record.Entry, err error) {
	g.dispatches[id] = true
	deadline := time.NewTimer(g.x.cfg.Attest)
	defer deadline.Stop()
	for checked := false; ; {
		changed := g.x.cfg.Ledger.Committed()
		ended, attested := false, false
		list = nil
		if err := g.each(ctx, audit.Query{Dispatch: id}, func(c audit.Committed) {
			g.entries[c.Seq], list = c, append(list, c.Entry)
			ended = ended || record.EndsDispatch(c.Entry.Kind)
			attested = attested || c.Entry.Kind == record.KindDispatchAttested
		}); err != nil || !ended || attested {
			return list, err
		}
		if !checked { // without its documents it is never attested
			if err := g.admitted(ctx, list); err != nil {
				return nil, err
			}
			checked = true
		}
		select {
		case <-changed:
		case <-deadline.C:
			return nil, notAttested(id, g.x.cfg.Attest)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// admitted adds the manifest of each attempt.
func (g *builder) admitted(ctx context.Context, list []record.Entry) error {
	for i := range list {
		if k := list[i].Kind; k == record.KindDispatchAccepted || k == record.KindDispatchAnswered || k == record.KindTaskReused {
			if err := g.document(ctx, &list[i], record.RefManifest, seal.Manifest, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// notAttested is the error of evidence about a dispatch whose statement is not
// signed yet.
func notAttested(id api.DispatchID, wait time.Duration) error {
	return api.Errorf(api.CodeNotFinished, "dispatch %s has ended, but after %s its statement is not signed, so there is no final evidence yet", id, wait).
		WithHint("run the command again; the service's log says why: attesting dispatches failed")
}

// dispatchAndNeeds collects the entries of a dispatch and, transitively, of those
// whose products it used.
func (g *builder) dispatchAndNeeds(ctx context.Context, id api.DispatchID) error {
	if g.dispatches[id] {
		return nil
	}
	list, err := g.dispatchEntries(ctx, id)
	if err != nil {
		return err
	}
	var uses []api.DispatchID
	accepted, ended := false, false
	for i := range list {
		ended = ended || record.EndsDispatch(list[i].Kind)
		if k := list[i].Kind; k == record.KindDispatchAccepted || k == record.KindTaskReused {
			accepted, ended = true, ended || k == record.KindTaskReused
			var m record.Manifest
			if err := g.document(ctx, &list[i], record.RefManifest, seal.Manifest, &m); err != nil {
				return err
			}
			uses = append(uses, m.Uses()...)
		}
	}
	switch {
	case !accepted:
		return api.Errorf(api.CodeNotFound, "the log has no dispatch %s", id)
	case !ended:
		return api.Errorf(api.CodeConflict, "dispatch %s has not ended, so there is no final evidence yet", id).WithHint("wait for it: bailiwick dispatch logs -f %s", id)
	}
	for _, used := range uses {
		if err := g.dispatchAndNeeds(ctx, used); err != nil {
			return err
		}
	}
	return g.reused(ctx, list)
}

// reused collects the entries of the dispatch whose result another one has, and of those
// whose products that one used.
func (g *builder) reused(ctx context.Context, list []record.Entry) error {
	for i := range list {
		if d, ok := list[i].Detail.(record.TaskReuse); ok {
			if err := g.dispatchAndNeeds(ctx, api.DispatchID(d.Of)); err != nil {
				return err
			}
		}
	}
	return nil
}

// rules adds all entries that rule before the last one that is under them.
func (g *builder) rules(ctx context.Context) error {
	last, found := uint64(0), false
	for seq, c := range g.entries {
		if c.Entry.UnderRules() && (!found || seq > last) {
			last, found = seq, true
		}
	}
	if found {
		var kinds []record.Kind
		for _, k := range record.Kinds() {
			if k.Rules() {
				kinds = append(kinds, k)
			}
		}
		if err := g.each(ctx, audit.Query{Kinds: kinds, Before: last}, func(c audit.Committed) { g.entries[c.Seq] = c }); err != nil {
			return err
		}
	}
	g.seqs = slices.Sorted(maps.Keys(g.entries))
	for _, seq := range g.seqs {
		g.b.Entries = append(g.b.Entries, bundle.Entry{Seq: seq, Leaf: g.entries[seq].Leaf})
	}
	return nil
}

// document adds the signed document that e names as ref, and decodes it into doc
// unless that is nil.
func (g *builder) document(ctx context.Context, e *record.Entry, ref string, t seal.PayloadType, doc any) error {
	d := e.Refs[ref]
	envelope, err := g.x.cfg.Blobs.Get(ctx, d, seal.MaxEnvelope)
	if errors.Is(err, fs.ErrNotExist) {
		return api.Errorf(api.CodeNotFound, "%s %s is no longer stored, so its evidence cannot be built", ref, d.Short()).
			WithHint("a retention rule may have removed it; see: bailiwick audit list --kind %s", record.KindRetentionRemoved)
	}
	if err != nil {
		return err
	}
	g.b.Documents[d] = envelope
	if doc == nil {
		return nil
	}
	payload, err := seal.Payload(envelope, t)
	if err != nil {
		return err
	}
	return canon.DecodeExact(payload, doc)
}

// documents adds the documents that the entries name.
func (g *builder) documents(ctx context.Context) error {
	for _, seq := range g.seqs {
		e := g.entries[seq].Entry
		if err := g.named(ctx, &e); err != nil {
			return fmt.Errorf("entry #%d: %w", seq, err)
		}
	}
	return nil
}

func (g *builder) named(ctx context.Context, e *record.Entry) error {
	switch e.Kind { //nolint:exhaustive // the others name no document, or one that other steps add
	case record.KindDispatchAccepted, record.KindDispatchAnswered, record.KindTaskReused:
		var m record.Manifest
		if err := g.document(ctx, e, record.RefManifest, seal.Manifest, &m); err != nil {
			return err
		}
		g.manifests = append(g.manifests, m)
		g.content[m.Input] = true
		if m.Resume != nil {
			g.content[m.Resume.Answer] = true
		}
	case record.KindDispatchFinished, record.KindDispatchNeedsInput, record.KindDispatchFailed, record.KindDispatchCancelled:
		if d := e.Refs[record.RefCalls]; d != "" {
			g.content[d] = true
		}
		if e.Refs[record.RefResult] == "" {
			return nil
		}
		var r record.Result
		if err := g.document(ctx, e, record.RefResult, seal.Result, &r); err != nil {
			return err
		}
		g.products(&r.Summary)
	case record.KindDispatchAttested:
		return g.document(ctx, e, record.RefStatement, "", nil)
	case record.KindApprovalRequest:
		return g.action(ctx, e)
	case record.KindRunSubmitted:
		if !g.runs[api.RunID(e.Run)] {
			return nil
		}
		if g.x.cfg.Plan == nil {
			return api.Errorf(api.CodeNotConfigured, "this service runs no plans, so it does not have that of run %s", e.Run)
		}
		doc, err := g.x.cfg.Plan(ctx, api.RunID(e.Run))
		if gone, ok := errors.AsType[*api.Error](err); ok && gone.Code == api.CodeNotFound { // the log has the run
			return api.Errorf(api.CodeConflict, "its evidence cannot be built: %s", gone.Message).WithHint("%s", gone.Hint)
		}
		if err != nil {
			return err
		}
		g.b.Documents[e.Refs[record.RefPlan]] = doc
	case record.KindRunGrown, record.KindRunAppended:
		return g.growth(ctx, e)
	}
	return nil
}

// growth adds what a run grew by.
func (g *builder) growth(ctx context.Context, e *record.Entry) error {
	d, id := e.Refs[record.RefGrowth], api.RunID(e.Run)
	if g.b.Documents[d] != nil || !g.runs[id] {
		return nil
	}
	if g.x.cfg.Growths == nil {
		return api.Errorf(api.CodeNotConfigured, "this service runs no plans, so it does not have the growths of run %s", id)
	}
	docs, err := g.x.cfg.Growths(ctx, id)
	if err != nil {
		return err
	}
	for _, doc := range docs {
		g.b.Documents[api.DigestOf(doc)] = doc
	}
	if g.b.Documents[d] == nil {
		return api.Errorf(api.CodeConflict, "the growth %s of run %s is not stored, so its evidence cannot be built", d.Short(), id)
	}
	return nil
}

// action adds what people were requested to approve.
func (g *builder) action(ctx context.Context, e *record.Entry) error {
	d, _ := e.Detail.(record.ApprovalRequest)
	if g.x.cfg.Action == nil {
		return api.Errorf(api.CodeNotConfigured, "this service keeps no approvals, so it does not have %s", record.Word(d.Approval))
	}
	doc, err := g.x.cfg.Action(ctx, api.ApprovalID(d.Approval))
	if err == nil {
		g.b.Documents[e.Refs[record.RefAction]] = doc
	}
	return err
}

// products records the content that a result names.
func (g *builder) products(sum *api.ResultSummary) {
	for _, d := range record.ContentOf(sum) {
		g.content[d] = true
	}
}

// prove waits for a checkpoint that covers the entries, and proves inclusion and what
// anchors got.
func (g *builder) prove(ctx context.Context) error {
	last := g.seqs[len(g.seqs)-1]
	if err := g.covered(ctx, last+1); err != nil {
		return err
	}
	signed, c := g.x.cfg.Tree.Latest()
	g.b.Case.Checkpoint, g.size = signed, c.Size
	var err error
	if g.x.cfg.Sizes != nil {
		if g.b.Case.Sizes, err = g.x.cfg.Sizes(ctx, g.first(), last, c.Size-1); err != nil {
			return err
		}
	}
	g.b.Proof, err = bundle.Prove(g.seqs, g.b.Case.Sizes, c.Size, func(i uint64) ([]logproof.Hash, error) { return g.x.cfg.Tree.InclusionProof(ctx, i, c.Size) })
	return err
}

// first returns the first entry that the evidence is about: the earlier ones are rules.
func (g *builder) first() uint64 {
	for _, seq := range g.seqs {
		if !g.entries[seq].Entry.Kind.Rules() {
			return seq
		}
	}
	return g.seqs[0]
}

// covered waits until a checkpoint covers the first size entries.
func (g *builder) covered(ctx context.Context, size uint64) error {
	bounded := ctx
	if g.req.Wait > 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, g.req.Wait)
		defer cancel()
	}
	err := g.x.cfg.Tree.Wait(bounded, size)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		_, newest := g.x.cfg.Tree.Latest()
		return NotCovered(err, g.req.Wait, newest.Size, size)
	}
	return err
}

// NotCovered is the error of a wait for a checkpoint that ended without one. The
// newest checkpoint covers the first have entries, and the first want were asked
// for.
func NotCovered(err error, wait time.Duration, have, want uint64) error {
	return api.Errorf(api.CodeNotFinished, "no checkpoint covers entry #%d after %s; the newest covers %d of %s: %w", want-1, wait, have, record.Plural(want, "entry"), err).
		WithHint("see why with: bailiwick status; then run the command again")
}

// anchored adds the anchors' and the auditor's checkpoints, with consistency proofs.
func (g *builder) anchored(ctx context.Context) error {
	var list []bundle.Anchored
	if g.x.cfg.Anchored != nil {
		var err error
		if list, err = g.x.cfg.Anchored(ctx, g.seqs[len(g.seqs)-1]+1); err != nil {
			return err
		}
	}
	for _, signed := range g.req.From {
		list = append(list, bundle.Anchored{Checkpoint: signed})
	}
	own, err := logproof.Peek(g.b.Case.Checkpoint)
	if err != nil {
		return err
	}
	have, err := g.x.cfg.Ledger.Len(ctx)
	if err != nil {
		return err
	}
	for _, a := range list {
		c, err := logproof.Peek(a.Checkpoint)
		switch {
		case err != nil:
			return api.Errorf(api.CodeInvalid, "%w", err)
		case c.Origin != own.Origin:
			return api.Errorf(api.CodeInvalid, "the checkpoint is of log %.80q, not of %s", c.Origin, own.Origin)
		case c.Size > have: // no proof will ever exist
			return api.Errorf(api.CodeConflict, "the checkpoint covers %s, but the log has %d: the log was truncated or restored from an older copy, or the checkpoint is forged", record.Plural(c.Size, "entry"), have).
				WithHint("keep the checkpoint: it is evidence. Evidence without it shows only the present log")
		}
		from, to := min(c.Size, g.size), max(c.Size, g.size)
		if err := g.covered(ctx, to); err != nil {
			return err
		}
		proof, err := g.x.cfg.Tree.ConsistencyProof(ctx, from, to)
		if err != nil {
			return err
		}
		a.Proof = bundle.Hashes(proof)
		g.b.Case.Anchored = append(g.b.Case.Anchored, a)
	}
	return nil
}

// blobs adds the content if requested, except what retention has removed: the
// evidence promises only digests.
func (g *builder) blobs(ctx context.Context) error {
	if !g.req.Blobs {
		return nil
	}
	for _, d := range slices.Sorted(maps.Keys(g.content)) {
		size, err := g.x.cfg.Blobs.Stat(ctx, d)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		g.b.Content = append(g.b.Content, bundle.Content{Digest: d, Size: size, Open: func() (io.ReadCloser, error) {
			return g.x.cfg.Blobs.Open(ctx, d)
		}})
	}
	return nil
}
