// Package record holds the documents that are signed or logged: the audit
// entry, the dispatch manifest and result, the statement about a dispatch, and
// the files in the directory of an attempt. They are pure values with one
// canonical form each. It also owns what follows from them alone: the table of a
// dispatch's states, what a need stands for, how an entry reads in plain words.
// Nothing here reads a clock, a disk or a network, and nothing decides or signs.
//
// A statement is an in-toto Statement v1 with SLSA provenance v1 as its
// predicate (https://github.com/in-toto/attestation/tree/main/spec/v1,
// https://slsa.dev/spec/v1.0/provenance). It is derived from the signed manifest,
// the signed result and the stored record, and adds nothing. It contains the
// digests of the input and of what an agent wrote, never the texts.
//
// Carries R-A3 and R-A4 (entries), R-A8 (statements), R-D2 (the manifest) and
// R-D5 (the result).
package record
