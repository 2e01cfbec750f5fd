// Package checkout keeps read-only checkouts of commits, one for each commit
// of each repository, from which any number of workspaces start at once.
//
// A worker makes the one that it needs when it is not there (Store.Acquire), under
// a name of its own, and then renames it: whenever it is killed there is a
// whole checkout or rubbish that the next maker, or Sweep, removes. Locks are
// flocks, so a killed process holds none. Whoever uses a checkout keeps it
// locked, and what is locked is never removed. Every use compares all of it
// with the index that was made with it, by asking the file system about every
// entry; what was changed, lost or added since is not used but made anew. After
// a restart of the machine it is read whole, once.
//
// It never runs anything, never writes to a finished checkout, and decides
// nothing about what should be removed: that is who calls List and Remove.
//
// Carries R-S4 and R-A2 for what workspaces start from.
package checkout
