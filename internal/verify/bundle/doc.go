// Package bundle is the format of evidence: one file that an auditor gets, and
// the proof that its entries are in the log. It reads exactly what it writes, and
// judges nothing: package evidence does.
//
// A bundle is one OCI artifact: a tar of an OCI image layout
// (https://github.com/opencontainers/image-spec, image-layout.md). A value has
// one encoding to the last byte: Read encodes again what it has read and refuses
// a difference, so there are no links, folders, owners, times, duplicates,
// trailing bytes or unnamed members. Members are in this order:
//
//	oci-layout                the version of the layout
//	index.json                one manifest, canonical JSON
//	blobs/sha256/…            the manifest; its artifactType is ArtifactType
//	blobs/sha256/…            its config: a Case, canonical JSON
//	blobs/sha256/…            the entries: lines of number, space, leaf
//	blobs/sha256/…            the proof: hashes of 32 bytes, see Prove
//	blobs/sha256/…            everything else, by digest: signed documents, and
//	                          content if it was requested
//
// Tar headers are POSIX ustar with mode 0644 and zeroes elsewhere. Leaves are
// those of package record, checkpoints C2SP signed notes, signatures DSSE
// envelopes, statements in-toto; tree hashes are those of RFC 6962.
//
// Carries R-A7.
package bundle
