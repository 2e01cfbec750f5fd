package catalog

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// Revision is a verified, immutable revision with its artifacts; the files of
// capabilities stay in the store. Only a Catalog makes one.
type Revision struct {
	doc      api.Revision
	digest   api.Digest // of the signed document
	manifest api.Digest // of the OCI manifest
	signers  []seal.KeyID
	set      *Set
	version  Version
}

// Number returns the revision number, from 1.
func (r *Revision) Number() uint64 { return r.doc.Number }

// Digest returns the digest of the signed document.
func (r *Revision) Digest() api.Digest { return r.digest }

// Manifest returns the digest of the OCI manifest.
func (r *Revision) Manifest() api.Digest { return r.manifest }

// Mark returns what a caller stores to detect a rollback.
func (r *Revision) Mark() Mark { return Mark{r.doc.Number, r.digest} }

// Signers returns the keys of the trust root that signed it.
func (r *Revision) Signers() []seal.KeyID { return slices.Clone(r.signers) }

// Version returns the state of the index that it was read from.
func (r *Revision) Version() Version { return r.version }

// Author returns the author as claimed by the signing program; only the signatures
// are verified.
func (r *Revision) Author() string { return r.doc.Author }

// CreatedAt returns the creation time, as claimed by the author.
func (r *Revision) CreatedAt() time.Time { return r.doc.CreatedAt }

// Reason returns the reason, as claimed by the author.
func (r *Revision) Reason() string { return r.doc.Reason }

// Document returns the revision document.
func (r *Revision) Document() api.Revision {
	doc := r.doc
	doc.Artifacts = maps.Clone(doc.Artifacts)
	return doc
}

// Set returns the artifacts. The caller must not modify it.
func (r *Revision) Set() *Set { return r.set }

// Names returns the sorted names of a kind.
func (r *Revision) Names(kind api.Kind) []api.Name {
	var names []api.Name
	for ref := range r.doc.Artifacts {
		if k, n, err := ref.Split(); err == nil && k == kind {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names
}

// Entry returns the digest and description of an artifact.
func (r *Revision) Entry(kind api.Kind, name api.Name) (api.Entry, error) {
	e, ok := r.doc.Artifacts[api.RefTo(kind, name)]
	if !ok {
		return api.Entry{}, api.Errorf(api.CodeNotFound, "%s %q: not in revision %d of the catalog", kind, string(name), r.doc.Number)
	}
	return e, nil
}

// Capability returns a capability and the digest of its document.
func (r *Revision) Capability(name api.Name) (api.Capability, api.Digest, error) {
	return lookup(r, api.KindCapability, r.set.Capabilities, name)
}

// Subagent returns a subagent and the digest of its document.
func (r *Revision) Subagent(name api.Name) (api.Subagent, api.Digest, error) {
	return lookup(r, api.KindSubagent, r.set.Subagents, name)
}

// Env returns an env and the digest of its document.
func (r *Revision) Env(name api.Name) (api.Env, api.Digest, error) {
	return lookup(r, api.KindEnv, r.set.Envs, name)
}

// Model returns a model and the digest of its document.
func (r *Revision) Model(name api.Name) (api.Model, api.Digest, error) {
	return lookup(r, api.KindModel, r.set.Models, name)
}

// Secret returns a secret and the digest of its document.
func (r *Revision) Secret(name api.Name) (api.Secret, api.Digest, error) {
	return lookup(r, api.KindSecret, r.set.Secrets, name)
}

// Source returns a source and the digest of its document.
func (r *Revision) Source(name api.Name) (api.Source, api.Digest, error) {
	return lookup(r, api.KindSource, r.set.Sources, name)
}

// Target returns a target and the digest of its document.
func (r *Revision) Target(name api.Name) (api.Target, api.Digest, error) {
	return lookup(r, api.KindTarget, r.set.Targets, name)
}

// Role returns a role and the digest of its document.
func (r *Revision) Role(name api.Name) (api.Role, api.Digest, error) {
	return lookup(r, api.KindRole, r.set.Roles, name)
}

// Grants returns all grants, sorted by name.
func (r *Revision) Grants() []api.Grant {
	var all []api.Grant
	for _, n := range slices.Sorted(maps.Keys(r.set.Grants)) {
		all = append(all, r.set.Grants[n])
	}
	return all
}

func lookup[T any](r *Revision, kind api.Kind, from map[api.Name]T, name api.Name) (T, api.Digest, error) {
	e, err := r.Entry(kind, name)
	if err != nil {
		var zero T
		return zero, "", err
	}
	return from[name], e.Digest, nil
}

// decodeRevision reads a revision document strictly.
func decodeRevision(b []byte) (api.Revision, error) {
	var doc api.Revision
	if err := canon.DecodeExact(b, &doc); err != nil {
		return api.Revision{}, err
	}
	return doc, CheckRevision(doc)
}

// CheckRevision refuses an invalid document.
func CheckRevision(doc api.Revision) error {
	switch {
	case doc.V != 1:
		return fmt.Errorf("unknown format %d; this build reads 1", doc.V)
	case doc.Number == 0:
		return errors.New("number 0, want at least 1")
	case (doc.Number == 1) != (doc.Previous == ""):
		return errors.New("previous must be empty in the first revision, and only there")
	case len(doc.Artifacts) > MaxArtifacts:
		return fmt.Errorf("%d artifacts, want at most %d", len(doc.Artifacts), MaxArtifacts)
	case doc.Artifacts == nil:
		return errors.New("member artifacts is missing")
	}
	for ref, e := range doc.Artifacts {
		if _, _, err := ref.Split(); err != nil {
			return err
		}
		if _, err := api.ParseDigest(string(e.Digest)); err != nil {
			return fmt.Errorf("%s: %w", ref, err)
		}
		if e.Project != "" {
			if _, err := api.ParseName(string(e.Project)); err != nil {
				return fmt.Errorf("%s: project: %w", ref, err)
			}
		}
	}
	return nil
}
