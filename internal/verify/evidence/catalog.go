package evidence

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// revision is a catalog revision. The catalog row reports whether its signatures
// verify.
type revision struct {
	doc    api.Revision
	digest api.Digest
	docs   *library
	shared *artifacts // of all revisions

	signers []seal.KeyID // none unless its signatures verify

	once   sync.Once
	engine *policy.Engine
	broken error // why engine is nil
}

// catalog reads the revisions and verifies their signatures. The other rows use a
// revision even if its signatures fail.
func (v *verification) catalog() {
	row := v.rows[report.RowCatalog]
	last := api.Digest("")
	for _, r := range v.b.Case.Revisions {
		if r.Digest <= last {
			row.Fail("catalog revisions are not in order, or duplicates")
			continue
		}
		last = r.Digest
		doc, signers, err := readRevision(v.docs, v.trust.Deploy, r)
		if err != nil {
			row.Fail("catalog revision %s: %v", r.Digest.Short(), err)
			if doc == nil {
				continue
			}
		} else {
			row.Checked++
		}
		v.revisions[r.Digest] = &revision{doc: *doc, digest: r.Digest, signers: signers, docs: v.docs, shared: &v.artifacts}
	}
	v.rows[report.RowCatalog].Right = fmt.Sprintf("%s, each signed by at least %s", record.Plural(row.Checked, "catalog revision"), record.Plural(v.trust.Deploy.Root.Threshold, "deploy key"))
	if len(v.b.Case.Revisions) == 0 {
		row.Absent = "no catalog was in use"
	}
}

// readRevision returns a revision, also if only its signatures fail; if they do not, with
// the keys that signed it, whether they are trusted or not.
func readRevision(docs *library, trust DeployTrust, r bundle.Revision) (*api.Revision, []seal.KeyID, error) {
	if len(r.Envelopes) == 0 || len(r.Envelopes) > seal.MaxSignatures {
		return nil, nil, fmt.Errorf("%d envelopes", len(r.Envelopes))
	}
	envelopes := make([]*seal.Envelope, 0, len(r.Envelopes))
	var signers []seal.KeyID
	for _, d := range r.Envelopes {
		envelope, err := docs.envelope(d, "envelope", seal.Revision, reader{report.RowCatalog, r.Digest, 0})
		if err != nil {
			return nil, nil, err
		}
		envelopes, signers = append(envelopes, envelope), append(signers, envelope.Signers()...)
	}
	doc := &api.Revision{}
	payload := envelopes[0].Payload()
	if api.DigestOf(payload) != r.Digest {
		return nil, nil, errors.New("the envelopes are of another revision")
	}
	if err := docs.exact(payload, doc); err != nil {
		return nil, nil, err
	}
	if err := catalog.CheckRevision(*doc); err != nil {
		return nil, nil, err
	}
	var err error
	for i, root := range trust.For(doc.Number) {
		_, e := seal.VerifyAll(envelopes, root)
		if e == nil {
			return doc, signers, nil
		}
		if i == 0 {
			err = e
		}
	}
	return doc, nil, err
}

// artifact returns the document of an artifact.
func (r *revision) artifact(ref api.Ref) ([]byte, error) {
	entry, ok := r.doc.Artifacts[ref]
	if !ok {
		return nil, fmt.Errorf("catalog revision %d has no %s", r.doc.Number, ref)
	}
	return r.docs.document(entry.Digest, string(ref))
}

// artifacts are the decoded documents of the catalog. Revisions share them, so each
// is decoded once.
type artifacts struct {
	mu    sync.Mutex
	known map[artifactKey]*artifact
}

type artifactKey struct {
	digest api.Digest
	kind   api.Kind
}

type artifact struct {
	once  sync.Once
	value any
	name  api.Name
	err   error
}

// decoded returns what decode makes of an artifact of a revision, whose name must
// be that of ref.
func (r *revision) decoded(ref api.Ref, decode func(doc []byte) (any, api.Name, error)) (any, error) {
	kind, name, err := ref.Split()
	if err != nil {
		return nil, err
	}
	doc, err := r.artifact(ref)
	if err != nil {
		return nil, err
	}
	key := artifactKey{r.doc.Artifacts[ref].Digest, kind}
	all := r.shared
	all.mu.Lock()
	if all.known == nil {
		all.known = map[artifactKey]*artifact{}
	}
	one := all.known[key]
	if one == nil {
		one = &artifact{}
		all.known[key] = one
	}
	all.mu.Unlock()
	one.once.Do(func() { one.value, one.name, one.err = decode(doc) })
	switch {
	case one.err != nil:
		return nil, fmt.Errorf("%s: %w", ref, one.err)
	case one.name != name:
		return nil, fmt.Errorf("%s: the document has the name %.80q", ref, string(one.name))
	}
	return one.value, nil
}

// decodedAs returns an artifact of a kind, whose document is a T.
func decodedAs[T any](r *revision, k api.Kind, name api.Name, nameOf func(*T) api.Name) (*T, error) {
	v, err := r.decoded(api.RefTo(k, name), func(doc []byte) (any, api.Name, error) {
		a := new(T)
		err := r.docs.exact(doc, a)
		return a, nameOf(a), err
	})
	if err != nil {
		return nil, err
	}
	return v.(*T), nil //nolint:forcetypeassert // as decoded for this kind
}

