package evidence

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/evidence/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/policy"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/seal"
)

// revision is a catalog revision. The catalog row reports whether its signatures
// verify.
type revision struct {
	doc    api.Revision
	digest api.Digest
	v      *verification

	mu        sync.Mutex
	subagents map[api.Name]api.Subagent // those read so far
	engine    *policy.Engine
	signers   []seal.KeyID // none unless its signatures verify
	broken    error        // why engine is nil
	compiled  bool
}

// catalog reads the revisions and verifies their signatures. The other rows use a
// revision even if its signatures fail.
func (v *verification) catalog() {
	row := v.rows[RowCatalog]
	last := api.Digest("")
	for _, r := range v.b.Case.Revisions {
		if r.Digest <= last {
			row.fail("catalog revisions are not in order, or duplicates")
		}
		last = r.Digest
		doc, err := v.revision(r)
		var signers []seal.KeyID
		if err != nil {
			row.fail("catalog revision %s: %v", r.Digest.Short(), err)
			if doc == nil {
				continue
			}
		} else {
			row.checked++
			signers = v.signers(r)
		}
		v.revisions[r.Digest] = &revision{doc: *doc, digest: r.Digest, signers: signers, v: v, subagents: map[api.Name]api.Subagent{}}
	}
	v.words[RowCatalog] = fmt.Sprintf("%s, each signed by at least %s", record.Plural(row.checked, "catalog revision"), record.Plural(v.trust.Deploy.Root.Threshold, "deploy key"))
	if len(v.b.Case.Revisions) == 0 {
		row.absent = "no catalog was in use"
	}
}

// revision returns a revision, also if only its signatures fail.
func (v *verification) revision(r bundle.Revision) (*api.Revision, error) {
	var payload []byte
	var envelopes [][]byte
	if len(r.Envelopes) == 0 || len(r.Envelopes) > seal.MaxSignatures {
		return nil, fmt.Errorf("%d envelopes", len(r.Envelopes))
	}
	for _, d := range r.Envelopes {
		envelope, err := v.document(d, "envelope")
		if err != nil {
			return nil, err
		}
		if payload, err = seal.Payload(envelope, seal.Revision); err != nil {
			return nil, err
		}
		envelopes = append(envelopes, envelope)
	}
	doc := &api.Revision{}
	if err := canon.DecodeExact(payload, doc); err != nil {
		return nil, err
	}
	if err := catalog.CheckRevision(*doc); err != nil {
		return nil, err
	}
	if api.DigestOf(payload) != r.Digest {
		return nil, errors.New("the envelopes are of another revision")
	}
	var err error
	for i, root := range v.trust.Deploy.For(doc.Number) {
		_, e := seal.VerifyDetached(payload, envelopes, seal.Revision, root)
		if e == nil {
			return doc, nil
		}
		if i == 0 {
			err = e
		}
	}
	return doc, err
}

// signers returns the keys that signed a revision, whether they are trusted or not.
func (v *verification) signers(r bundle.Revision) (list []seal.KeyID) {
	for _, d := range r.Envelopes {
		ids, err := seal.Signers(v.b.Documents[d], seal.Revision)
		if err == nil { // or revision reports it
			list = append(list, ids...)
		}
	}
	return list
}

// artifact returns the document of an artifact of a revision.
func (v *verification) artifact(r *revision, ref api.Ref) ([]byte, error) {
	entry, ok := r.doc.Artifacts[ref]
	if !ok {
		return nil, fmt.Errorf("catalog revision %d has no %s", r.doc.Number, ref)
	}
	return v.document(entry.Digest, string(ref))
}

// subagent returns a subagent of the revision.
func (r *revision) subagent(name api.Name) (api.Subagent, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s, ok := r.subagents[name]; ok {
		return s, nil
	}
	ref := api.RefTo(api.KindSubagent, name)
	doc, err := r.v.artifact(r, ref)
	if err != nil {
		return api.Subagent{}, err
	}
	set := catalog.NewSet()
	if err := set.Add(ref, doc); err != nil {
		return api.Subagent{}, err
	}
	r.subagents[name] = set.Subagents[name]
	return set.Subagents[name], nil
}

// rules compiles the grants and target modes, as the service does.
func (r *revision) rules() (*policy.Engine, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.compiled {
		return r.engine, r.broken
	}
	r.compiled = true
	set := catalog.NewSet()
	var refs []api.Ref
	for ref := range r.doc.Artifacts {
		if kind, _, err := ref.Split(); err == nil && (kind == api.KindGrant || kind == api.KindTarget) {
			refs = append(refs, ref)
		}
	}
	slices.Sort(refs)
	for _, ref := range refs {
		doc, err := r.v.artifact(r, ref)
		if err == nil {
			err = set.Add(ref, doc)
		}
		if err != nil {
			r.broken = err
			return nil, err
		}
	}
	r.engine, r.broken = policy.New(policy.RulesOf(set.Grants, set.Targets))
	return r.engine, r.broken
}

// signedRecord is an operator record with the keys that signed it.
type signedRecord struct {
	api.OperatorRecord
	digest            api.Digest
	verified, signers []seal.KeyID // verified are those of the trust file
}

// operatorRecord verifies an operator record.
func (v *verification) operatorRecord(d api.Digest, s *seal.TrustRoot) (*signedRecord, error) {
	envelope, err := v.document(d, "operator record")
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, errors.New("the trust file names no operators")
	}
	payload, verified, err := seal.Verify(envelope, seal.Operator, *s)
	if err != nil {
		return nil, err
	}
	rec := &signedRecord{digest: api.DigestOf(payload), verified: verified}
	if err := canon.DecodeExact(payload, &rec.OperatorRecord); err != nil {
		return nil, err
	}
	if rec.signers, err = seal.Signers(envelope, seal.Operator); err != nil {
		return nil, err
	}
	return rec, rec.Check()
}

func requestKey(r policy.Request) string {
	b, err := json.Marshal(r)
	if err != nil {
		return ""
	}
	return string(b)
}
