package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// Row is one result of Verify.
type Row struct {
	Check  string `json:"check"`  // what was checked
	OK     bool   `json:"ok"`     //
	Detail string `json:"detail"` // what was found
	Fault  Fault  `json:"fault,omitempty"`
}

// Verify verifies the whole catalog: the trust root, every revision with its
// signatures, every artifact, and the content of every file and blob. It returns a
// row for each revision and each problem; the error is the first problem.
func (c *Catalog) Verify(ctx context.Context) ([]Row, error) {
	v := &verification{c: c, blobs: map[api.Digest]bool{}}
	v.ok("trust root", "%d of %d keys must sign", c.root.Threshold, len(c.root.Keys))
	idx, err := c.index(ctx)
	if err != nil {
		v.bad("index", err)
		return v.rows, v.first
	}
	v.index(idx)
	head, err := c.Current(ctx)
	switch {
	case FaultOf(err) == FaultEmpty:
		v.ok("head", "nothing has been applied yet")
	case err != nil:
		v.bad("head", err)
	default:
		v.ok("head", "revision %d %s", head.Number(), head.Digest())
		v.chain(ctx, idx, head)
	}
	v.proposal(ctx)
	v.store(ctx)
	return v.rows, v.first
}

type verification struct {
	c     *Catalog
	rows  []Row
	first error
	blobs map[api.Digest]bool // verified
}

func (v *verification) ok(check, format string, args ...any) {
	v.rows = append(v.rows, Row{Check: check, OK: true, Detail: fmt.Sprintf(format, args...)})
}

func (v *verification) bad(check string, err error) {
	v.rows = append(v.rows, Row{Check: check, Detail: err.Error(), Fault: FaultOf(err)})
	if v.first == nil {
		v.first = err
	}
}

// index checks for tags and entries that deploy does not write.
func (v *verification) index(idx *index) {
	head := idx.highest()
	for _, tag := range slices.Sorted(maps.Keys(idx.tags)) {
		n, numbered := numberOf(tag)
		if tag != TagCurrent && tag != TagProposal && (!numbered || n == 0 || n > head) {
			v.bad("index", fault(FaultMalformed, nil, "catalog index: unknown tag %.80q", tag))
		}
	}
	tagged := make(map[api.Digest]bool, len(idx.tags))
	for _, d := range idx.tags {
		tagged[d.Digest] = true
	}
	for _, d := range idx.others {
		subject, ok := d.oci.Annotations[annotationSubject]
		if d.oci.ArtifactType == SignatureType && ok && !tagged[api.Digest(subject)] {
			v.bad("index", fault(FaultMalformed, nil, "catalog index: signature %s is of an unknown revision", d.Digest.Short()))
		}
		if d.oci.ArtifactType != SignatureType || !ok {
			v.bad("index", fault(FaultMalformed, nil, "catalog index: unknown entry %s", d.Digest.Short()))
		}
	}
	v.ok("index", "%s, %s", record.Plural(len(idx.tags), "tag"), record.Plural(len(idx.others), "signature"))
}

// chain verifies the head and every revision before it, each with its signatures,
// although the head's digest already proves the older ones.
func (v *verification) chain(ctx context.Context, idx *index, head *Revision) {
	rev := head
	for {
		v.revision(ctx, fmt.Sprintf("revision %d", rev.Number()), rev)
		if rev.Number() == 1 {
			return
		}
		number, want := rev.Number()-1, rev.doc.Previous
		name := fmt.Sprintf("revision %d", number)
		desc, ok := idx.tags[TagOf(number)]
		if !ok {
			v.bad(name, fault(FaultMalformed, nil, "catalog index: no tag %q", TagOf(number)))
			return
		}
		before, err := v.c.load(ctx, idx, desc)
		if err == nil && (before.digest != want || before.Number() != number) {
			err = fault(FaultMalformed, nil, "catalog index: %q is %s, but the history says %s", TagOf(number), before.digest.Short(), want.Short())
		}
		if err != nil {
			v.bad(name, err)
			return
		}
		rev = before
	}
}

// revision verifies the content of files; load checks only their size.
func (v *verification) revision(ctx context.Context, name string, r *Revision) {
	ok := true
	for _, f := range r.set.Files() {
		if v.blobs[f.Digest] {
			continue
		}
		v.blobs[f.Digest] = true
		if _, err := v.c.get(ctx, f.Digest, MaxBundle, "file "+f.Path); err != nil {
			v.bad(name, err)
			ok = false
		}
	}
	if ok {
		keys := make([]string, 0, len(r.signers))
		for _, k := range r.signers {
			keys = append(keys, string(k))
		}
		v.ok(name, "%s, signed by %s; artifacts: %d, files: %d", r.digest.Short(), strings.Join(keys, ", "), len(r.doc.Artifacts), len(r.set.Files()))
	}
}

func (v *verification) proposal(ctx context.Context) {
	p, err := v.c.Proposal(ctx)
	switch {
	case err != nil:
		v.bad("proposal", err)
	case p != nil:
		v.revision(ctx, "proposal", p)
	}
}

// store verifies every blob, including unreferenced ones.
func (v *verification) store(ctx context.Context) {
	n, ok := 0, true
	err := v.c.store.List(ctx, func(d api.Digest) error {
		n++
		if v.blobs[d] {
			return nil
		}
		_, err := v.c.get(ctx, d, maxManifest, "store")
		if err != nil && ctx.Err() == nil {
			v.bad("store", err)
			ok = false
			return nil
		}
		return err
	})
	if err != nil {
		v.bad("store", errors.Join(errors.New("store"), err))
	} else if ok {
		v.ok("store", "%d blobs match their digests", n)
	}
}
