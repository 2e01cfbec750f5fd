package anchor

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
)

const (
	// maxItems bounds what one anchor may hold.
	maxItems = 1_000_000
	// maxFindings is how many findings of an anchor are described.
	maxFindings = 20
	// maxBatch and maxBatchBytes bound the checkpoints that are compared at once.
	maxBatch      = 8192
	maxBatchBytes = 8 << 20
)

// judge compares all that one anchor holds, and all that it acknowledged, with the
// log. A checkpoint that agrees with the log is harmless, by whatever key: the
// signatures of the others and of the largest are verified.
type judge struct {
	k     *Keeper
	id    ID
	have  uint64 // entries of the log
	items int

	batch   []claim
	bytes   int // in batch
	largest claim
	missing map[acknowledged]struct{} // not seen yet

	digests []api.Digest // of all findings
	all     []string     // the first maxFindings of them
	worst   finding
}

// claim is a checkpoint to compare.
type claim struct {
	logproof.Checkpoint
	signed []byte // nil: read it from the receipt
	source string // such as "according to its stored receipt"; may be empty
	stray  bool
}

// finding is why the service must not start.
type finding struct {
	rank      int // the most serious is the largest
	size      uint64
	what, why string
}

// The ranks of findings.
const (
	_ = iota
	unreadable
	lost
	foreign
	signed
)

func (k *Keeper) newJudge(ctx context.Context, id ID) (*judge, error) {
	j := &judge{k: k, id: id, missing: map[acknowledged]struct{}{}}
	var err error
	j.have, err = k.cfg.Len(ctx)
	return j, err
}

// found adds a finding. identity identifies it, whatever the size of the log.
func (j *judge) found(f finding, identity string) {
	j.digests = append(j.digests, api.DigestOf([]byte(identity)))
	if len(j.all) < maxFindings {
		j.all = append(j.all, f.what+": "+f.why)
	}
	if cmp.Or(cmp.Compare(f.rank, j.worst.rank), cmp.Compare(f.size, j.worst.size)) > 0 {
		j.worst = f
	}
}

func (j *judge) unreadable(it Item, why string) {
	content := sha256.Sum256(it.Signed)
	why = it.Where + ": " + strings.ReplaceAll(why, "\n", ": ")
	j.found(finding{rank: unreadable, what: "holds what the service did not write", why: why}, fmt.Sprintf("unreadable %s %x", it.Where, content))
}

var errTooMany = errors.New("holds too much")

// see takes one thing that the anchor holds.
func (j *judge) see(ctx context.Context, it Item) error {
	if it.Where == "" {
		return nil
	}
	if j.items++; j.items > maxItems {
		return errTooMany
	}
	if it.Half > 0 {
		if it.Half > j.have {
			j.unreadable(it, "half a line, about "+record.Plural(it.Half, "entry"))
		}
		return nil
	}
	cp, err := logproof.Peek(it.Signed)
	switch {
	case it.Problem != "":
		j.unreadable(it, it.Problem)
	case err != nil && !it.Stray:
		j.unreadable(it, err.Error())
	}
	if err != nil {
		return nil //nolint:nilerr // it is a finding
	}
	if cp.Origin != j.k.cfg.Origin {
		if !it.Stray {
			j.refuse(claim{Checkpoint: cp, signed: it.Signed}, foreign, fmt.Sprintf("it is of another log, %q", cp.Origin))
		}
		return nil
	}
	if !it.Stray {
		delete(j.missing, acknowledged{cp.Size, cp.Root, it.ID})
	}
	source := ""
	if it.Stray {
		source = "in " + it.Where
	}
	return j.claim(ctx, claim{Checkpoint: cp, signed: bytes.Clone(it.Signed), source: source, stray: it.Stray})
}

func (j *judge) claim(ctx context.Context, c claim) error {
	j.batch, j.bytes = append(j.batch, c), j.bytes+len(c.signed)
	if len(j.batch) < maxBatch && j.bytes < maxBatchBytes {
		return nil
	}
	return j.flush(ctx)
}

