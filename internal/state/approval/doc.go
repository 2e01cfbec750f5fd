// Package approval keeps the requests for approvals: what people are to approve, their
// signed votes, and the one use of each.
//
// A request is bound to the digest of the whole action. Votes are operator records, which
// internal/state/operator verifies; this package counts those of people who may vote. It
// survives restarts, and what expires is denied.
//
// Carries R-G6.
package approval
