// Package retain lets go of what the service need not keep any longer:
// content of dispatches by age, number and size, evidence by an age of its
// own, cached checkouts, and blobs that nothing refers to.
//
// The decision is durable before the effect, as everywhere: one transaction
// marks the dispatches and logs what goes, how much and by which rule; only
// then files are removed, and whatever was marked and is still there goes at
// the next occasion. Nothing is removed when that entry cannot be written.
// What a record, an active dispatch or somebody about to store one refers to
// is never removed (blob.Store.Protect); nor is anything of a dispatch that is
// pinned, runs or waits for an answer. Records and log entries are never
// removed by this package, and a checkout in use never is.
//
// Without rules nothing goes but what nothing refers to. Carries R-A2 for
// removals.
package retain
