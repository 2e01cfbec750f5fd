// Package verify is a group of packages. It has the auditor's side: it recomputes evidence from files, offline, and reports
// what it found.
//
// It never writes, listens, dials or authorises, and the service's state is out of its reach.
package verify
