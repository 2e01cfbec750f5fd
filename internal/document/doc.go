// Package document is a group of packages. It has the documents that are signed or
// logged: their fields, their encoding, their signatures and keys, and the proofs that
// they are in a log.
//
// It never reads a clock and never decides. Of files it opens only those with keys.
package document
