// Package faultdisk is a disk that can lose its power and can fail, for tests.
//
// A process under test runs as it is, on real files; a seccomp filter that it
// installs (Join) hands each of its system calls that touch files to the test,
// which writes them down in their order (Run): writes, truncations, syncs,
// names made, moved and removed, and what the process said on its standard
// output. That journal is then replayed onto a Disk, which knows for each file
// and each directory what is durable, because it was synced, and what is
// pending. At any point of the journal the power can be cut: the image that
// survives (Disk.Image) is what was durable and a random part of what was
// pending: none, all, what came first, any of it, half a write, a file's length
// without its bytes, a name without its directory's other names.
//
// The disk is as unkind as POSIX allows, not as one file system is: to sync a
// file does not keep its name, to sync a directory does not keep that
// directory's own name. It is kinder in three things that SQLite and everything
// else here rely on: a rename happens or does not, a sector of 512 bytes is
// written or is not, and nothing beside a write is damaged by it.
//
// A call can be made to fail too (Fault): without having been done, and having
// been done after all. A sync that failed without effect takes what it should
// have kept out of what any later sync can keep, as Linux does.
//
// No program links this package. It decides nothing about what is right: the
// tests do.
package faultdisk
