// Package rule is a group of packages. It has the rules: what a catalog, a policy and a plan say, and what follows from them.
// The same functions decide in the service and verify for the auditor.
//
// It never writes, dials or keeps state; a rule is a pure function of documents.
package rule
