// Package record holds the documents that are signed or logged: the audit
// entry, the dispatch manifest and result, and what lies in the directory of
// an attempt. They are pure values with one canonical form each; nothing here
// reads a clock, a disk or a network, and nothing here decides.
//
// Carries R-A3 and R-A4 (entries), R-D2 (the manifest) and R-D5 (the result).
package record
