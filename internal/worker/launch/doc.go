// Package launch starts what a service may start: the worker of a signed attempt, and
// nothing else. It verifies the manifest and the revision that humans signed by the same
// rules as worker and verifier, refuses an attempt that it has started before, and hands the
// worker the values of its secrets.
//
// In mode same-user the service calls it in its own process. In mode system
// bailiwick-launch calls it as root, for requests over a socket whose peer is the account of
// the service: it then has trust, marks and secrets of its own, and gives each attempt a
// block of uids. It decides nothing, opens no path that a request names, listens on no
// network, and keeps no goroutine longer than a request.
//
// Carries R-B5, R-D2, R-D8 and R-S2.
package launch
