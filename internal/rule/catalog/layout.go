package catalog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// The OCI layout of a catalog. A revision is an image manifest whose config is the
// revision document and whose layers are the artifact documents and the files of
// capabilities. Its signatures are manifests with it as their subject. The index
// tags the head, every revision by number, and at most one proposal.
const (
	RevisionType  = "application/vnd.bailiwick.revision.v1"
	SignatureType = "application/vnd.bailiwick.signature.v1"

	TagCurrent  = "current"
	TagProposal = "proposal"

	fileType     = "application/vnd.bailiwick.file.v1"
	envelopeType = "application/vnd.dsse.envelope.v1+json"

	// annotationRef is the ref of the artifact in a layer.
	annotationRef = "dev.bailiwick.ref"
	// annotationSubject in the index is the subject of a signature: it saves reading
	// all signatures. It is checked when it is used.
	annotationSubject = "dev.bailiwick.subject"
)

// TagOf returns the tag of a revision.
func TagOf(number uint64) string { return "r" + strconv.FormatUint(number, 10) }

// Manifest returns the OCI manifest of a revision. It depends only on the document
// and its artifacts, so a reader can compare it byte by byte.
func Manifest(revision []byte, set *Set) ([]byte, error) {
	m := ocispec.Manifest{
		Versioned:    specs.Versioned{SchemaVersion: 2},
		MediaType:    ocispec.MediaTypeImageManifest,
		ArtifactType: RevisionType,
		Config:       describe(string(seal.Revision), revision),
		Layers:       []ocispec.Descriptor{},
	}
	for _, ref := range set.Refs() {
		kind, _, err := ref.Split()
		if err != nil {
			return nil, err
		}
		d := describe("application/vnd.bailiwick."+string(kind)+".v1+json", set.docs[ref])
		d.Annotations = map[string]string{annotationRef: string(ref), ocispec.AnnotationTitle: string(ref) + ".json"}
		m.Layers = append(m.Layers, d)
	}
	seen := map[api.Digest]bool{}
	for _, f := range set.Files() {
		if !seen[f.Digest] {
			seen[f.Digest] = true
			m.Layers = append(m.Layers, ocispec.Descriptor{MediaType: fileType, Digest: digest.Digest(f.Digest), Size: f.Size})
		}
	}
	return canon.Marshal(m)
}

// SignatureManifest returns the OCI manifest that attaches an envelope to a
// revision's manifest. Its config is the two bytes "{}".
func SignatureManifest(revisionManifest, envelope []byte) ([]byte, error) {
	subject := describe(ocispec.MediaTypeImageManifest, revisionManifest)
	empty := ocispec.DescriptorEmptyJSON
	empty.Data = nil
	return canon.Marshal(ocispec.Manifest{
		Versioned:    specs.Versioned{SchemaVersion: 2},
		MediaType:    ocispec.MediaTypeImageManifest,
		ArtifactType: SignatureType,
		Config:       empty,
		Layers:       []ocispec.Descriptor{describe(envelopeType, envelope)},
		Subject:      &subject,
	})
}

// IndexEntry describes a revision's manifest for the index, under a tag.
func IndexEntry(manifest []byte, tag string) ocispec.Descriptor {
	d := describe(ocispec.MediaTypeImageManifest, manifest)
	d.ArtifactType = RevisionType
	d.Annotations = map[string]string{ocispec.AnnotationRefName: tag}
	return d
}

// SignatureEntry describes a signature's manifest for the index.
func SignatureEntry(manifest []byte, subject api.Digest) ocispec.Descriptor {
	d := describe(ocispec.MediaTypeImageManifest, manifest)
	d.ArtifactType = SignatureType
	d.Annotations = map[string]string{annotationSubject: string(subject)}
	return d
}

// SubjectOf returns the subject of a signature, according to its index entry.
func SubjectOf(entry ocispec.Descriptor) (string, bool) {
	subject, ok := entry.Annotations[annotationSubject]
	return subject, ok && entry.ArtifactType == SignatureType
}

func describe(mediaType string, b []byte) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.Digest(api.DigestOf(b)), Size: int64(len(b))}
}

// descriptor is an entry of the index with a valid digest.
type descriptor struct {
	Digest api.Digest
	oci    ocispec.Descriptor
}

// check compares the descriptor with a manifest.
func (d descriptor) check(manifest []byte, artifactType string) error {
	if d.oci.Size != int64(len(manifest)) || d.oci.MediaType != ocispec.MediaTypeImageManifest ||
		d.oci.ArtifactType != "" && d.oci.ArtifactType != artifactType {
		return fmt.Errorf("the index describes %s incorrectly", d.Digest.Short())
	}
	return nil
}

func (d descriptor) same(o descriptor) bool {
	return d.Digest == o.Digest && d.oci.Size == o.oci.Size && d.oci.MediaType == o.oci.MediaType && d.oci.ArtifactType == o.oci.ArtifactType
}

// index is the parsed index.json, which is not authenticated.
type index struct {
	version Version
	tags    map[string]descriptor
	others  []descriptor // without a tag
}

