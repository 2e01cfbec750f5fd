// Package jail runs programs with only the rights they are given: Bailiwick's isolation at level "full".
//
// A jail is a re-executed copy of the calling program that becomes pid 1 of new user, mount, pid, network, ipc, uts and
// cgroup namespaces, builds a root of read-only overlays over host directories, binds of single files and one bounded tmpfs,
// pivots into it, and then starts commands as confined children (no capabilities, no_new_privs, landlock, seccomp, rlimits,
// and cgroups if available). It works as root, with separate host uids for each jail; under a uid block (package account), with
// two uids of the block; and as an ordinary user.
//
// It never weakens itself silently: a missing layer is a [MissingError] from Start, and [Jail.Isolation] lists what is
// active. It never changes the calling process (directory, umask, environment, limits, credentials) and runs only what it is
// given. It knows nothing of dispatches, patches or secrets.
//
// The program that calls Start must call [Main] as the first statement of its main function.
//
// Carries R-S1, R-S2 and R-D9, and of R-S3 that a jail has no network but its own loopback.
package jail
