// Package landlock restricts the calling thread, and the processes that it starts, to parts of the file system. It makes the system
// calls itself: go-landlock restricts every thread of a process, and a process that restricts what it starts keeps its own access.
// What is allowed is the caller's to decide.
//
// It carries the kernel's side of R-S4.
package landlock
