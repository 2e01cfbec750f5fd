// Package retention removes what the service need not keep: content of dispatches
// by age, number and size, evidence by its own age, cached checkouts, and
// unreferenced blobs.
//
// The decision is durable before its effect: one transaction marks the
// dispatches and logs what is removed, how much and by which rule. Only then are
// files removed; a later collection removes marked files that still exist. If
// the entry cannot be written, nothing is removed. Blobs that a record or an
// active dispatch refers to, or that are protected (blob.Store.Protect), are
// never removed, nor is anything of a dispatch that is pinned, running or
// waiting for an answer, a checkout in use, the record of a dispatch or a log
// entry. The rows and the plan of a settled run are removed in the transaction of
// the entry that names it.
//
// Without rules only unreferenced blobs are removed. Carries R-A2 for removals.
package retention
