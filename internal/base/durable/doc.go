// Package durable writes files that survive a crash of the process and of the
// machine, and locks files between processes.
//
// A durable write is: write a temporary file, fsync it, rename or link it to
// its name, fsync the directory. A lock is advisory, belongs to the open file
// and is released by the kernel when its last descriptor closes, so that a
// killed process leaves none behind. The package knows nothing of what the
// files contain and never retries a failed fsync.
//
// It carries the file side of R-O6 (no acknowledged state is lost in a crash).
package durable
