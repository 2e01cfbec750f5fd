package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Row is one thing that Verify looked at.
type Row struct {
	Check  string `json:"check"`  // what was looked at
	OK     bool   `json:"ok"`     //
	Detail string `json:"detail"` // what was found
	Fault  Fault  `json:"fault,omitempty"`
}

// Verify reads everything again: the trust root, every revision back to the
// first with its signatures, every artifact, every file to its last byte, and
// every blob of the store. It returns a row for each revision and for each
// thing that is wrong; the error is the first wrong one.
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
	blobs map[api.Digest]bool // read to the last byte
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

// index looks for tags and entries that deploy does not write.
func (v *verification) index(idx *index) {
	head := idx.highest()
	for _, tag := range idx.sortedTags() {
		n, numbered := numberOf(tag)
		if tag != TagCurrent && tag != TagProposal && (!numbered || n == 0 || n > head) {
			v.bad("index", fault(FaultMalformed, nil, "catalog index: tag %.80q is not one that this program writes", tag))
		}
	}
	for _, d := range idx.others {
		subject, ok := d.oci.Annotations[annotationSubject]
		if d.oci.ArtifactType == SignatureType && ok && !idx.has(api.Digest(subject)) {
			v.bad("index", fault(FaultMalformed, nil, "catalog index: signature %s is about a revision that is not there", d.Digest.Short()))
		}
		if d.oci.ArtifactType != SignatureType || !ok {
			v.bad("index", fault(FaultMalformed, nil, "catalog index: entry %s is not one that this program writes", d.Digest.Short()))
		}
	}
	v.ok("index", "%d tags, %d signatures", len(idx.tags), len(idx.others))
}

func (idx *index) has(manifest api.Digest) bool {
	for _, d := range idx.tags {
		if d.Digest == manifest {
			return true
		}
	}
	return false
}

// chain verifies the head and every revision before it. The head's digest
// proves the older ones; that each was signed is looked at all the same.
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

// revision reads the files that load has only counted.
func (v *verification) revision(ctx context.Context, name string, r *Revision) {
	wrong := false
	for _, f := range r.set.Files() {
		if v.blobs[f.Digest] {
			continue
		}
		v.blobs[f.Digest] = true
		if _, err := v.c.get(ctx, f.Digest, MaxBundle, "file "+f.Path); err != nil {
			v.bad(name, err)
			wrong = true
		}
	}
	if !wrong {
		keys := make([]string, 0, len(r.signers))
		for _, k := range r.signers {
			keys = append(keys, string(k))
		}
		v.ok(name, "%s, signed by %s; %d artifacts, %d files", r.digest.Short(), strings.Join(keys, ", "), len(r.doc.Artifacts), len(r.set.Files()))
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

// store reads every blob, also those that nothing names.
func (v *verification) store(ctx context.Context) {
	n, wrong := 0, false
	err := v.c.store.List(ctx, func(d api.Digest) error {
		n++
		if v.blobs[d] {
			return nil
		}
		_, err := v.c.get(ctx, d, maxManifest, "store")
		if err != nil && ctx.Err() == nil {
			v.bad("store", err)
			wrong = true
			return nil
		}
		return err
	})
	if err != nil {
		v.bad("store", errors.Join(errors.New("store"), err))
	} else if !wrong {
		v.ok("store", "%d blobs have the content that their names say", n)
	}
}