// flush compares the batch with the log. While the tree does not reach that far,
// it waits.
func (j *judge) flush(ctx context.Context) error {
	batch := j.batch
	j.batch, j.bytes = nil, 0
	if len(batch) == 0 {
		return nil
	}
	slices.SortFunc(batch, func(a, b claim) int { return cmp.Compare(a.Size, b.Size) })
	covered, _ := slices.BinarySearchFunc(batch, j.have+1, func(c claim, size uint64) int { return cmp.Compare(c.Size, size) })
	roots, err := j.k.roots(ctx, batch[:covered])
	if err != nil {
		return err
	}
	for i, c := range batch {
		if i < covered && roots[i] == c.Root {
			if !c.stray && c.signed != nil && c.Size >= j.largest.Size {
				j.largest = c
			}
			continue
		}
		if err := j.differs(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// differs takes a checkpoint of this log that the log does not have.
func (j *judge) differs(ctx context.Context, c claim) error {
	if c.signed == nil {
		r, ok, err := receiptFor(ctx, j.k.cfg.Store, j.id.Name, c.Size)
		if err != nil || !ok {
			return errors.Join(err, fmt.Errorf("%s: its receipt for %s cannot be read", j.id, record.Plural(c.Size, "entry")))
		}
		c.signed = r.Signed
		if r.Checkpoint() != c.Checkpoint {
			j.refuse(c, foreign, "its stored receipt contradicts itself: the state was changed")
			return nil
		}
	}
	switch _, _, err := logproof.Open(c.signed, j.k.cfg.Origin, j.k.cfg.Keys...); {
	case err != nil && c.stray:
	case err != nil:
		j.refuse(c, foreign, whyForeign)
	case c.Size > j.have:
		j.refuse(c, signed, whyAhead)
	default:
		j.refuse(c, signed, whyForked(c.Size))
	}
	return nil
}

const (
	whyForeign = "no key that this state knows has signed it: the state is older than the key, or another party wrote there"
	whyAhead   = "the state was restored from an older copy, or its log was truncated"
)

func whyForked(size uint64) string {
	return fmt.Sprintf("the first %s differ: there are two histories, and one of them is forged", record.Plural(size, "entry"))
}

func (j *judge) refuse(c claim, rank int, why string) {
	if c.source != "" {
		why += " (" + c.source + ")"
	}
	j.found(finding{rank, c.Size, "holds a checkpoint of " + record.Plural(c.Size, "entry"), why}, fmt.Sprintf("checkpoint %x", sha256.Sum256(c.signed)))
}

// verdict returns the findings, or nil. complete says that the anchor was read to
// its end.
func (j *judge) verdict(ctx context.Context, complete bool) (*MismatchError, error) {
	if err := j.flush(ctx); err != nil {
		return nil, err
	}
	if c := j.largest; c.signed != nil {
		if _, _, err := logproof.Open(c.signed, j.k.cfg.Origin, j.k.cfg.Keys...); err != nil {
			j.refuse(c, foreign, whyForeign)
		}
	}
	if complete {
		for a := range j.missing {
			j.found(finding{
				lost, a.size, "no longer holds a checkpoint of " + record.Plural(a.size, "entry"),
				"it gave a receipt for it: its disk is not mounted, or its history was removed or rewritten",
			}, fmt.Sprintf("missing %d %x %s", a.size, a.root, a.id))
		}
	}
	if len(j.digests) == 0 {
		return nil, nil
	}
	return j.mismatch(), nil
}

// overlong is the verdict about an anchor that was not read to its end in time.
func (j *judge) overlong(why string) *MismatchError {
	j.digests, j.all, j.worst = nil, nil, finding{}
	j.found(finding{rank: unreadable, what: "cannot be compared", why: why}, "overlong")
	return j.mismatch()
}

func (j *judge) mismatch() *MismatchError {
	slices.Sort(j.digests)
	all := slices.Compact(j.digests)
	text := fmt.Appendf(nil, "anchor %s %s %s", j.id.Name, j.id.Kind, j.id.Place)
	for _, d := range all {
		text = fmt.Appendf(text, "\n%s", d)
	}
	return &MismatchError{
		Anchor: j.id, What: j.worst.what, Why: j.worst.why, More: len(all) - 1, Held: j.worst.size, Local: j.have,
		Signed: j.worst.rank == signed, Found: api.DigestOf(text), All: j.all,
	}
}

// receipts takes what the state says that the anchor acknowledged: the log must
// agree with it, and the anchor still hold it, unless its lock has expired.
func (j *judge) receipts(ctx context.Context) error {
	list, err := rows(ctx, j.k.cfg.Store, j.id.Name)
	if err != nil {
		return err
	}
	now := j.k.cfg.Now()
	for _, r := range list {
		if r.place == j.id.Place && (r.until.IsZero() || r.until.After(now)) && j.id.Kind != receipt.TSA { // which keeps nothing
			j.missing[r.acknowledged] = struct{}{}
		}
		cp := logproof.Checkpoint{Origin: j.k.cfg.Origin, Size: r.size, Root: r.root}
		if err := j.claim(ctx, claim{Checkpoint: cp, source: "according to its stored receipt"}); err != nil {
			return err
		}
	}
	return nil
}

// roots returns the roots of the log for checkpoints in the order of their sizes.
func (k *Keeper) roots(ctx context.Context, list []claim) ([]logproof.Hash, error) {
	if len(list) == 0 {
		return nil, nil
	}
	sizes := make([]uint64, len(list))
	for i, c := range list {
		sizes[i] = c.Size
	}
	ctx, cancel := context.WithTimeout(ctx, k.cfg.TreeTimeout)
	defer cancel()
	if err := k.cfg.Log.Wait(ctx, sizes[len(sizes)-1]); err != nil {
		return nil, err
	}
	return k.cfg.Log.Roots(ctx, sizes)
}
