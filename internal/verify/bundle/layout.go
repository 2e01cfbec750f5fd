package bundle

import (
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
)

// The media types of a bundle, for OCI tools.
const (
	ArtifactType   = artifactFormat + "1"
	artifactFormat = "application/vnd.bailiwick.evidence.v"

	caseType     = "application/vnd.bailiwick.evidence.case.v1+json"
	entriesType  = "application/vnd.bailiwick.evidence.entries.v1"
	proofType    = "application/vnd.bailiwick.evidence.proof.v1"
	documentType = "application/vnd.bailiwick.evidence.document.v1"
	contentType  = "application/vnd.bailiwick.evidence.content.v1"

	layoutName = "oci-layout"
	layoutText = `{"imageLayoutVersion":"1.0.0"}`
	indexName  = "index.json"
)

func blobName(d api.Digest) string { return "blobs/sha256/" + d.Hex() }

// part is the descriptor of a blob.
type part struct {
	mediaType string
	digest    api.Digest
	size      int64
}

func (p part) append(b []byte) []byte {
	return fmt.Appendf(b, `{"digest":"%s","mediaType":"%s","size":%d}`, p.digest, p.mediaType, p.size)
}

// manifestOf is the OCI manifest in canonical JSON. Its layers are in the order of
// the tar.
func manifestOf(config part, layers []part) []byte {
	b := make([]byte, 0, 512+180*len(layers))
	b = append(b, `{"artifactType":"`+ArtifactType+`","config":`...)
	b = append(config.append(b), `,"layers":[`...)
	for i, l := range layers {
		if i > 0 {
			b = append(b, ',')
		}
		b = l.append(b)
	}
	return append(b, `],"mediaType":"application/vnd.oci.image.manifest.v1+json","schemaVersion":2}`...)
}

// indexOf is the OCI index with one manifest.
func indexOf(manifest api.Digest, size int64) []byte {
	return fmt.Appendf(nil, `{"manifests":[{"artifactType":"%s","digest":"%s","mediaType":"application/vnd.oci.image.manifest.v1+json","size":%d}],`+
		`"mediaType":"application/vnd.oci.image.index.v1+json","schemaVersion":2}`, ArtifactType, manifest, size)
}

// parts are the layers of a bundle in order.
func parts(entries, proof part, documents map[api.Digest][]byte, content []Content) []part {
	rest := make([]part, 0, len(documents)+len(content))
	for d, doc := range documents {
		rest = append(rest, part{documentType, d, int64(len(doc))})
	}
	for _, c := range content {
		rest = append(rest, part{contentType, c.Digest, c.Size})
	}
	slices.SortFunc(rest, func(a, b part) int {
		if a.digest < b.digest {
			return -1
		}
		return 1
	})
	return append([]part{entries, proof}, rest...)
}
