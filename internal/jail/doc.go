// Package jail starts programs with only the rights they are given: Bailiwick's isolation at level "full".
//
// A jail is a re-executed copy of the calling program that becomes pid 1 of new user, mount, pid, network, ipc, uts and
// cgroup namespaces, builds a root of read-only binds plus one bounded tmpfs, pivots into it, and then starts commands as
// confined children (no capabilities, no_new_privs, landlock, seccomp, rlimits, cgroups where there are any). It works
// started by root, where each jail maps to host uids of its own, and started by an ordinary user.
//
// It never weakens itself silently: a layer that is missing is a [MissingError] from Start, and what is active is told by
// [Jail.Isolation]. It never changes the calling process (directory, umask, environment, limits, credentials) and never
// runs anything but what it was handed. It knows nothing of dispatches, patches or secrets.
//
// The program that calls Start must call [Main] as the first statement of its main function.
//
// Carries R-S1, R-S2 and R-D9, and of R-S3 that there is no network but the jail's own loopback.
package jail