func (c *Catalog) index(ctx context.Context) (*index, error) {
	b, err := c.store.Index(ctx)
	if err != nil {
		return nil, readFault(err, "catalog index")
	}
	idx, err := parseIndex(b)
	if err != nil {
		return nil, fault(FaultMalformed, err, "catalog index")
	}
	return idx, nil
}

func parseIndex(b []byte) (*index, error) {
	var raw ocispec.Index
	// Other tools may have reformatted it.
	c, err := canon.Canonicalize(b)
	if err == nil {
		err = canon.DecodeExact(c, &raw)
	}
	if err != nil {
		return nil, err
	}
	if raw.SchemaVersion != 2 || raw.MediaType != "" && raw.MediaType != ocispec.MediaTypeImageIndex {
		return nil, errors.New("not an OCI image index of schema 2")
	}
	idx := &index{version: Version(api.DigestOf(b)), tags: map[string]descriptor{}}
	for _, d := range raw.Manifests {
		parsed, err := api.ParseDigest(string(d.Digest))
		if err != nil {
			return nil, err
		}
		entry := descriptor{Digest: parsed, oci: d}
		tag, ok := d.Annotations[ocispec.AnnotationRefName]
		if !ok {
			idx.others = append(idx.others, entry)
			continue
		}
		if _, twice := idx.tags[tag]; twice {
			return nil, fmt.Errorf("duplicate tag %.80q", tag)
		}
		idx.tags[tag] = entry
	}
	return idx, nil
}

func (idx *index) onlyProposal() bool {
	_, ok := idx.tags[TagProposal]
	return ok && len(idx.tags) == 1
}

// highest returns the highest tagged revision number.
func (idx *index) highest() uint64 {
	var high uint64
	for tag := range idx.tags {
		if n, ok := numberOf(tag); ok {
			high = max(high, n)
		}
	}
	return high
}

func numberOf(tag string) (uint64, bool) {
	rest, ok := strings.CutPrefix(tag, "r")
	n, err := strconv.ParseUint(rest, 10, 64)
	return n, ok && err == nil && TagOf(n) == tag
}

// envelopes returns the signatures of a manifest.
func (c *Catalog) envelopes(ctx context.Context, idx *index, subject api.Digest) ([][]byte, error) {
	var found [][]byte
	for _, d := range idx.others {
		if t := d.oci.ArtifactType; t != "" && t != SignatureType {
			continue
		}
		if hint, ok := d.oci.Annotations[annotationSubject]; ok && hint != string(subject) {
			continue
		}
		envelope, err := c.envelope(ctx, d, subject)
		if err != nil {
			return nil, err
		}
		if envelope != nil {
			found = append(found, envelope)
		}
		if len(found) > maxEnvelopes {
			return nil, fault(FaultMalformed, nil, "revision manifest %s: more than %d signatures", subject.Short(), maxEnvelopes)
		}
	}
	return found, nil
}

// envelope returns the envelope in a signature manifest, or nil if it is another
// kind of manifest or has another subject.
func (c *Catalog) envelope(ctx context.Context, d descriptor, subject api.Digest) ([]byte, error) {
	b, err := c.get(ctx, d.Digest, maxManifest, "signature manifest")
	if err != nil {
		return nil, err
	}
	var m ocispec.Manifest
	if err := canon.Decode(b, &m); err != nil {
		return nil, fault(FaultMalformed, err, "signature manifest %s", d.Digest.Short())
	}
	if m.ArtifactType != SignatureType || m.Subject == nil || api.Digest(m.Subject.Digest) != subject {
		return nil, nil
	}
	if len(m.Layers) != 1 {
		return nil, fault(FaultMalformed, nil, "signature manifest %s: %d layers, want 1", d.Digest.Short(), len(m.Layers))
	}
	layer, err := api.ParseDigest(string(m.Layers[0].Digest))
	if err != nil {
		return nil, fault(FaultMalformed, err, "signature manifest %s", d.Digest.Short())
	}
	envelope, err := c.get(ctx, layer, seal.MaxEnvelope, "signature")
	if err != nil {
		return nil, err
	}
	revision, err := c.get(ctx, subject, maxManifest, "revision manifest")
	if err != nil {
		return nil, err
	}
	want, err := SignatureManifest(revision, envelope)
	if err != nil || string(want) != string(b) || d.check(b, SignatureType) != nil {
		return nil, fault(FaultMalformed, err, "signature manifest %s: not in its canonical form", d.Digest.Short())
	}
	return envelope, nil
}

// configOf returns the digest of a manifest's config.
func configOf(manifest []byte) (api.Digest, error) {
	var m ocispec.Manifest
	if err := canon.Decode(manifest, &m); err != nil {
		return "", err
	}
	if m.ArtifactType != RevisionType {
		return "", fmt.Errorf("artifact type %.80q, want %s", m.ArtifactType, RevisionType)
	}
	return api.ParseDigest(string(m.Config.Digest))
}
