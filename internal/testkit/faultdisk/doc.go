// Package faultdisk simulates, for tests, a disk that loses power or fails.
//
// A process under test runs unmodified on real files. A seccomp filter that it
// installs (Join) passes each of its system calls that touch files to the test,
// which records them in order (Run): writes, truncations, syncs, names created,
// renamed and removed, and the process's standard output. That journal is
// replayed onto a Disk, which tracks for each file and directory what is durable,
// because it was synced, and what is pending. A power cut is possible at any
// operation: the image that survives (Disk.Image) is the durable state and a
// random part of the pending one: none, all, a prefix, any subset, torn writes, a
// file's length without its content, one name of a directory without another.
//
// The disk allows everything that POSIX allows: syncing a file does not persist
// its name, syncing a directory not the directory's own name. It guarantees three
// things that SQLite and everything else here rely on: renames are atomic,
// sectors of 512 bytes are atomic, and a write damages nothing beside it.
//
// A call can also be made to fail (Fault), with or without having taken effect. A
// sync that failed without effect makes what was pending unsyncable, as on Linux.
//
// No program links this package. It decides nothing about what is right: tests do.
package faultdisk
