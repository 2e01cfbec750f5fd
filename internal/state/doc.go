// Package state is a group of packages. It has what the service keeps, and where: the database, the log, content, decisions of
// people, secrets, and the copies of the log that others hold.
//
// It never starts a process for a worker and never decides what a caller may do.
package state
