// Package evidence is what an auditor holds and checks: the trust file, and
// the bundle that says what ran.
//
// It works on bytes that it is given. It reads no database, opens no
// connection, and believes no verdict that a bundle carries: everything is
// recomputed, and what could not be is said to be not checked, never right.
// A bundle carries no trust: what its exporter says of itself proves nothing.
//
// # The bundle
//
// A bundle is one OCI artifact: a tar of an OCI image layout
// (https://github.com/opencontainers/image-spec, image-layout.md). A value has
// one spelling to the last byte: Read makes again what it has read, and refuses
// what differs, so there are no links, folders, owners, times, duplicates,
// trailing bytes or members that nothing names. Members stand in this order:
//
//	oci-layout                the two braces and the version of the format
//	index.json                one manifest, canonical JSON
//	blobs/sha256/…            the manifest; its artifactType is ArtifactType
//	blobs/sha256/…            its config: a Case, canonical JSON
//	blobs/sha256/…            the entries: lines of number, space, leaf
//	blobs/sha256/…            the proof: hashes of 32 bytes, see Prove
//	blobs/sha256/…            everything else, by digest: documents, each as it
//	                          was signed, and content where it was asked for
//
// Headers of the tar are POSIX ustar with mode 0644 and zeroes elsewhere. Leaves
// are those of package record, checkpoints C2SP signed notes, signatures DSSE
// envelopes, statements in-toto; hashes of the tree are RFC 6962's.
//
// Carries R-A7 and the auditor's side of R-A9.
package evidence
