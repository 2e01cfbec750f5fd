// Package checkoutcache caches read-only checkouts of commits, one for each commit of
// each repository, from which any number of workspaces start at once.
//
// A worker creates a missing checkout (Store.Acquire) under a temporary name and
// renames it, so a kill at any time leaves either a complete checkout or garbage
// that the next creator, or Sweep, removes. A user of a checkout keeps a lock on
// it, which its death releases, and locked checkouts are never removed. Acquire
// compares the whole checkout with its index, by the metadata of every entry; a
// changed checkout is not used but created again. After a reboot its content is
// verified once.
//
// The package never runs anything, never writes to a finished checkout, and does
// not decide what to remove: its callers do, with List and Remove.
//
// Carries R-S4 and R-A2 for what workspaces start from.
package checkoutcache