// subagent returns a subagent of the revision.
func (r *revision) subagent(name api.Name) (*api.Subagent, error) {
	return decodedAs(r, api.KindSubagent, name, func(s *api.Subagent) api.Name { return s.Name })
}

// target returns a target of the revision.
func (r *revision) target(name api.Name) (*api.Target, error) {
	return decodedAs(r, api.KindTarget, name, func(t *api.Target) api.Name { return t.Name })
}

// model returns a model of the revision.
func (r *revision) model(name api.Name) (*api.Model, error) {
	return decodedAs(r, api.KindModel, name, func(m *api.Model) api.Name { return m.Name })
}

// access returns what a dispatch may reach outside its jail, as the service and the
// worker derive it.
func (r *revision) access(sub *api.Subagent, target *api.Target, envs []api.Name) (catalog.Access, error) {
	if err := r.docs.work.spend(unitCompare * len(r.doc.Artifacts)); err != nil {
		return catalog.Access{}, err
	}
	models := false
	for ref := range r.doc.Artifacts {
		kind, _, err := ref.Split()
		models = models || err == nil && kind == api.KindModel
	}
	return catalog.AccessOf(catalog.Lookup{
		Models: models,
		Model:  valueOf(r.model),
		Env: valueOf(func(n api.Name) (*api.Env, error) {
			return decodedAs(r, api.KindEnv, n, func(e *api.Env) api.Name { return e.Name })
		}),
		Secret: valueOf(func(n api.Name) (*api.Secret, error) {
			return decodedAs(r, api.KindSecret, n, func(s *api.Secret) api.Name { return s.Name })
		}),
	}, *sub, *target, envs)
}

// valueOf returns what get points to.
func valueOf[T any](get func(api.Name) (*T, error)) func(api.Name) (T, error) {
	return func(n api.Name) (v T, err error) {
		p, err := get(n)
		if err == nil {
			v = *p
		}
		return v, err
	}
}

// rules compiles the grants and target modes, as the service does.
func (r *revision) rules() (*policy.Engine, error) {
	r.once.Do(func() { r.engine, r.broken = r.compile() })
	return r.engine, r.broken
}

func (r *revision) compile() (*policy.Engine, error) {
	if err := r.docs.work.spend(unitEngine + unitPolicy*len(r.doc.Artifacts)); err != nil {
		return nil, err
	}
	var grants []*policy.Grant
	var targets []api.Target
	for _, ref := range slices.Sorted(maps.Keys(r.doc.Artifacts)) {
		switch kind, _, err := ref.Split(); {
		case err != nil: // CheckRevision refuses it
		case kind == api.KindGrant:
			g, err := r.decoded(ref, func(doc []byte) (any, api.Name, error) {
				var g api.Grant
				if err := r.docs.exact(doc, &g); err != nil {
					return nil, "", err
				}
				return policy.Compile(g), g.Name, r.docs.work.decode(doc) // the sets take as much again
			})
			if err != nil {
				return nil, err
			}
			grants = append(grants, g.(*policy.Grant)) //nolint:forcetypeassert // as decoded for this kind
		case kind == api.KindTarget:
			_, name, _ := ref.Split()
			t, err := r.target(name)
			if err != nil {
				return nil, err
			}
			targets = append(targets, *t)
		}
	}
	return policy.NewOf(grants, targets, "")
}

// signedRecord is an operator record with the keys that signed it.
type signedRecord struct {
	api.OperatorRecord
	digest            api.Digest
	verified, signers []seal.KeyID          // verified are those of the set in force
	counts            map[seal.KeyID]uint32 // of the passkeys among verified
	by                []report.SignedBy     // verified, as the set in force names them
	assigned          bool                  // the keys of the set in force have principals
}

// openRecord verifies the n-th operator record by the operator keys in force before it.
func openRecord(docs *library, d api.Digest, n int, operators *seal.Operators) (*signedRecord, error) {
	envelope, err := docs.envelope(d, "operator record", seal.Operator, reader{report.RowAuthorisation, "", uint64(n)}) //nolint:gosec // G115: counts up from 1
	if err != nil {
		return nil, err
	}
	if operators == nil {
		return nil, errors.New("the trust file names no operators")
	}
	rec := &signedRecord{digest: api.DigestOf(envelope.Payload()), signers: envelope.Signers(), assigned: operators.Assigned()}
	verified, err := operators.Open(envelope, docs.exact, &rec.OperatorRecord)
	if err != nil {
		return nil, err
	}
	rec.verified, rec.counts, rec.by = verified, envelope.SignCounts(verified), signersIn(operators.Root(), verified)
	ids := make([]string, len(verified))
	for i, id := range verified {
		ids[i] = string(id)
	}
	return rec, rec.CheckSigners(ids)
}

func requestKey(r policy.Request) string {
	b, err := json.Marshal(r)
	if err != nil {
		return ""
	}
	return string(b)
}
